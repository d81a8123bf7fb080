"""Connections with latency, fragments, stalls and cuts. One pipe for each direction."""

from __future__ import annotations

import enum
import math
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

import trio

from geminga_runtime.errors import ConnectFailed
from geminga_runtime.stream import FramedStream

from .chance import EventLog

Accept = Callable[[FramedStream], Awaitable[None]]
WRITE_HIGH_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """How a connection behaves while nothing goes wrong with it."""

    latency_s: float
    jitter_s: float
    fragment_bytes_max: int
    """Larger writes arrive in pieces of at most that."""
    window_bytes: int
    """What may be under way; the writer waits when it is full."""


@dataclass(slots=True)
class CutPlan:
    """Cut when that many more frames have begun in this direction: before the frame's first byte,
    or within it.
    """

    frames: int
    within: float
    how: Cut


class Cut(enum.Enum):
    """What both ends see of a cut."""

    RESET = "reset"
    """Everything under way is lost, both ends get an error at once."""
    END = "end"
    """What is under way still arrives, then the stream ends."""
    SILENT = "silent"
    """Everything under way is lost, and neither end is told: only keep-alive finds out."""


class Frames:
    """Finds where frames begin in a stream of bytes."""

    def __init__(self) -> None:
        self._left = 0
        self._head = b""

    def starts(self, data: bytes) -> list[int]:
        """Offsets in `data` at which a frame begins."""
        found: list[int] = []
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            if not self._head:
                found.append(at)
            need = 4 - len(self._head)
            self._head += data[at : at + need]
            at += need
            if len(self._head) == 4:
                self._left = int.from_bytes(self._head, "big")
                self._head = b""
        return found


class Pipe:
    """One direction of a link."""

    def __init__(self, link: Link, name: str) -> None:
        self.link = link
        self.name = name
        self.cut: CutPlan | None = None
        self.stalled_until_s = 0.0
        self.error: str | None = None
        self.ended = False
        self.swallows = False
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._last_s = 0.0
        self._frames = Frames()
        self._readable = trio.Event()
        self._writable = trio.Event()

    def wake(self) -> None:
        self._readable.set()
        self._writable.set()

    def lose(self) -> None:
        """What is under way is gone."""
        self._under_way.clear()
        self._bytes = 0

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        while self._bytes >= self.link.plan.window_bytes and not self._over:
            self._writable = trio.Event()
            await self._writable.wait()
        if self.error is not None or self.ended:
            raise trio.BrokenResourceError(self.error or "closed")
        if self.swallows:
            return
        self.link.log.add(f"{self.name} {len(data)} {zlib.crc32(data):08x}")
        cut_at = self._where_to_cut(data)
        if cut_at is not None:
            data = data[:cut_at]
        self._put(data)
        if cut_at is not None and self.cut is not None:
            self.link.cut(self.cut.how)

    @property
    def _over(self) -> bool:
        return self.ended or self.swallows or self.error is not None

    def _where_to_cut(self, data: bytes) -> int | None:
        starts = self._frames.starts(data)
        if self.cut is None:
            return None
        if self.cut.frames >= len(starts):
            self.cut.frames -= len(starts)
            return None
        begin = starts[self.cut.frames]
        ends = [*starts, len(data)][self.cut.frames + 1]
        return begin + int((ends - begin) * self.cut.within)

    def _put(self, data: bytes) -> None:
        rng = self.link.rng
        plan = self.link.plan
        at = 0
        while at < len(data):
            size = rng.randint(1, plan.fragment_bytes_max)
            part = data[at : at + size]
            at += size
            arrives_s = trio.current_time() + plan.latency_s + rng.random() * plan.jitter_s
            self._last_s = max(self._last_s, arrives_s)
            self._under_way.append((self._last_s, part))
            self._bytes += len(part)
        self._readable.set()

    async def receive(self, bytes_max: int) -> bytes:
        while True:
            if self.error is not None:
                await trio.lowlevel.checkpoint()
                raise trio.BrokenResourceError(self.error)
            arrives_s = math.inf
            if self._under_way:
                arrives_s = max(self._under_way[0][0], self.stalled_until_s)
            elif self.ended:
                await trio.lowlevel.checkpoint()
                return b""
            if arrives_s <= trio.current_time():
                await trio.lowlevel.checkpoint()
                if self._under_way:
                    return self._take(bytes_max)
                continue
            self._readable = trio.Event()
            with trio.move_on_at(arrives_s):
                await self._readable.wait()

    def _take(self, bytes_max: int) -> bytes:
        parts: list[bytes] = []
        now_s = trio.current_time()
        room = bytes_max
        while self._under_way and room and self._under_way[0][0] <= now_s:
            arrived_s, part = self._under_way.popleft()
            if len(part) > room:
                self._under_way.appendleft((arrived_s, part[room:]))
                part = part[:room]
            room -= len(part)
            parts.append(part)
        self._bytes -= bytes_max - room
        self._writable.set()
        return b"".join(parts)


class SimStream(trio.abc.Stream):
    """One end of a link."""

    def __init__(self, outward: Pipe, inward: Pipe) -> None:
        self._outward = outward
        self._inward = inward
        self._closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        await self._outward.send(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._closed:
            raise trio.ClosedResourceError
        return await self._inward.receive(max_bytes or 1 << 16)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._outward.link.closed(self._outward, self._inward)
        await trio.lowlevel.checkpoint()


class Link:
    """A connection: two pipes that are cut together."""

    def __init__(self, network: Network, name: str, plan: LinkPlan) -> None:
        self.network = network
        self.name = name
        self.plan = plan
        self.rng = network.rng
        self.log = network.log
        self.up = Pipe(self, f"{name}>")
        self.down = Pipe(self, f"{name}<")

    def streams(self) -> tuple[FramedStream, FramedStream]:
        """The client's end and the broker's."""
        ends = SimStream(self.up, self.down), SimStream(self.down, self.up)
        client, broker = (
            FramedStream(end, name=self.name, write_high_bytes=WRITE_HIGH_BYTES) for end in ends
        )
        return client, broker

    def cut(self, how: Cut) -> None:
        """Break it now."""
        self.log.add(f"{self.name} cut {how.value}")
        self.network.links.pop(self.name, None)
        for pipe in (self.up, self.down):
            pipe.cut = None
            if how is Cut.END:
                pipe.ended = True
            elif how is Cut.RESET:
                pipe.error = "reset by the simulation"
                pipe.lose()
            else:
                pipe.swallows = True
                pipe.lose()
            pipe.wake()

    def closed(self, outward: Pipe, inward: Pipe) -> None:
        """One end was closed: the other one reads what is under way, then the end."""
        self.network.links.pop(self.name, None)
        if not outward.swallows:
            outward.ended = True
        inward.error = inward.error or "closed by the peer"
        inward.lose()
        outward.wake()
        inward.wake()


class Network:
    """Who listens, and all connections that are open."""

    def __init__(self, rng: Random, log: EventLog, name: str = "") -> None:
        self.rng = rng
        self.log = log
        self.name = name
        self.links: dict[str, Link] = {}
        self.listener: Accept | None = None
        self.nursery: trio.Nursery | None = None
        self.is_calm = False
        """No more faults: new connections are fast ones."""
        self._made = 0

    def listen(self, accept: Accept, nursery: trio.Nursery) -> None:
        """Connections are served by `accept` in the nursery from now on."""
        self.listener, self.nursery = accept, nursery

    def close(self, how: Cut) -> None:
        """The broker is gone: nobody listens, and all connections break."""
        self.listener = self.nursery = None
        for link in list(self.links.values()):
            link.cut(how)

    async def connect(self, host: str, port: int, deadline: float) -> FramedStream:
        """The SDK's `Connector`."""
        rng = self.rng
        await trio.sleep(0.0005 + rng.random() * 0.01)
        if not self.is_calm and rng.random() < 0.03:
            await trio.sleep_until(deadline)
            raise ConnectFailed(f"{host}:{port}: not connected before the deadline")
        if self.listener is None or self.nursery is None:
            raise ConnectFailed(f"{host}:{port}: refused")
        self._made += 1
        link = Link(self, f"{self.name}c{self._made}", self._plan())
        self.links[link.name] = link
        client, broker = link.streams()
        self.log.add(f"{link.name} connected {link.plan}")
        self.nursery.start_soon(self.listener, broker)
        return client

    def _plan(self) -> LinkPlan:
        rng = self.rng
        if self.is_calm or rng.random() < 0.5:
            return LinkPlan(0.0002, 0.0005, 1 << 20, 1 << 20)
        latency_s = rng.choice((0.0005, 0.005, 0.05))
        return LinkPlan(
            latency_s,
            rng.choice((0.0, latency_s, 3 * latency_s)),
            rng.choice((97, 1500, 1 << 20)),
            rng.choice((2000, 1 << 15, 1 << 20)),
        )
