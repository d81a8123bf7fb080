"""What one producer has to send: the open batch and the frames in flight (spec SDK-01, SDK-04,
SDK-05, SDK-07, SDK-08). Pure: no sockets, no tasks; the clock comes in from outside.

    add -> open batch -> seal -> window (in order, until the receipt) -> done

The window is resent as it is whenever the producer is attached again, so order holds. `unsent` are
the frames that were sealed since the driver last took them.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

from geminga._entries.encode import Encoder, Extras
from geminga._producing.receipt import Outgoing, Receipt, leading_chunk
from geminga._producing.window import Window
from geminga.errors import GemingaError, OperationTimeoutError
from geminga.options import ProducerOptions

LONE_MIN = 8
"""Frames of one message in a row, after which a program is taken to send one at a time."""

Placed = tuple[Outgoing, int, int]
"""A frame, the index in it of the first of some messages, and how many they are."""


class Outbox(Window):
    """Batching and the window of frames in flight."""

    def __init__(
        self,
        options: ProducerOptions,
        encoder: Encoder,
        clock: Callable[[], float],
        settled: Callable[[Sequence[Outgoing], int, int], None],
    ) -> None:
        super().__init__(settled)
        self._encoder = encoder
        self._clock = clock
        self._batching = options.batching_enabled
        self._messages_max = options.batching_max_messages
        self._bytes_max = options.batching_max_bytes
        self.open_batch: Outgoing | None = None
        """The batch that still takes messages."""
        self.unsent: list[Outgoing] = []
        """Frames sealed since `take_unsent`, in order."""
        self.next_sequence_id = options.initial_sequence_id or 0
        self.last_sequence_id = self.next_sequence_id - 1
        self._is_numbered = options.initial_sequence_id is not None
        self._repeats_up_to = sys.maxsize if self._is_numbered else -1
        """Sequence ids that the broker may have already."""
        self.is_held = True
        """Until `begin`: neither the producer's name is known nor where its sequence ids begin."""
        self.sealed_batches = 0
        self._lone = 0
        """How many frames of one message each were sealed in a row."""

    @property
    def open_since_s(self) -> float | None:
        """When the open batch got its first message."""
        return None if self.open_batch is None else self.open_batch.created_s

    @property
    def oldest_since_s(self) -> float | None:
        """When the oldest pending message was added."""
        return self._window[0].created_s if self._window else self.open_since_s

    @property
    def is_lone(self) -> bool:
        """Whether nothing is in flight, and messages have been going one by one for a while: then
        the next needn't wait for others of the same turn. The first few do, so that programs that
        send from many tasks at once have their batches.
        """
        return self._lone >= LONE_MIN and not self._window

    def pending(self) -> list[Outgoing]:
        """All entries without receipt, those that still take messages too."""
        return [*self._window, *self._open_batches()]

    def add(self, data: bytes, extras: Extras | None, sequence_id: int | None) -> Receipt:
        """Take a message in; what becomes full or can't be batched is sealed."""
        batched = self._batching and (extras is None or extras.batchable)
        next_id = self.next_sequence_id
        if sequence_id is None:
            sequence_id = next_id
            self.next_sequence_id = next_id + 1
        else:
            self._is_numbered = True
            if sequence_id >= next_id:
                self.next_sequence_id = sequence_id + 1
            if sequence_id < next_id or self.is_held:
                batched = False
        if sequence_id <= self._repeats_up_to:
            # What the broker may have goes alone: it takes or drops whole batches, by their lowest
            # sequence id (isLastSequenceIdPotentialDuplicated of ProducerImpl).
            batched = False
        self.pending_messages += 1
        self.pending_bytes += len(data)
        if not batched and self.open_batch is None:
            return self._add_alone(data, extras, sequence_id)
        return self._add(data, extras, sequence_id, batched)

    def _add_alone(self, data: bytes, extras: Extras | None, sequence_id: int) -> Receipt:
        """What can't be batched, with nothing open before it."""
        size = len(data)
        if extras is None and not self.is_held:
            frame = self._encoder.single(sequence_id, data)
            if frame is not None:
                # As `_sealed` and `_encode`, without what only a message that waits needs.
                numbers = sequence_id, sequence_id
                alone = Outgoing(self._clock(), [], None, 1, size, *numbers, frame)
                self.sealed_batches += 1
                self._lone += 1
                self._window.append(alone)
                self.unsent.append(alone)
                return Receipt(alone, 0)
        alone = Outgoing(self._clock())
        alone.add(sequence_id, data, extras, size)
        self._sealed(alone)
        return Receipt(alone, 0)

    def _add(self, data: bytes, extras: Extras | None, sequence_id: int, batched: bool) -> Receipt:
        size = len(data)
        batch = self.open_batch
        if batch is not None and (not batched or batch.size_bytes + size > self._bytes_max):
            self.seal()
            batch = None
        if batch is None:
            batch = self.open_batch = Outgoing(self._clock())
        index = batch.add(sequence_id, data, extras, size)
        if not batched or index + 1 >= self._messages_max or batch.size_bytes >= self._bytes_max:
            self.seal()
        return Receipt(batch, index)

    def join(self, data: bytes) -> Receipt | None:
        """Add a message that has nothing but a payload to the open batch, which stays open; None if
        `add` has to.
        """
        batch = self.open_batch
        number = self.next_sequence_id
        if batch is None or number <= self._repeats_up_to:
            return None
        index = batch.count
        # As `Outgoing.takes`, without a call: this stands on the hot path.
        if batch.items is not None or number != batch.sequence_id + index:
            return None
        size = len(data)
        size_after = batch.size_bytes + size
        if index + 1 >= self._messages_max or size_after >= self._bytes_max:
            return None
        batch.payloads.append(data)
        batch.count = index + 1
        batch.size_bytes = size_after
        batch.highest_sequence_id = number
        self.next_sequence_id = number + 1
        self.pending_messages += 1
        self.pending_bytes += size
        return Receipt(batch, index)

    def add_run(self, payloads: Sequence[bytes]) -> list[Placed]:
        """The same as `add` for messages that have nothing but a payload, in far less time; answers
        nothing, and takes none, if they have to be added one by one.
        """
        if not self._batching or self.next_sequence_id <= self._repeats_up_to:
            return []
        placed: list[Placed] = []
        bytes_max = self._bytes_max
        at = 0
        while at < len(payloads):
            batch = self.open_batch
            if batch is None:
                batch = self.open_batch = Outgoing(self._clock())
            first, size_bytes = batch.count, batch.size_bytes
            taken = payloads[at : at + self._messages_max - first]
            ends = list(accumulate(map(len, taken), initial=size_bytes))
            # The message with which the batch has all the bytes that it may: if these are more, it
            # goes in the next one, but for the first of a batch.
            last = bisect_left(ends, bytes_max, 1)
            is_full = last < len(ends)
            if is_full:
                count = last if ends[last] == bytes_max or first + last == 1 else last - 1
                taken = taken[:count]
            if taken:
                placed.append((batch, first, len(taken)))
                at += len(taken)
                self._join_run(batch, taken, ends[len(taken)] - size_bytes)
            if is_full or batch.count >= self._messages_max:
                self.seal()
        return placed

    def _join_run(self, batch: Outgoing, payloads: Sequence[bytes], size_bytes: int) -> None:
        count = len(payloads)
        batch.add_run(self.next_sequence_id, payloads, size_bytes)
        self.next_sequence_id += count
        self.pending_messages += count
        self.pending_bytes += size_bytes

    def seal(self) -> None:
        """Close what is open and put it in the window. A batch too big fails its messages."""
        if self.open_batch is None:
            return
        for batch in self._take_open():
            self._sealed(batch)

    def _sealed(self, batch: Outgoing) -> None:
        self.sealed_batches += 1
        self._lone = self._lone + 1 if batch.count == 1 else 0
        if self.is_held:
            self._window.append(batch)
            self.unsent.append(batch)
        else:
            self._encode(batch)

    def _take_open(self) -> list[Outgoing]:
        """What is open, in the order in which it goes; nothing is then."""
        batch, self.open_batch = self.open_batch, None
        return [] if batch is None else [batch]

    def _encode(self, batch: Outgoing) -> None:
        try:
            leading = self._encoder.encode(batch)
        except GemingaError as error:
            self._settle(batch, error)
            return
        for frame in leading:
            chunk = leading_chunk(batch, frame)
            self._window.append(chunk)
            self.unsent.append(chunk)
        self._window.append(batch)
        self.unsent.append(batch)

    def take_unsent(self) -> list[Outgoing]:
        """Frames sealed since the last call, in order."""
        unsent = self.unsent
        if unsent:
            self.unsent = []
        return unsent

    def resend(self) -> list[Outgoing]:
        """All frames in flight, in order, for a fresh attachment."""
        self.unsent = []
        self._early.clear()
        return list(self._window)

    def begin(self, last_sequence_id: int) -> None:
        """The producer is attached; `last_sequence_id` is what the broker remembers of its name. It
        counts at the first time only, and if the program chose no sequence id itself.

        What was added before is encoded now, with sequence ids that follow.
        """
        if not self.is_held:
            return
        self.is_held = False
        self._repeats_up_to = last_sequence_id
        shift = 0 if self._is_numbered else last_sequence_id + 1
        if shift:
            self.last_sequence_id = last_sequence_id
            self.next_sequence_id += shift
        waiting = list(self._window)
        self._window.clear()
        self.unsent = []
        for batch in waiting:
            batch.shift(shift)
            self._encode(batch)
        # Not begun anew, so that the delay counts from its first message.
        for batch in self._open_batches():
            batch.shift(shift)

    def _open_batches(self) -> list[Outgoing]:
        return [] if self.open_batch is None else [self.open_batch]

    def expire(
        self, send_timeout_s: float, now_s: float, topic: str, refused: GemingaError | None = None
    ) -> int:
        """Once the oldest message is older than the timeout, fail all that are pending
        (ProducerImpl.run: later ones would overtake it); returns how many. The error tells what the
        broker refused them with.
        """
        since_s = self.oldest_since_s
        # Added, not subtracted: the alarm is set to that sum, and would ring for ever if rounding
        # made it too early here.
        if since_s is None or now_s < since_s + send_timeout_s:
            return 0
        count = self.pending_messages
        why = "" if refused is None else f"; the broker's last answer was {refused.code}: {refused}"
        text = f"no receipt within {send_timeout_s} s{why}"
        self.fail_all(OperationTimeoutError(text, topic=topic))
        return count

    def fail_all(self, error: GemingaError) -> None:
        """Fail every pending message, the oldest first."""
        failed = [*self._window, *self._take_open()]
        self._window.clear()
        self._early.clear()
        self.unsent = []
        for outgoing in failed:
            self._settle(outgoing, error)

    def abandon(self, error: GemingaError) -> None:
        """The same after the event loop has ended: no task of it is woken."""
        for outgoing in (*self._window, *self._take_open()):
            outgoing.forget_tasks()
            outgoing.settle(error)
        self._window.clear()
