"""A bookie that another process of this machine has: a `BookiePort` over one connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from geminga_bookie.errors import (
    BookieUnavailable,
    BookkeeperError,
    IncorrectParameter,
    TooManyRequests,
)
from geminga_bookie.local import frames
from geminga_bookie.port import (
    ID_MAX,
    AddDone,
    BookieInfo,
    Completion,
    LacAnswer,
    check_add,
    check_lac,
    check_ledger,
    check_read,
    complete,
)
from geminga_protocol.bookkeeper.framing import WireError
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.lasting import open_lasting_nursery
from geminga_runtime.message_frames import encode
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Promise

MiB = 1024 * 1024

UNANSWERED_BYTES_MAX = 256 * MiB
"""Bytes of adds without an answer, if there is more than one; above it they fail with
TooManyRequests.
"""

CALLS_MAX = 10_000
"""Other requests without an answer; above it they fail with TooManyRequests."""


@asynccontextmanager
async def open_local_bookie(
    bookie_id: str, stream: FramedStream, unanswered_bytes_max: int = UNANSWERED_BYTES_MAX
) -> AsyncIterator[LocalBookie]:
    """A bookie at the other end of the stream, until the block has ended, also while that is
    cancelled. The connection is never opened anew: after a loss all requests fail.
    """
    bookie = LocalBookie(bookie_id, stream, unanswered_bytes_max)
    async with open_lasting_nursery() as nursery:
        nursery.start_soon(bookie.run)
        yield bookie


class _Run:
    """An add without all its answers."""

    __slots__ = ("bytes", "done", "entries", "first_entry_id")

    def __init__(self, done: AddDone, first_entry_id: int, entries: int, size: int) -> None:
        self.done = done
        self.first_entry_id = first_entry_id
        self.entries = entries
        self.bytes = size


class LocalBookie:
    """See `BookiePort`. The owner runs `run` in a task; when that ends all requests fail with
    BookieUnavailable. There are no time-outs: the bookie ends with its process.
    """

    def __init__(
        self,
        bookie_id: str,
        stream: FramedStream,
        unanswered_bytes_max: int = UNANSWERED_BYTES_MAX,
    ) -> None:
        self.bookie_id = bookie_id
        self._stream = stream
        self._unanswered_bytes_max = unanswered_bytes_max
        self._unanswered_bytes = 0
        self._number = 0
        self._runs: dict[int, _Run] = {}
        self._calls: dict[int, Promise[frames.Result]] = {}
        self._later: list[Completion] = []
        self._lost: str | None = None

    async def run(self) -> None:
        """Until the connection ends."""
        reason = "closed on our side"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stream.run_writer)
                try:
                    await self._receive()
                except (ConnectionLost, WireError) as error:
                    reason = str(error)
                nursery.cancel_scope.cancel()
        finally:
            self._fail(f"bookie {self.bookie_id}: {reason}")
            await self._stream.aclose()

    async def _receive(self) -> None:
        received = frames.answers()
        while data := await self._stream.receive():
            completions: list[Completion] = []
            try:
                for number, answer, _ in received.feed(data):
                    if isinstance(answer, frames.Added):
                        completions += self._answered(
                            number, answer.first_entry_id, answer.entries, None
                        )
                    elif isinstance(answer, frames.AddFailed):
                        error = frames.error_of(answer.kind, answer.text)
                        completions += self._answered(
                            number, answer.first_entry_id, answer.entries, error
                        )
                    elif (promise := self._calls.pop(number, None)) is not None:
                        promise.resolve(answer)
            finally:
                complete(completions)
        raise ConnectionLost(f"{self._stream.name}: the bookie closed the connection")

    def _answered(
        self, number: int, first: int, entries: int, error: BookkeeperError | None
    ) -> list[Completion]:
        run = self._runs.get(number)
        if run is None or not 0 < entries <= run.entries:
            raise WireError(f"add {number} has no {entries} entries without an answer")
        run.entries -= entries
        if not run.entries:
            del self._runs[number]
            self._unanswered_bytes -= run.bytes
        # The parts of a run come in order.
        run.first_entry_id = first + entries
        return [Completion(run.done, first, entries, error)]

    def _fail(self, reason: str) -> None:
        self._lost = reason
        runs, self._runs = self._runs, {}
        calls, self._calls = self._calls, {}
        error = BookieUnavailable(reason)
        complete(
            [Completion(run.done, run.first_entry_id, run.entries, error) for run in runs.values()]
        )
        for promise in calls.values():
            promise.reject(error)

    def add(
        self,
        ledger_id: int,
        master_key: bytes,
        first_entry_id: int,
        packets: Sequence[bytes],
        done: AddDone,
        *,
        recovery: bool = False,
    ) -> None:
        """See `BookiePort.add`."""
        entries, size = len(packets), sum(map(len, packets))
        refusal = self._refusal(ledger_id, master_key, first_entry_id, entries, size)
        if refusal is not None or not entries:
            self._complete_later(Completion(done, first_entry_id, entries, refusal))
            return
        self._number += 1
        self._runs[self._number] = _Run(done, first_entry_id, entries, size)
        self._unanswered_bytes += size
        kept = packets if isinstance(packets, list) else list(packets)
        add = frames.Add(ledger_id, master_key, first_entry_id, kept, recovery)
        self._stream.write(encode(self._number, add))

    def _refusal(
        self, ledger_id: int, master_key: bytes, first_entry_id: int, entries: int, size: int
    ) -> BookkeeperError | None:
        try:
            check_ledger(ledger_id, master_key)
            check_add(ledger_id, first_entry_id, entries, size)
        except IncorrectParameter as error:
            return error
        if self._lost is not None:
            return BookieUnavailable(self._lost)
        if self._runs and self._unanswered_bytes + size > self._unanswered_bytes_max:
            return TooManyRequests(f"{self._unanswered_bytes} bytes of adds wait for their answers")
        return None

    def _complete_later(self, completion: Completion) -> None:
        """Call back in the scheduler's next turn."""
        if not self._later:
            trio.lowlevel.current_trio_token().run_sync_soon(self._complete_those)
        self._later.append(completion)

    def _complete_those(self) -> None:
        completions, self._later = self._later, []
        complete(completions)

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        """See `BookiePort.read`."""
        check_read(ledger_id, first_entry_id)
        request = frames.Read(ledger_id, first_entry_id, entries_max, bytes_max)
        answer = await self._call(request)
        assert isinstance(answer, frames.Packets)
        return answer.packets

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        """See `BookiePort.fence`."""
        check_ledger(ledger_id, master_key)
        return _lac(await self._call(frames.Fence(ledger_id, master_key)))

    async def read_lac(self, ledger_id: int) -> LacAnswer:
        """See `BookiePort.read_lac`."""
        check_ledger(ledger_id)
        return _lac(await self._call(frames.ReadLac(ledger_id)))

    async def write_lac(self, ledger_id: int, master_key: bytes, lac: int, packet: bytes) -> None:
        """See `BookiePort.write_lac`."""
        check_ledger(ledger_id, master_key)
        check_lac(ledger_id, lac, packet)
        await self._call(frames.WriteLac(ledger_id, master_key, lac, packet))

    async def last_entry(self, ledger_id: int) -> bytes:
        """See `BookiePort.last_entry`."""
        check_ledger(ledger_id)
        answer = await self._call(frames.LastEntry(ledger_id))
        assert isinstance(answer, frames.Packets)
        return answer.packets[0]

    async def wait_entry(
        self, ledger_id: int, entry_id: int, previous_lac: int
    ) -> tuple[bytes | None, int]:
        """See `BookiePort.wait_entry`."""
        check_read(ledger_id, entry_id)
        if not -1 <= previous_lac <= ID_MAX:
            raise IncorrectParameter(f"{previous_lac} can't be a ledger's last confirmed entry")
        answer = await self._call(frames.WaitEntry(ledger_id, entry_id, previous_lac))
        assert isinstance(answer, frames.Waited)
        return answer.packet, answer.lac

    async def force(self, ledger_id: int) -> None:
        """See `BookiePort.force`."""
        check_ledger(ledger_id)
        await self._call(frames.Force(ledger_id))

    async def list_entries(self, ledger_id: int) -> list[int]:
        """See `BookiePort.list_entries`."""
        check_ledger(ledger_id)
        answer = await self._call(frames.ListEntries(ledger_id))
        assert isinstance(answer, frames.Ids)
        return answer.ids

    async def info(self) -> BookieInfo:
        """See `BookiePort.info`."""
        answer = await self._call(frames.Info())
        assert isinstance(answer, frames.Space)
        return BookieInfo(answer.total_bytes, answer.free_bytes, answer.read_only)

    async def _call(self, request: frames.Call) -> frames.Result:
        if self._lost is not None:
            await trio.lowlevel.checkpoint()
            raise BookieUnavailable(self._lost)
        if len(self._calls) >= CALLS_MAX:
            await trio.lowlevel.checkpoint()
            raise TooManyRequests(f"{CALLS_MAX} requests wait for their answers")
        self._number += 1
        number = self._number
        promise: Promise[frames.Result] = Promise()
        self._calls[number] = promise
        self._stream.write(encode(number, request))
        try:
            answer = await promise.wait()
        finally:
            if self._calls.pop(number, None) is not None:  # cancelled
                self._stream.write(encode(number, frames.Cancel()))
        if isinstance(answer, frames.Refused):
            raise frames.error_of(answer.kind, answer.text)
        return answer


def _lac(answer: frames.Result) -> LacAnswer:
    assert isinstance(answer, frames.Lac)
    return LacAnswer(answer.last_packet, answer.explicit_packet)
