"""One producer's pending messages: the open batch and the frames in flight (spec SDK-01, SDK-04,
SDK-05, SDK-07, SDK-08). Pure: no sockets, no tasks; the clock is passed in.

    add -> open batch -> seal -> window (in order, until the receipt) -> done

The unchanged window is resent whenever the producer reconnects, so order holds. `unsent` are frames
sealed since the driver last took them.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

from geminga._entries.encode import Encoder, Extras
from geminga._producing.joining import Joining, Memory
from geminga._producing.receipt import Outgoing, Receipt, leading_chunk
from geminga._producing.window import Window
from geminga.errors import GemingaError, OperationTimeoutError
from geminga.options import ProducerOptions

LONE_MIN = 8
"""After this number of consecutive single-message frames, the program is sending one at a time."""

Placed = tuple[Outgoing, int, int]
"""A frame, and the index and number of some messages in it."""


class Outbox(Window):
    """Batching and the window of frames in flight."""

    def __init__(
        self,
        options: ProducerOptions,
        encoder: Encoder,
        clock: Callable[[], float],
        settled: Callable[[Sequence[Outgoing], int, int], None],
        memory: Memory,
    ) -> None:
        super().__init__(settled)
        self._encoder = encoder
        self._clock = clock
        self._batching = options.batching_enabled
        self._messages_max = options.batching_max_messages
        self._bytes_max = options.batching_max_bytes
        self.open_batch: Outgoing | None = None
        """The batch that accepts messages."""
        self.joining = Joining(memory)
        """Adds messages to it: see `let_join`."""
        self.unsent: list[Outgoing] = []
        """Frames sealed since `take_unsent`, in order."""
        self.last_sequence_id = -1
        self._is_numbered = options.initial_sequence_id is not None
        if options.initial_sequence_id is not None:  # of the last message before (ProducerImpl)
            self.last_sequence_id = options.initial_sequence_id
        self._next_sequence_id = self.last_sequence_id + 1
        self._repeats_up_to = sys.maxsize if self._is_numbered else -1
        """Sequence ids that the broker may have already."""
        self.is_held = True
        """True until `begin`: the producer's name and its first sequence id are unknown."""
        self.sealed_batches = 0
        self._lone = 0
        """Number of consecutive sealed frames with one message each."""

    @property
    def open_since_s(self) -> float | None:
        """Time of the open batch's first message."""
        return None if self.open_batch is None else self.open_batch.created_s

    @property
    def oldest_since_s(self) -> float | None:
        """Time of the oldest pending message."""
        return self._window[0].created_s if self._window else self.open_since_s

    @property
    def is_lone(self) -> bool:
        """Whether nothing is in flight, and the last messages were sent singly: then the next one
        needn't wait for others of the same turn. The first ones wait, so that programs that send
        from many tasks get batches.
        """
        return self._lone >= LONE_MIN and not self._window

    def pending(self) -> list[Outgoing]:
        """All entries without a receipt, also open batches."""
        return [*self._window, *self._open_batches()]

    def add(self, data: bytes, extras: Extras | None, sequence_id: int | None) -> Receipt:
        """Add a message; seals a full batch, or a message that can't be batched."""
        if self.joining.first:
            self.note_joined()
        batched = self._batching and (extras is None or extras.batchable)
        next_id = self._next_sequence_id
        if sequence_id is None:
            sequence_id = next_id
            self._next_sequence_id = next_id + 1
        else:
            self._is_numbered = True
            if sequence_id >= next_id:
                self._next_sequence_id = sequence_id + 1
            if sequence_id < next_id or self.is_held:
                batched = False
        if sequence_id <= self._repeats_up_to:
            # A possible duplicate is sent alone: the broker stores or drops whole batches, by the
            # lowest sequence id (isLastSequenceIdPotentialDuplicated of ProducerImpl).
            batched = False
        self._messages += 1
        self._bytes += len(data)
        if not batched and self.open_batch is None:
            return self._add_alone(data, extras, sequence_id)
        return self._add(data, extras, sequence_id, batched)

    def _add_alone(self, data: bytes, extras: Extras | None, sequence_id: int) -> Receipt:
        """Add a message that can't be batched, without an open batch before it."""
        size = len(data)
        if extras is None and not self.is_held:
            frame = self._encoder.single(sequence_id, data)
            if frame is not None:
                # `_sealed` and `_encode`, reduced to the steps for a message that doesn't wait.
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

    def let_join(self, messages: int, size_bytes: int) -> None:
        """Let up to so many messages, of less than `size_bytes` together, join the open batch, as
        long as it stays open: through `joining`, which is closed when anything else is done.
        """
        self.note_joined()
        batch = self.open_batch
        number = self._next_sequence_id
        if batch is not None and number > self._repeats_up_to and batch.takes(number):
            messages = min(messages, self._messages_max - batch.count - 1)
            self.joining.open(batch, messages, min(size_bytes, self._bytes_max - batch.size_bytes))

    def note_joined(self) -> None:
        """Count the messages that joined the open batch, and let no more join it."""
        joining, batch = self.joining, self.open_batch
        if not joining.first or batch is None:
            return
        count, size_bytes = joining.messages, joining.size_bytes
        joining.close()
        batch.joined(count, size_bytes)
        self._next_sequence_id += count
        self._messages += count
        self._bytes += size_bytes

    @property
    def next_sequence_id(self) -> int:
        """That of the next message that has none of its own."""
        return self._next_sequence_id + self.joining.messages

    @property
    def pending_messages(self) -> int:
        """Number of messages without a receipt."""
        joining = self.joining
        return self._messages + joining.messages if joining.first else self._messages

    @property
    def pending_bytes(self) -> int:
        """Their bytes."""
        return self._bytes + self.joining.size_bytes

    def add_run(self, payloads: Sequence[bytes]) -> list[Placed]:
        """A much faster `add` for messages with a payload only; returns an empty list, and adds
        none, if they must be added singly.
        """
        self.note_joined()
        if not self._batching or self._next_sequence_id <= self._repeats_up_to:
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
            # The message that reaches the batch's byte limit. If it exceeds the limit, it goes in
            # the next batch, unless it is the first one.
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
        batch.add_run(self._next_sequence_id, payloads, size_bytes)
        self._next_sequence_id += count
        self._messages += count
        self._bytes += size_bytes

    def seal(self) -> None:
        """Seal open batches, and put them in the window. Messages of a too large batch fail."""
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
        """Remove and return the open batches, in sending order."""
        self.note_joined()
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
        """All frames in flight, in order, for a new connection."""
        self.unsent = []
        self._early.clear()
        return list(self._window)

    def begin(self, last_sequence_id: int) -> None:
        """The producer is connected; `last_sequence_id` is the broker's last one for its name. It
        is used at the first time only, and unless the program sets sequence ids.

        Messages added before are encoded now, with the following sequence ids.
        """
        if not self.is_held:
            return
        self.note_joined()
        self.is_held = False
        self._repeats_up_to = last_sequence_id
        shift = 0 if self._is_numbered else last_sequence_id + 1
        if shift:
            self.last_sequence_id = last_sequence_id
            self._next_sequence_id += shift
        waiting = list(self._window)
        self._window.clear()
        self.unsent = []
        for batch in waiting:
            batch.shift(shift)
            self._encode(batch)
        # The same batches continue, so that the delay counts from the first message.
        for batch in self._open_batches():
            batch.shift(shift)

    def _open_batches(self) -> list[Outgoing]:
        return [] if self.open_batch is None else [self.open_batch]

    def expire(
        self, send_timeout_s: float, now_s: float, topic: str, refused: GemingaError | None = None
    ) -> int:
        """If the oldest message has exceeded the timeout, fail all pending ones (ProducerImpl.run:
        later ones would overtake it); returns their number. The error has the broker's last
        refusal.
        """
        since_s = self.oldest_since_s
        # The same sum as the alarm's time: a subtraction may round differently, and the alarm would
        # fire for ever.
        if since_s is None or now_s < since_s + send_timeout_s:
            return 0
        count = self.pending_messages
        why = "" if refused is None else f"; the broker's last answer was {refused.code}: {refused}"
        text = f"no receipt within {send_timeout_s} s{why}"
        error = OperationTimeoutError(text, topic=topic)
        error.__cause__ = refused
        self.fail_all(error)
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
        """`fail_all` after the event loop has ended: wakes no task."""
        for outgoing in (*self._window, *self._take_open()):
            outgoing.forget_tasks()
            outgoing.settle(error)
        self._window.clear()
