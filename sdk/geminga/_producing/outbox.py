"""What one producer has to send: the open batch and the frames in flight (spec SDK-01, SDK-04,
SDK-05, SDK-07, SDK-08). Pure: no sockets, no tasks; the clock comes in from outside.

    add -> open batch -> seal -> window (in order, until the receipt) -> done

The window is resent as it is whenever the producer is attached again, so order holds. `unsent` are
the frames that were sealed since the driver last took them.
"""

from __future__ import annotations

import enum
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from geminga._entries.encode import Encoder, Extras, Frame
from geminga._producing.receipt import LeadingChunk, Outgoing, Receipt, leading_chunk
from geminga.errors import ChecksumError, GemingaError, OperationTimeoutError
from geminga.options import ProducerOptions
from geminga_protocol.payload import verify_checksum

_NOWHERE = (1 << 64) - 1
"""Ledger and entry in the receipt of a message that the broker had already: -1, on the wire."""

LONE_MIN = 8
"""Frames of one message in a row, after which a program is taken to send one at a time."""


class ReceiptVerdict(enum.Enum):
    """What a SEND_RECEIPT means (ProducerImpl.ackReceived)."""

    DONE = "done"
    STALE = "stale"
    """Of a frame that is settled already: ignored."""
    GAP = "gap"
    """Of a later frame than the oldest in flight: the connection lost something, so it must go."""


Placed = tuple[Outgoing, int, int]
"""A frame, the index in it of the first of some messages, and how many they are."""

_unpack_size = struct.Struct(">I").unpack_from


def _is_whole(frame: Frame) -> bool:
    """Whether the checksum of a SEND frame still fits."""
    joined = b"".join(frame)
    return verify_checksum(memoryview(joined)[8 + _unpack_size(joined, 4)[0] :])


class Outbox:
    """Batching and the window of frames in flight.

    `settled` is called with the frames that leave the window, done or failed alike, and with how
    many messages and bytes they have.
    """

    def __init__(
        self,
        options: ProducerOptions,
        encoder: Encoder,
        clock: Callable[[], float],
        settled: Callable[[Sequence[Outgoing], int, int], None],
    ) -> None:
        self._encoder = encoder
        self._clock = clock
        self._settled = settled
        self._batching = options.batching_enabled
        self._messages_max = options.batching_max_messages
        self._bytes_max = options.batching_max_bytes
        self.open_batch: Outgoing | None = None
        """The batch that still takes messages."""
        self._window: deque[Outgoing] = deque()
        self._early: dict[int, int] = {}
        """Sequence ids of frames in the window whose receipt came out of turn, and how many did."""
        self.unsent: list[Outgoing] = []
        """Frames sealed since `take_unsent`, in order."""
        self.next_sequence_id = options.initial_sequence_id or 0
        self.last_sequence_id = self.next_sequence_id - 1
        """Highest sequence id that the broker has confirmed, -1 if none."""
        self._is_numbered = options.initial_sequence_id is not None
        self._repeats_up_to = sys.maxsize if self._is_numbered else -1
        """Sequence ids that the broker may have already."""
        self.is_held = True
        """Until `begin`: neither the producer's name is known nor where its sequence ids begin."""
        self.pending_messages = 0
        self.pending_bytes = 0
        self.sealed_batches = 0
        self._lone = 0
        """How many frames of one message each were sealed in a row."""

    @property
    def in_flight(self) -> int:
        """Frames sealed and not settled."""
        return len(self._window)

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
                alone = Outgoing(self._clock(), [], 1, size, sequence_id, sequence_id, frame)
                self.sealed_batches += 1
                self._lone += 1
                self._window.append(alone)
                self.unsent.append(alone)
                return Receipt(alone, 0)
        items = [(sequence_id, data, extras)]
        alone = Outgoing(self._clock(), items, 1, size, sequence_id, sequence_id)
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
            items = batch.items
            first = batch.count
            size_bytes = batch.size_bytes
            number = self.next_sequence_id
            is_full = False
            for data in payloads[at : at + self._messages_max - first]:
                size_after = size_bytes + len(data)
                is_full = size_after >= bytes_max
                if size_after > bytes_max and items:
                    break
                items.append((number, data, None))
                number += 1
                size_bytes = size_after
                if is_full:
                    break
            taken = len(items) - first
            if taken:
                placed.append((batch, first, taken))
                at += taken
                self._note_run(batch, number, size_bytes)
            if is_full or len(items) >= self._messages_max:
                self.seal()
        return placed

    def _note_run(self, batch: Outgoing, next_sequence_id: int, size_bytes: int) -> None:
        count = len(batch.items)
        if not batch.count:
            batch.sequence_id = self.next_sequence_id
        self.pending_messages += count - batch.count
        self.pending_bytes += size_bytes - batch.size_bytes
        batch.count = count
        batch.size_bytes = size_bytes
        batch.highest_sequence_id = next_sequence_id - 1
        self.next_sequence_id = next_sequence_id

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

    def on_receipt(self, sequence_id: int, ledger_id: int, entry_id: int) -> ReceiptVerdict:
        """Settle the oldest frame if the receipt is its own."""
        if not self._window:
            return ReceiptVerdict.STALE
        head = self._window[0]
        if sequence_id != head.sequence_id:
            return self._out_of_turn(sequence_id, ledger_id)
        self._settle_head(ledger_id, entry_id)
        if self._early:
            self._settle_early()
        return ReceiptVerdict.DONE

    def on_receipts(
        self, sequence_id: int, ledger_id: int, entry_id: int, count: int
    ) -> ReceiptVerdict:
        """The same for receipts whose sequence ids and entries count up, up to the first that is
        out of order.
        """
        run: list[Outgoing] = []
        messages = size_bytes = 0
        if count > 1 and not self._early and ledger_id != _NOWHERE:
            for head in islice(self._window, count):
                if (
                    head.sequence_id != sequence_id
                    or head.first_chunk is not None
                    or isinstance(head, LeadingChunk)
                ):
                    break
                head.ledger_id = ledger_id
                head.entry_id = entry_id
                messages += head.count
                size_bytes += head.size_bytes
                sequence_id += 1
                entry_id += 1
                run.append(head)
            self._settle_run(run, messages, size_bytes)
        verdict = ReceiptVerdict.DONE
        for _ in range(count - len(run)):
            verdict = self.on_receipt(sequence_id, ledger_id, entry_id)
            if verdict is ReceiptVerdict.GAP:
                break
            sequence_id += 1
            entry_id += 1
        return verdict

    def _settle_run(self, run: list[Outgoing], messages: int, size_bytes: int) -> None:
        """The oldest frames of the window are stored."""
        if not run:
            return
        popleft = self._window.popleft
        for _ in run:
            popleft()
        self.last_sequence_id = max(self.last_sequence_id, run[-1].highest_sequence_id)
        self.pending_messages -= messages
        self.pending_bytes -= size_bytes
        # Counted before anybody is told: another thread may look at the numbers at once.
        self._settled(run, messages, size_bytes)
        left = iter(run)
        try:
            for each in left:
                each.settle(None)
        finally:
            # None stays behind whatever happens: nobody else knows of them.
            for each in left:
                each.settle(None)

    def _out_of_turn(self, sequence_id: int, ledger_id: int) -> ReceiptVerdict:
        """Apache's broker answers a duplicate, as one stored nowhere, before what it is still
        storing: kept until it is that frame's turn.
        """
        if ledger_id == _NOWHERE and any(each.sequence_id == sequence_id for each in self._window):
            self._early[sequence_id] = self._early.get(sequence_id, 0) + 1
            return ReceiptVerdict.DONE
        is_stale = sequence_id < self._window[0].sequence_id
        return ReceiptVerdict.STALE if is_stale else ReceiptVerdict.GAP

    def _settle_early(self) -> None:
        early = self._early
        while self._window and (count := early.get(self._window[0].sequence_id)):
            if count == 1:
                del early[self._window[0].sequence_id]
            else:
                early[self._window[0].sequence_id] = count - 1
            self._settle_head(_NOWHERE, _NOWHERE)

    def _settle_head(self, ledger_id: int, entry_id: int) -> None:
        head = self._window.popleft()
        if isinstance(head, LeadingChunk):
            whole = head.whole
            if whole is not None and (whole.first_chunk is None or ledger_id == _NOWHERE):
                whole.first_chunk = ledger_id, entry_id
        elif head.first_chunk is not None and _NOWHERE in (ledger_id, head.first_chunk[0]):
            # A duplicate, whichever of its chunks the broker said so of.
            ledger_id = entry_id = _NOWHERE
            head.first_chunk = None
        head.ledger_id = ledger_id
        head.entry_id = entry_id
        if head.highest_sequence_id > self.last_sequence_id:
            self.last_sequence_id = head.highest_sequence_id
        self._settle(head, None)

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

    def fail(self, sequence_id: int, error: GemingaError) -> bool:
        """Fail the oldest frame if that is its sequence id, of a chunked message all that is left
        of it; returns whether it was.
        """
        if not self._window or self._window[0].sequence_id != sequence_id:
            return False
        head = self._window.popleft()
        while isinstance(head, LeadingChunk):
            self._settle(head, error)
            head = self._window.popleft()
        self._settle(head, error)
        self._settle_early()
        return True

    def verify(self, sequence_id: int) -> bool:
        """After a checksum error: fail the frame if our own copy is damaged.

        Returns whether it is whole, so that everything must be sent again.
        """
        if not self._window or self._window[0].sequence_id != sequence_id:
            return False
        head = self._window[0]
        if _is_whole(head.frame):
            return True
        self.fail(sequence_id, ChecksumError("the message was damaged in memory"))
        return False

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

    def _settle(self, outgoing: Outgoing, error: GemingaError | None) -> None:
        self.pending_messages -= outgoing.count
        self.pending_bytes -= outgoing.size_bytes
        # Counted before anybody is told: another thread may look at the numbers at once.
        outgoing.error = error
        self._settled((outgoing,), outgoing.count, outgoing.size_bytes)
        outgoing.settle(error)
