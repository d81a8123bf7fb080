"""Messages and acknowledgements between the loop and the program's threads, many in one go.

The loop takes messages ahead of the program, at most half the receiver queue at once, and none
beyond the one asked for if that is small. When the loop throws away what was received and not taken
(lost connection, seek, redelivery), what was taken ahead goes with it.
"""

from __future__ import annotations

import logging
import math
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterator
from contextlib import suppress
from itertools import islice
from typing import TypeVar

import trio

from geminga._ack_runs import MessageOrId, Run, note_runs
from geminga._arguments import duration, positive_count
from geminga._entry import Entry, Source
from geminga._entry_reading import messages_of, parts_of, read_entries
from geminga._faces.calls import Session
from geminga.consumer import Consumer
from geminga.errors import GemingaError
from geminga.message import Message
from geminga.received_entry import ReceivedEntry
from geminga_runtime.waiters import Promise

T = TypeVar("T")
Ahead = TypeVar("Ahead", Message, ReceivedEntry)
logger = logging.getLogger("geminga")

AHEAD_MAX = 1000
"""Most messages that are taken ahead in one go."""
BYTES_AHEAD_MAX = 10 * 1024 * 1024
"""And most bytes of them."""

Discarded = tuple[Source, Container[tuple[int, int]] | None]


class Receiver:
    """What one consumer's messages pass on their way to the program, and its acknowledgements on
    their way back (bounded by the messages that were received).
    """

    def __init__(self, session: Session, consumer: Consumer, *, for_listener: bool = False) -> None:
        """Beside a message listener only its own workers may receive."""
        self.session = session
        self.consumer = consumer
        self._for_listener = for_listener
        self._portal = session.portal
        self._local: deque[Message] = deque()
        self.pops: Iterator[Message] = iter(self._local.popleft, None)
        """Taking by iteration: no signal handler can run between taking and returning, so that
        KeyboardInterrupt loses nothing. Raises IndexError when there is nothing."""
        self._entries: deque[ReceivedEntry] = deque()
        """Whole entries on their way to a reader's program, behind the messages taken ahead."""
        self._entry_pops: Iterator[ReceivedEntry] = iter(self._entries.popleft, None)
        self._are_few_bytes = True
        """Whether what was taken ahead has no more than BYTES_AHEAD_MAX, or is one message."""
        self.is_stale = False
        """Whether what was taken ahead must be looked at first, or this is a copy in a child
        process.
        """
        self._checked: Entry | None = None
        """The entry whose message was acknowledged last, which is known to be this consumer's."""
        self._discarded: list[Discarded] = []
        self._acks: deque[MessageOrId] = deque()
        self._ack_runs: deque[Run] = deque()
        self._read: Message | None = None
        self._is_signalled = False
        self.waits_for_receipts = consumer._subscription.options.ack_receipt_enabled
        """Whether an acknowledgement is done only when the broker has answered."""
        self._ahead_max = max(1, min(AHEAD_MAX, consumer._subscription.queue_size // 2))
        if consumer._subscription.options.ack_timeout_s:
            # The time to acknowledge a message runs from when it is taken.
            self._ahead_max = 1
        consumer._inbox.on_discard = self._on_discard
        session.portal.forkables.add(self)

    def after_fork(self) -> None:
        """In the child: nothing is taken from here any more, and the next call tells why."""
        self.is_stale = True
        self._is_signalled = False

    # ---- in the program's threads ----

    def take(self) -> Message | None:
        """The next message if one was taken ahead. Raises ForkedClient."""
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
        """Those taken ahead, up to both limits, but one in any case if there is one."""
        taken: list[Message] = []
        if self.is_stale:
            self._check_fork()
            return taken
        append = taken.append
        try:
            if self._are_few_bytes and bytes_max >= BYTES_AHEAD_MAX:
                # In one go, and by iteration again; what came before the end stays.
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

    def take_entries(self, bytes_max: float) -> list[ReceivedEntry]:
        """Those on their way, up to that many bytes, but one in any case if there is one. What was
        taken ahead message by message comes before, as parts of entries.
        """
        if self._local or self.is_stale:
            return parts_of(self.take_many(sys.maxsize, bytes_max))
        taken: list[ReceivedEntry] = []
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
        """Everything received is to come again: what was taken ahead is looked at before any of it
        is handed out.
        """
        self.is_stale = True

    def check(self, message: MessageOrId) -> None:
        """Raises InvalidArgument if the message isn't of this consumer."""
        self.consumer._part_of(message)

    def acknowledge(self, message: MessageOrId) -> None:
        """Hand an acknowledgement over. Raises InvalidArgument and ForkedClient."""
        if not isinstance(message, Message) or message._entry is not self._checked:
            self._check_once(message)
        self._acks.append(message)
        if not self._is_signalled:
            self._signal()

    def _check_once(self, message: MessageOrId) -> None:
        self.check(message)
        if isinstance(message, Message):
            self._checked = message._entry

    def acknowledge_runs(self, runs: list[Run]) -> None:
        """Hand many over, as `Consumer._runs` has put them together. Raises ForkedClient."""
        self._ack_runs.extend(runs)
        if runs and (not self._is_signalled or self._portal.is_forked):
            self._signal()

    def acknowledge_read(self, message: Message) -> None:
        """A reader has come to that message; only the newest counts."""
        self._read = message
        self._signal()

    def _signal(self) -> None:
        portal = self._portal
        if portal.is_forked:
            portal.refuse()
        if not self._is_signalled:
            self._is_signalled = True
            try:
                portal.post(self._drain)
            except BaseException:
                self._is_signalled = False
                raise

    # ---- in the loop ----

    def _on_discard(self, source: Source, positions: Container[tuple[int, int]] | None) -> None:
        self._discarded.append((source, positions))
        self.is_stale = True

    def _forget_discarded(self) -> None:
        """Leave out of what was taken ahead what the loop has thrown away since."""
        self.is_stale = False
        discarded, self._discarded = self._discarded, []
        if not discarded:
            return
        _leave_out(self._local, lambda message: message._entry, discarded)
        _leave_out(self._entries, lambda received: received._entry, discarded)

    def _drain(self) -> None:
        self._is_signalled = False
        self.hand_acks_over()

    def hand_acks_over(self) -> None:
        """Acknowledge all that was handed over before, at once: nothing that is asked of the Trio
        consumer later comes before it.
        """
        try:
            read, self._read = self._read, None
            if read is not None:
                part = self.consumer._part_of(read)
                part.acknowledger.acknowledge_cumulative(read.message_id)
        except GemingaError as error:
            logger.warning("acknowledging: %s", error)
        acks, waiting = self._acks, self._ack_runs
        if acks:
            note_runs(self._runs([acks.popleft() for _ in range(len(acks))]))
        if waiting:
            note_runs([waiting.popleft() for _ in range(len(waiting))])

    def _runs(self, messages: list[MessageOrId]) -> list[Run]:
        """Without those that can't be acknowledged any more."""
        try:
            return self.consumer._runs(messages)
        except GemingaError as error:
            logger.warning("acknowledging: %s", error)
        runs: list[Run] = []
        for message in messages:
            with suppress(GemingaError):
                runs += self.consumer._runs([message])
        return runs

    def note(self, runs: list[Run], groups: list[Promise[None] | None]) -> None:
        """Acknowledge these, behind what was handed over before; the groups whose receipts are to
        be waited for are added.
        """
        self.hand_acks_over()
        note_runs(runs)
        groups += [part.acknowledger.group for part in {part: None for part, _, _ in runs}]

    @staticmethod
    async def receipts_of(groups: list[Promise[None] | None]) -> None:
        """Until the broker has answered these groups. Raises what it says."""
        await trio.lowlevel.checkpoint()
        for group in groups:
            if group is not None:
                await group.wait()

    async def fill(self, messages_max: int, timeout_s: float | None) -> None:
        """Wait for messages and take them ahead: those asked for, or half a queue; none if none
        came in time. Raises what Consumer.receive raises.
        """
        self.hand_acks_over()
        self._forget_discarded()
        if self._local:
            await trio.lowlevel.checkpoint()
            return
        if self._entries:
            # A call that was given up has left them.
            await trio.lowlevel.checkpoint()
            self._are_few_bytes = False
            for received in self.take_entries(math.inf):
                self._local.extend(messages_of(received))
            return
        if not self._for_listener:
            self.consumer._refuse_beside_listener()
        messages = await self.consumer._receiving.receive_some(
            max(messages_max, self._ahead_max), BYTES_AHEAD_MAX, timeout_s
        )
        # No checkpoint since they were taken: cancellation loses none. What was thrown away while
        # waiting was received before them.
        self._forget_discarded()
        self._are_few_bytes = not self._local
        self._local.extend(messages)

    async def fill_entries(self, bytes_max: float, timeout_s: float | None) -> None:
        """Wait for entries and hand them over whole; none if none came in time. Raises what
        Reader.read_entries raises otherwise.
        """
        self.hand_acks_over()
        self._forget_discarded()
        if self._local or self._entries:
            await trio.lowlevel.checkpoint()
            return
        entries = await read_entries(self.consumer, bytes_max, timeout_s)
        # No checkpoint since they were taken: cancellation loses none.
        self._forget_discarded()
        self._entries.extend(entries)

    async def fill_batch(self) -> None:
        """Wait for as many messages as `batch_receive_policy` says, together with those that were
        taken ahead. Raises what Consumer.batch_receive raises.
        """
        messages_max, bytes_max, timeout_s = self.consumer._batch_limits()
        self.hand_acks_over()
        self._forget_discarded()
        ahead = list(self._local)
        messages_max -= len(ahead)
        bytes_max -= sum(message._entry.size_of(message._index) for message in ahead)
        if messages_max > 0 and bytes_max > 0:
            messages = await self.consumer._receiving.receive_batch(
                messages_max, bytes_max, timeout_s
            )
            self._forget_discarded()
            self._are_few_bytes = False
            self._local.extend(messages)

    async def ask(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function once all acknowledgements are with the Trio consumer."""
        self.hand_acks_over()
        return await function()

    def redeliver(self) -> None:
        """As Consumer.redeliver_unacknowledged_messages."""
        self.hand_acks_over()
        self.consumer.redeliver_unacknowledged_messages()

    def negative_acknowledge(self, message: MessageOrId) -> None:
        """As Consumer.negative_acknowledge."""
        self.hand_acks_over()
        try:
            self.consumer.negative_acknowledge(message)
        except GemingaError as error:
            logger.warning("refusing a message: %s", error)

    async def has_message_available(self) -> bool:
        """As Consumer.has_message_available."""
        self._forget_discarded()
        if self._local or self._entries:
            await trio.lowlevel.checkpoint()
            return True
        return await self.consumer.has_message_available()

    async def aclose(self) -> None:
        """As Consumer.aclose. What was taken ahead is given back."""
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


def check_limits(messages_max: int, bytes_max: int, timeout_s: float | None) -> None:
    """Raises InvalidArgument."""
    positive_count(messages_max, "messages_max")
    positive_count(bytes_max, "bytes_max")
    if timeout_s is not None:
        duration(timeout_s, "timeout_s")
