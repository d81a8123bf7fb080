"""The frames in flight of one producer, until their receipts (spec SDK-01, SDK-04). Pure."""

from __future__ import annotations

import enum
import struct
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from geminga._entries.encode import Frame
from geminga._producing.receipt import LeadingChunk, Outgoing
from geminga.errors import ChecksumError, GemingaError
from geminga_protocol.payload import verify_checksum

_NOWHERE = (1 << 64) - 1
"""Ledger and entry in the receipt of a duplicate: -1, on the wire."""


class ReceiptVerdict(enum.Enum):
    """The meaning of a SEND_RECEIPT (ProducerImpl.ackReceived)."""

    DONE = "done"
    STALE = "stale"
    """For a settled frame: ignored."""
    GAP = "gap"
    """For a later frame than the oldest in flight: data was lost, so close the connection."""


_unpack_size = struct.Struct(">I").unpack_from


def _is_whole(frame: Frame) -> bool:
    """Whether the checksum of a SEND frame is correct."""
    joined = b"".join(frame)
    return verify_checksum(memoryview(joined)[8 + _unpack_size(joined, 4)[0] :])


class Window:
    """Sealed frames, in order; the broker's receipts have the same order.

    `settled` is called with the frames that leave it, stored or failed, and the numbers of their
    messages and bytes.
    """

    def __init__(self, settled: Callable[[Sequence[Outgoing], int, int], None]) -> None:
        self._settled = settled
        self._window: deque[Outgoing] = deque()
        self._early: dict[int, int] = {}
        """Frames with receipts out of turn: their number by sequence id."""
        self.last_sequence_id = -1
        """The highest confirmed sequence id; -1 before the first."""
        self._messages = 0
        """Messages that were counted and have no receipt, and their bytes."""
        self._bytes = 0

    @property
    def in_flight(self) -> int:
        """Number of frames without a result."""
        return len(self._window)

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
        """`on_receipt` for receipts with consecutive sequence ids and entries, up to the first one
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
        """Settle the oldest frames of the window as stored."""
        if not run:
            return
        popleft = self._window.popleft
        for _ in run:
            popleft()
        self.last_sequence_id = max(self.last_sequence_id, run[-1].highest_sequence_id)
        self._messages -= messages
        self._bytes -= size_bytes
        # Counted before the callbacks: another thread may read the counters at once.
        self._settled(run, messages, size_bytes)
        left = iter(run)
        try:
            for each in left:
                each.settle(None)
        finally:
            # Settle the rest even after an error: they are no longer in the window.
            for each in left:
                each.settle(None)

    def _out_of_turn(self, sequence_id: int, ledger_id: int) -> ReceiptVerdict:
        """Apache's broker sends a duplicate's receipt (with -1:-1) before those of frames that it
        is still storing: keep it until that frame's turn.
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
            # A duplicate, even if only one chunk's receipt shows it.
            ledger_id = entry_id = _NOWHERE
            head.first_chunk = None
        head.ledger_id = ledger_id
        head.entry_id = entry_id
        if head.highest_sequence_id > self.last_sequence_id:
            self.last_sequence_id = head.highest_sequence_id
        self._settle(head, None)

    def fail(self, sequence_id: int, error: GemingaError) -> bool:
        """Fail the oldest frame if it has that sequence id, with all remaining chunks of its
        message; returns whether it had.
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

        Returns whether it is intact, so that everything must be resent.
        """
        if not self._window or self._window[0].sequence_id != sequence_id:
            return False
        head = self._window[0]
        if _is_whole(head.frame):
            return True
        self.fail(sequence_id, ChecksumError("the message was damaged in memory"))
        return False

    def _settle(self, outgoing: Outgoing, error: GemingaError | None) -> None:
        self._messages -= outgoing.count
        self._bytes -= outgoing.size_bytes
        # Counted before the callbacks: another thread may read the counters at once.
        outgoing.error = error
        self._settled((outgoing,), outgoing.count, outgoing.size_bytes)
        outgoing.settle(error)
