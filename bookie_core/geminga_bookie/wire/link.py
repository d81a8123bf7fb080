"""The connection to one bookie: opened by the first request, and by the next one after a loss.

All requests of a bookie share it, but for adds by v2, which have one of their own: a connection
speaks one version for ever. Transaction ids go on over losses.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from geminga_bookie.errors import (
    BookieUnavailable,
    BookkeeperError,
    TooManyRequests,
)
from geminga_bookie.port import Completion, complete
from geminga_bookie.wire.adds import AddLimits, AddRun, AddTable
from geminga_bookie.wire.late_answers import Expected, LateAnswers
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.status import error_of
from geminga_protocol.bookkeeper import v2, v3
from geminga_protocol.bookkeeper.framing import FrameCutter, WireError
from geminga_protocol.buffers import Buffer
from geminga_protocol.pb.bookkeeper_protocol_pb2 import ADD_ENTRY, EIO, EOK, Response
from geminga_runtime.backoff import Backoff
from geminga_runtime.errors import ConnectFailed, ConnectionLost
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Promise, Wakeup, own_copy

T = TypeVar("T")

Dial = Callable[[float], Awaitable[FramedStream]]
"""Opens a connection before a deadline, or raises ConnectFailed."""

Handler = Callable[[int, Response | BookkeeperError], None]
"""Gets the transaction id and its answer, or why there is none."""

RECOVERY_PRIORITY = v3.HIGH_PRIORITY


class BookieLink:
    """The owner runs `run` in a task; when that ends, all requests fail.

    Requests may come at any time: those before the connection is open wait for it. By v2 it takes
    adds only, with master keys of 20 bytes, and none for recovery.
    """

    def __init__(
        self, name: str, dial: Dial, options: RemoteOptions, *, by_v2: bool = False
    ) -> None:
        self._name = name
        self._by_v2 = by_v2
        self._dial = dial
        self._options = options
        self._adds = AddTable(
            AddLimits(
                options.unanswered_bytes_max,
                options.unanswered_entries_max,
                options.queued_bytes_max,
                options.queued_entries_max,
            )
        )
        self._handlers: dict[int, Handler] = {}
        self._unsent: dict[int, bytes] = {}
        self._next_txn = v3.TXN_FIRST
        self._stream: FramedStream | None = None
        self._unavailable: BookieUnavailable | None = None
        self._retry_at = -math.inf
        self._backoff = Backoff(options.backoff_s, options.backoff_max_s)
        self._wanted = Wakeup()
        self._has_adds = Wakeup()
        self._late = LateAnswers(name)
        self._later: list[Completion] = []
        self._progress = trio.Event()
        self._heard_at = -math.inf

    def add(self, run: AddRun) -> None:
        """Send the entries, or queue them; `done` is called in a later turn."""
        refusal: BookkeeperError | None = self._refusal()
        if refusal is None:
            refusal = self._adds.submit(run)
        if refusal is not None:
            self.complete_later(Completion(run.done, run.first_entry_id, run.entries, refusal))
            return
        self._has_adds.set()
        if self._stream is None:
            self._wanted.set()
        else:
            self._send_adds(self._stream)

    def complete_later(self, completion: Completion) -> None:
        """Call back in the scheduler's next turn."""
        if not self._later:
            trio.lowlevel.current_trio_token().run_sync_soon(self._complete_later)
        self._later.append(completion)

    def _complete_later(self) -> None:
        completions, self._later = self._later, []
        complete(completions)

    def _refusal(self) -> BookieUnavailable | None:
        """Why no request is taken: closed, or the last attempt to connect failed just now."""
        if self._unavailable is not None and trio.current_time() < self._retry_at:
            return own_copy(self._unavailable)
        return None

    def begin(self, count: int, encode: Callable[[int], bytes], handler: Handler) -> int:
        """Send requests with consecutive transaction ids, the first of which is returned. Raises
        BookieUnavailable, TooManyRequests.
        """
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        if len(self._handlers) + count > self._options.requests_max:
            raise TooManyRequests(f"{self._name}: {len(self._handlers)} requests wait for answers")
        txn = self._next_txn
        self._next_txn += count
        frames = encode(txn)
        self._handlers.update(dict.fromkeys(range(txn, txn + count), handler))
        if self._stream is None:
            self._unsent[txn] = frames
            self._wanted.set()
        else:
            self._stream.write(frames)
        return txn

    def forget(self, txn: int, count: int) -> None:
        """Nobody waits for the answers any more."""
        self._unsent.pop(txn, None)
        for each in range(txn, txn + count):
            self._handlers.pop(each, None)

    async def call(
        self, encode: Callable[[int], bytes], *, timeout_s: float | None = None
    ) -> Response:
        """Send one request and wait for its answer. Raises BookieUnavailable, TooManyRequests,
        RequestTimeout.
        """
        promise: Promise[Response] = Promise()

        def take(_txn: int, answer: Response | BookkeeperError) -> None:
            if isinstance(answer, BookkeeperError):
                promise.reject(answer)
            else:
                promise.resolve(answer)

        return await self.wait(promise, self.begin(1, encode, take), 1, timeout_s)

    async def wait(
        self, promise: Promise[T], txn: int, count: int, timeout_s: float | None = None
    ) -> T:
        """The result of requests that were just begun. Raises RequestTimeout, or what the promise
        was rejected with.
        """
        stream = self._stream
        sent_upto = 0 if stream is None else stream.sent_bytes + stream.pending_bytes
        limit_s = self._options.read_timeout_s if timeout_s is None else timeout_s
        self._late.expect(txn, Expected(promise.reject, limit_s, stream, sent_upto))
        try:
            return await promise.wait()
        finally:
            self._late.forget(txn)
            self.forget(txn, count)

    async def wait_for_adds(self, ledger_id: int) -> None:
        """Return when all earlier adds of the ledger are answered, or failed."""
        waiting = self._adds.runs_of(ledger_id)
        while any(run.left for run in waiting):
            await self._progress.wait()
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        """Connect when there are requests; for ever."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._expire_adds)
                nursery.start_soon(self._late.run)
                while True:
                    await self._wanted.wait()
                    if self._handlers or not self._adds.is_empty:
                        await self._connect_and_serve()
        finally:
            self._retry_at = math.inf
            self._fail_all(BookieUnavailable(f"{self._name}: closed on our side"))

    async def _connect_and_serve(self) -> None:
        now = trio.current_time()
        try:
            stream = await self._dial(now + self._options.connect_timeout_s)
        except ConnectFailed as error:
            now = trio.current_time()
            self._retry_at = now + self._backoff.next_s(now)
            self._fail_all(BookieUnavailable(str(error)))
            return
        reason = "closed on our side"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.run_writer)
                self._stream = stream
                for frames in self._unsent.values():
                    stream.write(frames)
                self._unsent.clear()
                self._send_adds(stream)
                try:
                    await self._receive(stream)
                except (ConnectionLost, WireError) as error:
                    reason = str(error)
                nursery.cancel_scope.cancel()
        finally:
            self._stream = None
            stream.abort(reason)
            # Its outcome is unknown to whoever waits: it may have been executed.
            self._fail_all(BookieUnavailable(f"{self._name}: {reason}"))
            await stream.aclose()

    def _send_adds(self, stream: FramedStream) -> None:
        while (run := self._adds.next_to_send(self._next_txn)) is not None:
            self._next_txn += run.entries
            if self._by_v2:
                frames = v2.encode_adds(run.master_key, run.packets)
            else:
                frames = _by_v3(run)
            run.packets = ()
            stream.write(*frames)
            run.sent_upto = stream.sent_bytes + stream.pending_bytes

    async def _receive(self, stream: FramedStream) -> None:
        cutter = FrameCutter(self._options.frame_bytes_max)
        self._heard_at = trio.current_time()
        while data := await stream.receive():
            self._heard_at = trio.current_time()
            frames = cutter.feed(data)
            if self._by_v2:
                self._take_adds(v2.decode_add_answers(*frames))
            else:
                self._take(v3.decode_answers(*frames))
            if cutter.failure is not None:
                raise cutter.failure
            self._send_adds(stream)
        raise ConnectionLost(f"{stream.name}: the bookie closed the connection")

    def _take_adds(self, answers: Sequence[v2.AddAnswers]) -> None:
        """Pass on the answers of one read. Those of adds that wait for none are passed over: of
        runs that were given up."""
        completions: list[Completion] = []
        for ledger_id, first_entry_id, entries, code in answers:
            error = None
            if code:
                error = error_of(v2.CODES.get(code, EIO), f"{self._name}: adding entries")
            for first_txn, count in self._adds.txns_of(ledger_id, first_entry_id, entries):
                completions += self._adds.answered(first_txn, count, error)
        if answers:
            self._backoff.reset()
        self._complete(completions)

    def _take(self, answers: Sequence[v3.Added | Response]) -> None:
        """Pass on the answers of one read. Raises WireError."""
        completions: list[Completion] = []
        refused = _Refused(self._name)
        try:
            for answer in answers:
                if isinstance(answer, v3.Added):
                    completions += refused.flush(self._adds)
                    self._check_sent(answer.first_txn, answer.entries)
                    completions += self._adds.answered(answer.first_txn, answer.entries)
                    continue
                txn = answer.header.txnId
                self._check_sent(txn, 1)
                if answer.header.operation == ADD_ENTRY:
                    completions += refused.add(self._adds, txn, answer)
                    continue
                handler = self._handlers.pop(txn, None)
                if handler is not None:
                    handler(txn, answer)
        finally:
            # Also behind a wrong answer: the table doesn't hold these entries any more.
            completions += refused.flush(self._adds)
            if answers:
                self._backoff.reset()
            self._complete(completions)

    def _check_sent(self, first_txn: int, count: int) -> None:
        if first_txn < v3.TXN_FIRST or first_txn + count > self._next_txn:
            raise WireError(f"the bookie answers request {first_txn}, which was never sent")

    def _complete(self, completions: Sequence[Completion]) -> None:
        if completions:
            complete(completions)
            progress, self._progress = self._progress, trio.Event()
            progress.set()

    async def _expire_adds(self) -> None:
        while True:
            await self._has_adds.wait()
            while (deadline := self._adds.deadline) is not None:
                await trio.sleep_until(deadline)
                completions, sent_upto = self._adds.expire(trio.current_time())
                stream = self._stream
                if completions and stream is not None:
                    silent_s = trio.current_time() - self._heard_at
                    if stream.sent_bytes < sent_upto or silent_s >= self._options.add_timeout_s:
                        # Perhaps only this connection is dead: the next request opens another.
                        stream.abort(f"nothing from the bookie for {silent_s:.1f} s")
                self._complete(completions)

    def _fail_all(self, error: BookieUnavailable) -> None:
        self._unavailable = error
        self._unsent.clear()
        handlers, self._handlers = self._handlers, {}
        completions = self._adds.fail_all(error)
        for txn, handler in handlers.items():
            handler(txn, error)
        self._complete(completions)


def _by_v3(run: AddRun) -> list[Buffer]:
    return v3.encode_adds(
        run.ledger_id,
        run.master_key,
        run.first_entry_id,
        run.packets,
        run.first_txn,
        recovery=run.recovery,
        priority=RECOVERY_PRIORITY if run.recovery else 0,
    )


class _Refused:
    """Neighbouring adds that were refused for one reason: they fail as one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first_txn = 0
        self._count = 0
        self._status = EOK

    def add(self, adds: AddTable, txn: int, answer: Response) -> list[Completion]:
        """One more; returns those before, if it isn't their neighbour."""
        status = answer.status if answer.status != EOK else answer.addResponse.status
        if self._count and status == self._status and txn == self._first_txn + self._count:
            self._count += 1
            return []
        completions = self.flush(adds)
        self._first_txn, self._count, self._status = txn, 1, status
        return completions

    def flush(self, adds: AddTable) -> list[Completion]:
        """What was collected."""
        if not self._count:
            return []
        count, self._count = self._count, 0
        error = error_of(self._status, f"{self._name}: adding entries")
        return adds.answered(self._first_txn, count, error)
