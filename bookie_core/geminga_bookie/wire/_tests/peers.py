"""Bookies of the tests: connections in memory, whose far end the test plays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import trio
import trio.testing

from geminga_bookie._tests.support import KEY, Outcomes, packets
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import RemoteBookie
from geminga_protocol.bookkeeper import v3
from geminga_protocol.bookkeeper.framing import FrameCutter
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    ADD_ENTRY,
    EOK,
    READ_ENTRY,
    Request,
    StatusCode,
)
from geminga_runtime.errors import ConnectFailed
from geminga_runtime.stream import FramedStream


class Peer:
    """The far end of one connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.requests: list[Request] = []
        self._cutter = FrameCutter(1 << 30)

    async def take(self, count: int) -> list[Request]:
        """The next requests."""
        while len(self.requests) < count:
            data = bytes(await self.stream.receive_some(1 << 20))
            assert data, "the client closed the connection"
            self.requests += v3.decode_requests(*self._cutter.feed(data))
        taken, self.requests = self.requests[:count], self.requests[count:]
        return taken

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.stream.send_all(data)

    async def ended(self) -> None:
        """Wait until the client closes the connection."""
        try:
            while await self.stream.receive_some(1 << 20):
                pass
        except trio.BrokenResourceError:
            pass


class Network:
    """What `RemoteBookie` connects to; each connection's far end goes to `accepted`."""

    def __init__(self) -> None:
        self.is_down = False
        self.attempts = 0
        self._send, self.accepted = trio.open_memory_channel[Peer](100)

    async def dial(self, deadline: float) -> FramedStream:
        self.attempts += 1
        await trio.lowlevel.checkpoint()
        if self.is_down:
            raise ConnectFailed("the network is down")
        near, far = trio.testing.memory_stream_pair()
        self._send.send_nowait(Peer(far))
        return FramedStream(near, name="memory")

    def bookie(self, **changes: object) -> RemoteBookie:
        return RemoteBookie("bookie-1:3181", self.dial, RemoteOptions(**changes))


def added(requests: Sequence[Request]) -> bytes:
    """Answers "added"."""
    return b"".join(answer(each, EOK) for each in requests)


def answer(request: Request, status: StatusCode, body: bytes | None = None) -> bytes:
    """The answer to an add or a read."""
    operation = request.header.operation
    made = v3.response(operation, request.header.txnId, status)
    if operation == ADD_ENTRY:
        said = made.addResponse
        asked = request.addRequest
        said.status, said.ledgerId, said.entryId = status, asked.ledgerId, asked.entryId
    elif operation == READ_ENTRY:
        read, wanted = made.readResponse, request.readRequest
        read.status, read.ledgerId, read.entryId = status, wanted.ledgerId, wanted.entryId
        if body is not None:
            read.body = body
    return v3.frame(made)


def frames_of(data: bytes) -> Iterator[bytes]:
    """The single frames."""
    _, bounds = FrameCutter(1 << 30).feed(data)
    for start, stop in pairwise(bounds):
        yield data[start:stop]


def begin(bookie: RemoteBookie, first: int, count: int, **more: bool) -> Outcomes:
    """Add entries of ledger 7."""
    outcomes = Outcomes()
    bookie.add(7, KEY, first, packets(7, range(first, first + count)), outcomes, **more)
    return outcomes


def kinds(outcomes: Outcomes) -> list[tuple[int, int, type]]:
    """What became of a run's parts."""
    return [(first, count, type(error)) for first, count, error in outcomes.runs]


OK = type(None)
