"""One client's connection to our bookie.

All frames of one read from the socket are handled in one pass: neighbouring adds of a ledger go
down as one run, neighbouring reads as one range. The client speaks v3 or v2, which its first frame
tells.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from geminga_bookie.errors import BookkeeperError
from geminga_bookie.port import BookiePort
from geminga_bookie.wire.session_limits import SessionLimits, SharedBudget
from geminga_bookie.wire.speech import Add, Aside, Read, Speech
from geminga_bookie.wire.speech_v2 import SpeechV2
from geminga_bookie.wire.speech_v3 import SpeechV3
from geminga_protocol.bookkeeper.framing import LENGTH_BYTES, FrameCutter, WireError
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.stream import FramedStream

_log = logging.getLogger(__name__)

READS_AT_ONCE = 8
"""Reads of one connection whose answers are in memory, beside those that wait to be sent."""

_V3_BEGIN = 0x0A
"""The first byte of each v3 request: its header. In v2 it is the version."""


class BookieSession:
    """Reads requests while what is not answered is within the bounds."""

    def __init__(
        self,
        bookie: BookiePort,
        stream: FramedStream,
        limits: SessionLimits,
        budget: SharedBudget,
        *,
        offers_tls: bool = False,
    ) -> None:
        self.plain: trio.abc.Stream | None = None
        """What the handshake is to be made on, if `run` ended since the client asked for TLS."""
        self._offers_tls = offers_tls
        self._asks_tls = False
        self._bookie = bookie
        self._stream = stream
        self._limits = limits
        self._budget = budget
        self._speech: Speech | None = None
        self._bytes = 0
        self._requests = 0
        self._waiting_reads = 0
        self._answered = trio.Event()
        self._reading = trio.CapacityLimiter(READS_AT_ONCE)

    async def run(self) -> None:
        """Serve until the client goes, asks for TLS, or can't be trusted."""
        cutter = FrameCutter(self._limits.frame_bytes_max)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stream.run_writer)
            try:
                while data := await self._stream.receive():
                    self._handle(*cutter.feed(data), nursery)
                    if cutter.failure is not None:
                        raise cutter.failure
                    if self._asks_tls:
                        if cutter.buffered:
                            raise WireError("bytes behind the request for TLS")
                        self.plain = await self._stream.detach()
                        break
                    await self._room()
            except WireError as error:
                _log.warning("%s: closed: %s", self._stream.name, error)
            nursery.cancel_scope.cancel()

    async def _room(self) -> None:
        """Wait until more may be read: the client's requests, and what it has not taken yet, are
        within the bounds.
        """
        limits = self._limits
        while (
            self._bytes >= limits.unanswered_bytes_max
            or self._requests >= limits.unanswered_requests_max
        ):
            await self._answered.wait()
        await self._budget.room()
        await self._writable()

    async def _writable(self) -> None:
        """Wait until the client takes answers. Raises ConnectionLost."""
        if self._stream.writable:
            return
        taken = trio.Event()
        self._stream.on_writable(taken.set)
        with trio.move_on_after(self._limits.write_timeout_s):
            await taken.wait()
            return
        self._stream.abort("the client takes no answers")
        raise ConnectionLost(f"{self._stream.name}: the client takes no answers")

    def _handle(self, buffer: bytes, bounds: Sequence[int], nursery: trio.Nursery) -> None:
        """All requests of one read. Raises WireError."""
        if len(bounds) == 1:
            return
        if self._speech is None:
            is_v3 = bounds[1] > LENGTH_BYTES and buffer[LENGTH_BYTES] == _V3_BEGIN
            self._speech = SpeechV3() if is_v3 else SpeechV2(self._limits.frame_bytes_max)
        speech = self._speech
        for request in speech.requests(buffer, bounds):
            if self._asks_tls:
                # Not by whom the certificate will name.
                raise WireError("a request behind the one for TLS")
            if isinstance(request, Add):
                self._add(speech, request)
            elif isinstance(request, Read):
                self._begin(nursery, len(request.tags), partial(self._read, speech, request))
            elif request.starts_tls and self._offers_tls:
                self._asks_tls = True
                self._stream.write(*request.accept_tls())
            else:
                self._aside(nursery, request)

    def _add(self, speech: Speech, run: Add) -> None:
        size = sum(map(len, run.packets))
        left = len(run.packets)
        self._count(left, size)
        first = run.first_entry_id

        def done(entry_id: int, count: int, error: BookkeeperError | None) -> None:
            nonlocal left, size
            left -= count
            freed = size if left <= 0 else size * count // (left + count)
            size -= freed
            at = entry_id - first
            tags = run.tags[at : at + count]
            self._stream.write(speech.add_answers(run.ledger_id, entry_id, tags, error))
            self._count(-count, -freed)

        self._bookie.add(
            run.ledger_id, run.master_key, first, run.packets, done, recovery=run.recovery
        )

    def _count(self, requests: int, size: int = 0) -> None:
        self._requests += requests
        self._bytes += size
        if requests > 0:
            self._budget.take(size)
            return
        self._budget.release(-size)
        answered, self._answered = self._answered, trio.Event()
        answered.set()

    def _begin(
        self, nursery: trio.Nursery, requests: int, serve: Callable[[], Awaitable[object]]
    ) -> None:
        self._count(requests)

        async def run() -> None:
            try:
                await serve()
            finally:
                self._count(-requests)

        nursery.start_soon(run)

    def _aside(self, nursery: trio.Nursery, request: Aside) -> None:
        """A request of its own kind. Those that wait for entries are bounded by refusing them:
        others must not wait for them.
        """
        if not request.waits:
            self._begin(nursery, 1, partial(self._answer_in_turn, request))
        elif self._waiting_reads >= self._limits.waiting_reads_max:
            self._stream.write(*request.refuse())
        else:
            self._waiting_reads += 1
            nursery.start_soon(self._wait, request)

    async def _wait(self, request: Aside) -> None:
        try:
            await self._answer(request)
        finally:
            self._waiting_reads -= 1

    async def _answer_in_turn(self, request: Aside) -> None:
        async with self._reading:
            await self._writable()
            await self._answer(request)

    async def _answer(self, request: Aside) -> None:
        frames = await request.serve(self._bookie, self._limits.wait_max_s)
        await self._writable()
        self._stream.write(*frames)

    async def _read(self, speech: Speech, run: Read) -> None:
        """Answer single reads of consecutive entries, as many at a time as fit."""
        at, count = 0, len(run.tags)
        while at < count:
            async with self._reading:
                await self._writable()
                at += await self._read_some(speech, run, at)

    async def _read_some(self, speech: Speech, run: Read, at: int) -> int:
        """Answer some reads of a range, from `at` on; returns how many."""
        entry_id = run.first_entry_id + at
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
            return 1
        tags = run.tags[at : at + len(packets)]
        self._stream.write(*speech.read_answers(run.ledger_id, entry_id, tags, packets))
        return len(packets)
