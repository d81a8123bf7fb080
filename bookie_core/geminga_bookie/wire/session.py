"""One client's connection to our bookie.

All frames of one read from the socket are handled in one pass: neighbouring adds of a ledger go
down as one run, neighbouring reads as one range. The client speaks v3 or v2, which its first frame
tells.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter

import trio

from geminga_bookie.errors import BookkeeperError
from geminga_bookie.port import BookiePort
from geminga_bookie.wire.answers import Answers
from geminga_bookie.wire.auth import BookieAuth
from geminga_bookie.wire.gate import FRAME_BYTES_MAX as UNAUTHENTICATED_FRAME_BYTES_MAX
from geminga_bookie.wire.gate import Gate
from geminga_bookie.wire.session_limits import SessionLimits, Shared
from geminga_bookie.wire.speech import Add, Aside, Read, Speech, WaitFor
from geminga_bookie.wire.speech_v2 import SpeechV2
from geminga_bookie.wire.speech_v3 import SpeechV3
from geminga_bookie.wire.unfinished import FrameReceiver
from geminga_bookie.wire.waiting import EntryWait, Holder
from geminga_protocol.bookkeeper.framing import LENGTH_BYTES, WireError
from geminga_protocol.pb.bookkeeper_protocol_pb2 import StatusCode
from geminga_runtime.stream import FramedStream

_log = logging.getLogger(__name__)

READS_AT_ONCE = 8
"""Reads of one connection whose answers are in memory, beside those that wait to be sent."""

FOUND_WAIT_S = 1.0
"""Bound of a wait that should be over already."""

_V3_BEGIN = 0x0A
"""The first byte of each v3 request: its header. In v2 it is the version."""


class BookieSession:
    """Reads requests while what is not answered is within the bounds."""

    def __init__(
        self,
        bookie: BookiePort,
        stream: FramedStream,
        limits: SessionLimits,
        shared: Shared,
        *,
        offers_tls: bool = False,
        auth: BookieAuth | None = None,
    ) -> None:
        self.plain: trio.abc.Stream | None = None
        """What the handshake is to be made on, if `run` ended since the client asked for TLS."""
        self._offers_tls = offers_tls
        self._asks_tls = False
        self._bookie = bookie
        self._stream = stream
        self._limits = limits
        self._shared = shared
        self._metrics = shared.metrics
        self._speech: Speech | None = None
        self._bytes = 0
        self._requests = 0
        self._answered = trio.Event()
        self._queue: deque[tuple[int, Callable[[], Awaitable[object]]]] = deque()
        """What has not begun: how many requests it is, and what serves them."""
        self._workers = 0
        self._holder = Holder()
        self._gate = Gate(auth, stream)
        self._answers = Answers(
            stream, shared.answers,
            write_timeout_s=limits.write_timeout_s, drop_after_s=limits.drop_after_s,
        )  # fmt: skip
        # The longest answer to one request, as read from the disk.
        self._answer_bytes = max(limits.read_bytes_max, limits.frame_bytes_max)

    async def run(self) -> None:
        """Serve until the client goes, asks for TLS, or can't be trusted."""
        frame_bytes_max = self._limits.frame_bytes_max
        if not self._gate.is_open:
            frame_bytes_max = min(frame_bytes_max, UNAUTHENTICATED_FRAME_BYTES_MAX)
        frames, may_wait = self._shared.frames, self._gate.is_open
        receiver = FrameReceiver(self._stream, frame_bytes_max, frames, may_wait=may_wait)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stream.run_writer)
                if not self._gate.is_open:
                    nursery.start_soon(self._gate.close_when_late, nursery.cancel_scope)
                try:
                    await self._serve(receiver, nursery)
                except WireError as error:
                    _log.warning("%s: closed: %s", self._stream.name, error)
                nursery.cancel_scope.cancel()
        finally:
            receiver.close()
            self._answers.leave()
            self._shared.waits.leave(self._holder)

    async def _serve(self, receiver: FrameReceiver, nursery: trio.Nursery) -> None:
        while (received := await receiver.receive()) is not None:
            buffer, bounds = received
            at, end = 0, len(bounds) - 1
            while at < end:
                if not self._gate.is_open:
                    at = await self._handle_unauthenticated(receiver, buffer, bounds, at)
                elif at:
                    # The rest of a read with more requests than are parsed at once.
                    async with self._shared.turns:
                        at = self._handle(buffer, bounds, at, nursery)
                        await trio.lowlevel.checkpoint()
                else:
                    at = self._handle(buffer, bounds, at, nursery)
                if self._asks_tls:
                    if at < end or receiver.held_bytes:
                        # Not by whom the certificate will name.
                        raise WireError("bytes behind the request for TLS")
                    self.plain = await self._stream.detach()
                    return
                await self._room()

    async def _room(self) -> None:
        """Wait until more may be read: the client's requests, and what it has not taken yet, are
        within the bounds.
        """
        budget = self._shared.budget
        if not self._is_within() or budget.bytes >= budget.bytes_max:
            metrics, began_s = self._metrics, perf_counter()
            metrics.blocked += 1
            try:
                while not self._is_within():
                    await self._answered.wait()
                await budget.room()
            finally:
                metrics.blocked -= 1
                metrics.blocked_waits.add(perf_counter() - began_s)
        await self._answers.writable()

    def _is_within(self) -> bool:
        limits = self._limits
        return (
            self._bytes < limits.unanswered_bytes_max
            and self._requests < limits.unanswered_requests_max
            and len(self._queue) < limits.queued_requests_max
        )

    def _spoken(self, buffer: bytes, bounds: Sequence[int]) -> Speech:
        """The version of the protocol, by the first frame."""
        if self._speech is None:
            is_v3 = bounds[1] > LENGTH_BYTES and buffer[LENGTH_BYTES] == _V3_BEGIN
            self._speech = SpeechV3() if is_v3 else SpeechV2(self._limits.frame_bytes_max)
        return self._speech

    async def _handle_unauthenticated(
        self, receiver: FrameReceiver, buffer: bytes, bounds: Sequence[int], at: int
    ) -> int:
        """One frame; returns the next one. Raises WireError."""
        speech = self._spoken(buffer, bounds)
        (request,), behind = speech.requests(buffer, bounds[: at + 2], at)
        if isinstance(request, Aside) and request.starts_tls and self._offers_tls:
            self._asks_tls = True
            self._stream.write(*request.accept_tls())
        else:
            await self._gate.answer(speech, request)
            if self._gate.is_open:
                receiver.allow(self._limits.frame_bytes_max)
            await trio.lowlevel.checkpoint()
        return behind

    def _handle(self, buffer: bytes, bounds: Sequence[int], at: int, nursery: trio.Nursery) -> int:
        """Requests of one read from frame `at` on; returns the frame to go on with. Raises
        WireError.
        """
        speech, began_s = self._spoken(buffer, bounds), perf_counter()
        requests, behind = speech.requests(buffer, bounds, at)
        for request in requests:
            if self._asks_tls:
                raise WireError("a request behind the one for TLS")
            if isinstance(request, Add):
                self._add(speech, request, began_s)
            elif isinstance(request, Read):
                serve = partial(self._read, speech, request, began_s)
                self._begin(nursery, len(request.tags), serve)
            elif request.starts_tls and self._offers_tls:
                self._asks_tls = True
                self._stream.write(*request.accept_tls())
            elif request.wait is not None:
                self._park(nursery, request, request.wait, began_s)
            else:
                self._begin(nursery, 1, partial(self._answer, request, 0.0, began_s))
        return behind

    def _add(self, speech: Speech, run: Add, began_s: float) -> None:
        metrics, recovery = self._metrics, run.recovery
        size = sum(map(len, run.packets))
        left = len(run.packets)
        self._count(left, size)
        metrics.adds_begun += left
        first = run.first_entry_id

        def done(entry_id: int, count: int, error: BookkeeperError | None) -> None:
            nonlocal left, size
            left -= count
            freed = size if left <= 0 else size * count // (left + count)
            size -= freed
            at = entry_id - first
            tags = run.tags[at : at + count]
            if not (self._answers.drops and self._answers.is_dropped(count)):
                self._stream.write(speech.add_answers(run.ledger_id, entry_id, tags, error))
            self._count(-count, -freed)
            metrics.added(began_s, perf_counter(), count, freed, error, recovery=recovery)

        self._bookie.add(run.ledger_id, run.master_key, first, run.packets, done, recovery=recovery)

    def _count(self, requests: int, size: int = 0) -> None:
        self._requests += requests
        self._bytes += size
        if requests > 0:
            self._shared.budget.take(size)
            return
        self._shared.budget.release(-size)
        answered, self._answered = self._answered, trio.Event()
        answered.set()

    def _begin(
        self, nursery: trio.Nursery, requests: int, serve: Callable[[], Awaitable[object]]
    ) -> None:
        """Serve in turn; so many at a time have their answers in memory."""
        self._count(requests)
        self._queue.append((requests, serve))
        if self._workers < READS_AT_ONCE:
            self._workers += 1
            nursery.start_soon(self._work)

    async def _work(self) -> None:
        try:
            while self._queue:
                requests, serve = self._queue.popleft()
                try:
                    await self._shared.pace.begin()
                    await serve()
                finally:
                    self._count(-requests)
        finally:
            self._workers -= 1

    def _park(self, nursery: trio.Nursery, request: Aside, wait: WaitFor, began_s: float) -> None:
        """Let a read wait for an entry. They are bounded by refusing them: others must not wait for
        them.
        """
        holder, waits, limits = self._holder, self._shared.waits, self._limits

        def wake(is_there: bool) -> None:
            self._begin(nursery, 0, partial(self._answer_wait, request, is_there, began_s))

        def refuse() -> None:
            self._stream.write(*request.refuse())
            self._metrics.answered(request.name, perf_counter() - began_s, failed=True)

        timeout_s = min(wait.timeout_s, limits.wait_max_s)
        parked = EntryWait(wait.ledger_id, wait.previous_lac, wake, refuse)
        if holder.count >= limits.waiting_reads_max or not waits.add(parked, holder, timeout_s):
            refuse()

    async def _answer_wait(self, request: Aside, is_there: bool, began_s: float) -> None:
        try:
            await self._answer(request, FOUND_WAIT_S if is_there else 0.0, began_s)
        finally:
            self._shared.waits.answered(self._holder)

    async def _answer(self, request: Aside, wait_s: float, began_s: float) -> None:
        answers = self._answers
        if not await answers.may_answer(1):
            return
        reserved = await answers.reserve(self._answer_bytes, 1)
        if not reserved:
            return
        try:
            frames = await request.serve(self._bookie, wait_s)
            if await answers.may_answer(1):
                self._stream.write(*frames)
        finally:
            answers.give_back(reserved)
        failed = request.status != StatusCode.EOK
        if request.asks_last and request.status == StatusCode.ENOENTRY:
            self._metrics.last_entry_missing += 1
        self._metrics.answered(request.name, perf_counter() - began_s, failed=failed)

    async def _read(self, speech: Speech, run: Read, began_s: float) -> None:
        """Answer single reads of consecutive entries, as many at a time as fit."""
        at, count = 0, len(run.tags)
        self._metrics.reads_in_progress += count
        try:
            while at < count:
                if not await self._answers.may_answer(count - at):
                    return
                reserved = await self._answers.reserve(self._answer_bytes, count - at)
                if not reserved:
                    return
                try:
                    at += await self._read_some(speech, run, at, began_s)
                finally:
                    self._answers.give_back(reserved)
        finally:
            self._metrics.reads_in_progress -= count - at

    async def _read_some(self, speech: Speech, run: Read, at: int, began_s: float) -> int:
        """Answer some reads of a range, from `at` on; returns how many."""
        entry_id = run.first_entry_id + at
        asked_s = perf_counter()
        try:
            packets = await self._bookie.read(
                run.ledger_id,
                entry_id,
                entries_max=len(run.tags) - at,
                bytes_max=self._limits.read_bytes_max,
            )
        except BookkeeperError as error:
            frames = speech.read_failed(run.ledger_id, entry_id, run.tags[at], error)
            self._stream.write(*frames)
            now_s = perf_counter()
            self._metrics.read_failed(now_s - began_s, now_s - asked_s, error)
            return 1
        read_s = perf_counter() - asked_s
        tags = run.tags[at : at + len(packets)]
        self._stream.write(*speech.read_answers(run.ledger_id, entry_id, tags, packets))
        size = sum(map(len, packets))
        self._metrics.read(perf_counter() - began_s, read_s, len(packets), size)
        return len(packets)
