"""Passes messages from the loop to the program's threads, many at a time.

The loop prefetches messages for the program, at most half the receiver queue at once, and only the
requested one if the queue is small. If the loop drops received messages (lost connection, seek,
redelivery), prefetched ones are dropped, too.
"""

from __future__ import annotations

import logging
import math
import sys
from collections import deque
from collections.abc import Callable, Container, Iterator
from itertools import islice
from typing import TypeVar

import trio

from geminga._bridge.acknowledging import AckSender
from geminga._bridge.calls import ClientSession
from geminga._consuming.entry_reading import messages_of, parts_of, read_batches
from geminga._consuming.receiving import BatchLimits
from geminga._entries.entry import Entry, Source
from geminga.consumer import Consumer
from geminga.entry_batch import EntryBatch
from geminga.errors import AlreadyClosedError
from geminga.message import Message

T = TypeVar("T")
Ahead = TypeVar("Ahead", Message, EntryBatch)
logger = logging.getLogger("geminga")

AHEAD_MAX = 1000
"""Bound of the messages of one prefetch."""
BYTES_AHEAD_MAX = 10 * 1024 * 1024
"""Bound of the bytes of one prefetch."""

Discarded = tuple[Source, Container[tuple[int, int]] | None]


class Receiver(AckSender):
    """Passes one consumer's messages to the program, and its acknowledgements back."""

    def __init__(
        self, session: ClientSession, consumer: Consumer, *, for_listener: bool = False
    ) -> None:
        """With a message listener, only its workers may receive."""
        super().__init__(session, consumer)
        self._for_listener = for_listener
        self._local: deque[Message] = deque()
        self.pops: Iterator[Message] = iter(self._local.popleft, None)
        """Taking by iteration: no signal handler can run between taking and returning, so that
        KeyboardInterrupt loses no message. Raises IndexError if there is none."""
        self._entries: deque[EntryBatch] = deque()
        """Prefetched whole entries for a reader's program, after the prefetched messages."""
        self._entry_pops: Iterator[EntryBatch] = iter(self._entries.popleft, None)
        self._are_few_bytes = True
        """Whether the prefetched messages are within BYTES_AHEAD_MAX, or only one."""
        self.is_stale = False
        """Whether prefetched messages must be checked first, or this is a copy in a forked child.
        """
        self._discarded: list[Discarded] = []
        self._filling = trio.Lock()
        """One fill at a time: its messages are for all callers, and a caller that waits at the
        inbox meanwhile would not see them."""
        self._ahead_max = max(1, min(AHEAD_MAX, self.receiving.subscription.queue_size // 2))
        if self.receiving.subscription.options.ack_timeout_s:
            # No prefetch: a message's ack timeout begins when it is taken.
            self._ahead_max = 1
        self.receiving.inbox.on_discard = self._on_discard
        session.portal.forkables.add(self)

    def after_fork(self) -> None:
        """In the child: no message is taken any more, and the next call raises ForkError."""
        self.is_stale = True
        self._signalled_for = -1

    def loop_ended(self, error: AlreadyClosedError) -> None:
        """Prefetched messages may still be received; the next acknowledgement raises the error."""
        self._signalled_for = -1

    # ---- in the program's threads ----

    def take(self) -> Message | None:
        """The next prefetched message, or None. Raises ForkError."""
        if self.is_stale:
            self._check_fork()
            return None
        try:
            for message in self.pops:
                return message
        except IndexError:
            pass
        return None

    def take_many(self, messages_max: int, bytes_max: float) -> list[Message]:
        """Prefetched messages up to both limits, at least one if there is any."""
        taken: list[Message] = []
        if self.is_stale:
            self._check_fork()
            return taken
        append = taken.append
        try:
            if self._are_few_bytes and bytes_max >= BYTES_AHEAD_MAX:
                # At once, and by iteration again; messages taken before its end are kept.
                taken.extend(islice(self.pops, messages_max))
                return taken
            for message in self.pops:
                append(message)
                bytes_max -= message._entry.size_of(message._index)
                if bytes_max < 0 and len(taken) > 1:
                    self._local.appendleft(taken.pop())
                    break
                if len(taken) >= messages_max:
                    break
        except IndexError:
            pass
        except BaseException:
            self._local.extendleft(reversed(taken))
            raise
        return taken

    def take_entries(self, bytes_max: float) -> list[EntryBatch]:
        """Prefetched entries up to that many bytes, at least one if there is any. Prefetched
        single messages come first, as parts of entries.
        """
        if self._local or self.is_stale:
            return parts_of(self.take_many(sys.maxsize, bytes_max))
        taken: list[EntryBatch] = []
        try:
            for entry in self._entry_pops:
                taken.append(entry)
                if bytes_max != math.inf:
                    bytes_max -= entry.size_bytes
                    if bytes_max < 0 and len(taken) > 1:
                        self._entries.appendleft(taken.pop())
                        break
        except IndexError:
            pass
        except BaseException:
            self._entries.extendleft(reversed(taken))
            raise
        return taken

    def _check_fork(self) -> None:
        if self._portal.is_forked:
            self._portal.refuse()

    def forget(self) -> None:
        """All received messages are to be redelivered: check prefetched ones before the next is
        taken.
        """
        self.is_stale = True

    # ---- in the loop ----

    def _on_discard(self, source: Source, positions: Container[tuple[int, int]] | None) -> None:
        self._discarded.append((source, positions))
        self.is_stale = True

    def _forget_discarded(self) -> None:
        """Drop prefetched messages that the loop has dropped since."""
        self.is_stale = False
        discarded, self._discarded = self._discarded, []
        if not discarded:
            return
        _leave_out(self._local, lambda message: message._entry, discarded)
        _leave_out(self._entries, lambda received: received._entry, discarded)

    async def fill(self, messages_max: int, timeout_s: float | None) -> None:
        """Wait for messages and prefetch them, up to the requested number or half a queue; none
        after the timeout. Raises the errors of Consumer.receive.
        """
        left_s = await self._begin_filling(timeout_s)
        if left_s is None:
            return
        try:
            await self._fill_alone(messages_max, left_s)
        finally:
            self._filling.release()

    async def _begin_filling(self, timeout_s: float | None) -> float | None:
        """Wait until no other fill runs; returns the time left, None if there is none."""
        self.hand_acks_over()
        left_s = math.inf if timeout_s is None else timeout_s
        try:
            self._filling.acquire_nowait()
        except trio.WouldBlock:
            started_s = trio.current_time()
            with trio.move_on_after(left_s) as waiting:
                await self._filling.acquire()
            if waiting.cancelled_caught:
                return None
            left_s = max(0.0, left_s - (trio.current_time() - started_s))
        self._forget_discarded()
        return left_s

    async def _fill_alone(self, messages_max: int, timeout_s: float) -> None:
        if self._local:
            await trio.lowlevel.checkpoint()
            return
        if self._entries:
            # An abandoned call has left messages.
            await trio.lowlevel.checkpoint()
            self._are_few_bytes = False
            for received in self.take_entries(math.inf):
                self._local.extend(messages_of(received))
            return
        if not self._for_listener:
            self.receiving.refuse_beside_listener()
        messages = await self.receiving.receive_some(
            max(messages_max, self._ahead_max),
            BYTES_AHEAD_MAX,
            timeout_s,
        )
        # No checkpoint since they were taken: cancellation loses none. Messages dropped during the
        # wait were received before them.
        self._forget_discarded()
        self._are_few_bytes = not self._local
        self._local.extend(messages)

    async def fill_entries(self, bytes_max: float, timeout_s: float | None) -> None:
        """Wait for entries and prefetch them whole; none after the timeout. Raises other errors of
        Reader.read_batches.
        """
        left_s = await self._begin_filling(timeout_s)
        if left_s is None:
            return
        try:
            if self._local or self._entries:
                await trio.lowlevel.checkpoint()
                return
            entries = await read_batches(self.receiving, bytes_max, left_s)
            # No checkpoint since they were taken: cancellation loses none.
            self._forget_discarded()
            self._entries.extend(entries)
        finally:
            self._filling.release()

    async def fill_batch(self, limits: BatchLimits) -> None:
        """Wait until `batch_receive_policy` is fulfilled, counting prefetched messages. Raises the
        errors of Consumer.receive_batch.
        """
        messages_max, bytes_max, wait_s, _ = limits
        self.hand_acks_over()
        self._forget_discarded()
        ahead = list(self._local)
        messages_max -= len(ahead)
        bytes_max -= sum(message._entry.size_of(message._index) for message in ahead)
        if messages_max > 0 and bytes_max > 0:
            messages = await self.receiving.receive_batch(messages_max, bytes_max, wait_s)
            self._forget_discarded()
            self._are_few_bytes = False
            self._local.extend(messages)

    async def has_message_available(self) -> bool:
        """As Consumer.has_message_available."""
        self._forget_discarded()
        if self._local or self._entries:
            await trio.lowlevel.checkpoint()
            return True
        return await self.consumer.has_message_available()

    async def aclose(self) -> None:
        """As Consumer.aclose. Prefetched messages are given back."""
        self.hand_acks_over()
        self._local.clear()
        self._entries.clear()
        await self.consumer.aclose()


def _leave_out(
    ahead: deque[Ahead], entry_of: Callable[[Ahead], Entry], discarded: list[Discarded]
) -> None:
    for _ in range(len(ahead)):
        try:
            each = ahead.popleft()
        except IndexError:
            # Another thread received it meanwhile.
            return
        entry = entry_of(each)
        position = entry.ledger_id, entry.entry_id
        if not any(
            source is entry.source and (positions is None or position in positions)
            for source, positions in discarded
        ):
            ahead.append(each)
