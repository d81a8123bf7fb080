"""Clients of the tests, who write bytes, and a bookie whose adds wait for the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import trio
import trio.testing

from geminga_bookie._tests.asked_bookie import Add, AskedBookie
from geminga_bookie._tests.support import KEY, packets
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import Completion, complete
from geminga_bookie.wire.auth import BookieAuth
from geminga_bookie.wire.session import BookieSession
from geminga_bookie.wire.session_limits import SessionLimits, Shared
from geminga_protocol.bookkeeper import v3
from geminga_protocol.bookkeeper.framing import FrameCutter
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    Request,
    Response,
)
from geminga_runtime.stream import FramedStream

MiB = 1 << 20


class SlowBookie(AskedBookie):
    """Adds are done when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Completion] = []
        self.runs: list[tuple[int, int, int, bool]] = []
        self.holds = False

    def take(self, add: Add) -> None:
        self.runs.append((add.ledger_id, add.first_entry_id, add.count, add.recovery))
        if self.holds:
            self.held.append(Completion(add.done, add.first_entry_id, add.count, None))
        else:
            self.store(add)

    def release(self) -> None:
        held, self.held = self.held, []
        complete(held)


class Client:
    """A client that writes bytes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._cutter = FrameCutter(1 << 30)
        self._frames: list[bytes] = []

    async def send(self, *frames: bytes) -> None:
        await self.stream.send_all(b"".join(frames))

    async def frames(self, count: int) -> list[bytes]:
        while len(self._frames) < count:
            data = bytes(await self.stream.receive_some(MiB))
            if not data:
                raise EOFError
            buffer, bounds = self._cutter.feed(data)
            self._frames += [buffer[start:stop] for start, stop in pairwise(bounds)]
        taken, self._frames = self._frames[:count], self._frames[count:]
        return taken

    async def responses(self, count: int) -> list[Response]:
        return [Response.FromString(frame[4:]) for frame in await self.frames(count)]

    async def call(self, request: Request) -> Response:
        await self.send(v3.frame(request))
        (answer,) = await self.responses(1)
        assert answer.header.txnId == request.header.txnId
        return answer


Connect = Callable[[], Client]


@asynccontextmanager
async def serving(
    bookie: MemoryBookie,
    budget_bytes: int = 1 << 30,
    shared: Shared | None = None,
    auth: BookieAuth | None = None,
    **limits: float,
) -> AsyncIterator[Connect]:
    """Clients of one server."""
    shared = shared or Shared(bookie, unanswered_bytes_max=budget_bytes)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shared.run)

        def connect() -> Client:
            near, far = trio.testing.memory_stream_pair()
            stream = FramedStream(far, name="client", write_high_bytes=MiB)
            session = BookieSession(bookie, stream, SessionLimits(**limits), shared, auth=auth)

            async def run() -> None:
                try:
                    await session.run()
                except* ConnectionError:
                    pass
                finally:
                    await stream.aclose()

            nursery.start_soon(run)
            return Client(near)

        yield connect
        nursery.cancel_scope.cancel()


def adds(first: int, count: int, *, ledger: int = 7, size: int = 100, key: bytes = KEY) -> bytes:
    made = packets(ledger, range(first, first + count), size)
    return b"".join(v3.encode_adds(ledger, key, first, made, 1000 + first))
