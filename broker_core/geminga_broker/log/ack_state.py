"""A cursor's acknowledgements (pure; spec BR-05, BR-06; Apache's ManagedCursorImpl, PIP-381).

Everything up to `mark_delete` is acknowledged. Beyond it there are *holes*: individually
acknowledged entries, in one compressed bitmap per ledger, so that a million of them take some
hundred kilobytes; and partly acknowledged batches, as their unacknowledged bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyroaring import BitMap

from geminga_broker.log.api import Ack, AckRun
from geminga_broker.log.chain import LedgerChain
from geminga_protocol import ack_set as words
from geminga_protocol.ids import Position

_SHORT_RUN_ENTRIES = 16
"""Runs up to this length are scanned entry by entry, longer ones by doubling steps."""

_ENTRIES_MAX = 1 << 32
"""Bound of entry ids in a bitmap; a ledger rolls over long before."""


PARTIAL_BYTES_MAX = 32 * 1024 * 1024
"""Memory of a cursor's partly acknowledged batches; further ones count as unacknowledged."""

PARTIAL_OVERHEAD_BYTES = 200
"""Memory of such a batch beside its bits."""


class AckState:
    """Acknowledgements of one cursor. Positions outside the chain are ignored."""

    __slots__ = (
        "_chain", "_holes", "_partial", "_partial_bytes", "deleted_of", "holes", "mark_delete",
    )  # fmt: skip

    def __init__(self, chain: LedgerChain, mark_delete: Position) -> None:
        self._chain = chain
        self.mark_delete = mark_delete
        self.holes = 0
        self._holes: dict[int, BitMap] = {}
        self.deleted_of = self._holes.get
        """A ledger's acknowledged entries beyond mark-delete, or None. Don't change the bitmap."""
        self._partial: dict[int, dict[int, int]] = {}
        self._partial_bytes = 0

    def is_deleted(self, position: Position) -> bool:
        """Whether the entry is wholly acknowledged."""
        if position <= self.mark_delete:
            return True
        bitmap = self._holes.get(position[0])
        return bitmap is not None and 0 <= position[1] < _ENTRIES_MAX and position[1] in bitmap

    def ack_set(self, position: Position) -> tuple[int, ...]:
        """BitSet words of a batch's unacknowledged messages; empty if no part is acknowledged."""
        partial = self._partial.get(position[0])
        if partial is None:
            return ()
        return words.from_bits(partial.get(position[1], 0))

    def backlog(self) -> int:
        """The number of unacknowledged entries."""
        chain = self._chain
        return chain.entries_between(self.mark_delete, chain.last_position()) - self.holes

    def ack(self, acks: Iterable[Ack]) -> list[Position]:
        """Acknowledge entries or parts of batches; returns the entries that are now complete."""
        done: list[Position] = []
        ledgers = self._chain
        holes = self._holes
        for position, ack_words, batch_size in acks:
            if ack_words and not self._ack_part(position, ack_words, batch_size):
                continue
            ledger_id, entry_id = position
            mark_ledger, mark_entry = self.mark_delete
            ledger = ledgers.get(ledger_id)
            if ledger is None or not 0 <= entry_id < ledger.entries:
                continue
            if ledger_id == mark_ledger and entry_id == mark_entry + 1:
                self.mark_delete = position
                if holes or entry_id + 1 == ledger.entries:
                    self._absorb()
            elif position <= self.mark_delete:
                continue
            else:
                bitmap = holes.get(ledger_id)
                if bitmap is None:
                    bitmap = holes[ledger_id] = BitMap()
                elif entry_id in bitmap:
                    continue
                bitmap.add(entry_id)
                self.holes += 1
                if entry_id == 0:
                    self._absorb()
            if self._partial:
                self._drop_partial(position)
            done.append(position)
        return done

    def ack_run(self, run: AckRun) -> None:
        """As `ack`, for neighbouring entries in one step."""
        ledger_id, first = run.ledger_id, run.first
        ledger = self._chain.get(ledger_id)
        if ledger is None:
            return
        mark_ledger, mark_entry = self.mark_delete
        end = min(first + run.entries, ledger.entries)
        if ledger_id == mark_ledger:
            first = max(first, mark_entry + 1)
        if ledger_id < mark_ledger or first >= end:
            return
        if ledger_id == mark_ledger and first == mark_entry + 1:
            self._move(Position(ledger_id, end - 1))
            return
        bitmap = self._holes.get(ledger_id)
        if bitmap is None:
            bitmap = self._holes[ledger_id] = BitMap()
        self.holes -= len(bitmap)
        bitmap.add_range(first, end)
        self.holes += len(bitmap)
        for entry_id in self._partial.get(ledger_id, {}).keys() & range(first, end):
            self._drop_partial(Position(ledger_id, entry_id))
        if first == 0:
            self._absorb()

    def ack_cumulative(self, position: Position, ack_words: tuple[int, ...] = ()) -> bool:
        """Acknowledge all up to the position, or up to before it and a part of its batch. Returns
        whether anything changed.

        A position beyond the end is ignored (ManagedCursorImpl.asyncMarkDelete).
        """
        chain = self._chain
        if position > chain.last_position():
            return False
        if ack_words:
            bits = words.to_bits(ack_words)
            if bits and self.is_deleted(position):
                return False
            if bits and chain.holds(position):
                before = chain.previous_position(position)
                moved = before > self.mark_delete
                if moved:
                    self._move(before)
                known = self._bits(position)
                return (self._keep_part(position, bits & known) and known != bits & known) or moved
        position = chain.at_or_before(position)
        if position <= self.mark_delete:
            return False
        self._move(position)
        return True

    def reset(self, mark_delete: Position) -> None:
        """Set mark-delete, also backwards; forget acknowledgements beyond it (BR-07)."""
        self.mark_delete = mark_delete
        self.holes = 0
        self._holes.clear()
        self._partial.clear()
        self._partial_bytes = 0

    def restore(
        self,
        ranges: Iterable[tuple[Position, Position]],
        bitmaps: Iterable[tuple[int, BitMap]],
        partial: Iterable[tuple[Position, tuple[int, ...]]],
    ) -> None:
        """Add a persisted state: ranges (lower exclusive, upper inclusive), bitmaps per ledger,
        unacknowledged parts.

        Ranges that span ledgers are split; entries outside the chain, or up to mark-delete, are
        dropped.
        """
        for lower, upper in ranges:
            for ledger in self._chain:
                first = lower[1] + 1 if ledger.ledger_id == lower[0] else 0
                stop = upper[1] + 1 if ledger.ledger_id == upper[0] else ledger.entries
                if lower[0] <= ledger.ledger_id <= upper[0] and first < stop:
                    self._add_bitmap(
                        ledger.ledger_id, BitMap(range(first, min(stop, ledger.entries)))
                    )
        for ledger_id, bitmap in bitmaps:
            self._add_bitmap(ledger_id, bitmap)
        for position, ack_words in partial:
            bits = words.to_bits(ack_words)
            if bits and self._chain.holds(position) and not self.is_deleted(position):
                self._keep_part(position, bits)
        self._absorb()

    def forget_trimmed(self) -> None:
        """Drop the state of ledgers that are no longer in the chain."""
        for ledger_id in [key for key in self._holes if self._chain.get(key) is None]:
            self.holes -= len(self._holes.pop(ledger_id))
        for ledger_id in [key for key in self._partial if self._chain.get(key) is None]:
            self._partial_bytes -= sum(map(_part_bytes, self._partial.pop(ledger_id).values()))

    def ranges(self, limit: int) -> list[tuple[Position, Position]] | None:
        """Holes in order, as ranges (lower exclusive, upper inclusive); None if above `limit`."""
        found: list[tuple[Position, Position]] = []
        for ledger_id in sorted(self._holes):
            bitmap = self._holes[ledger_id]
            first = bitmap.min()
            while True:
                last = run_end(bitmap, first)
                if len(found) == limit:
                    return None
                lower = Position(ledger_id, first - 1)
                found.append((lower, Position(ledger_id, last)))
                following = bitmap.next_set_bit(last + 1) if last < bitmap.max() else None
                if following is None:
                    break
                first = following
        return found

    def bitmaps(self) -> Iterator[tuple[int, BitMap]]:
        """Holes as bitmaps, in the order of ledgers. Don't change the bitmaps."""
        for ledger_id in sorted(self._holes):
            yield ledger_id, self._holes[ledger_id]

    def partial(self) -> Iterator[tuple[Position, tuple[int, ...]]]:
        """Partly acknowledged batches, oldest first, with their ack sets."""
        for ledger_id, partial in self._partial.items():
            for entry_id, bits in partial.items():
                yield Position(ledger_id, entry_id), words.from_bits(bits)

    def first_unacked(self, position: Position) -> Position:
        """The first unacknowledged entry from the position on, or the next one to be written."""
        chain = self._chain
        position = chain.at_or_after(max(position, chain.next_position(self.mark_delete)))
        while True:
            bitmap = self._holes.get(position[0])
            if bitmap is None or position[1] not in bitmap:
                return position
            last = run_end(bitmap, position[1])
            position = chain.next_position(Position(position[0], last))

    def skip_target(self, entries: int) -> Position:
        """The mark-delete position after the next `entries` unacknowledged entries."""
        chain = self._chain
        base = chain.ordinal(self.mark_delete)
        ordinal = base + entries
        while True:
            target = chain.at_ordinal(ordinal)
            wanted = base + entries + self._holes_upto(target)
            if wanted == ordinal or target == chain.last_position():
                return target
            ordinal = wanted

    def _ack_part(self, position: Position, ack_words: tuple[int, ...], batch_size: int) -> bool:
        """Acknowledge a part of a batch; returns whether the batch is now complete."""
        if self.is_deleted(position) or not self._chain.holds(position):
            return False
        bits = words.to_bits(ack_words) & self._bits(position)
        if 1 < batch_size < bits.bit_length():  # clients that send words need not send the size
            bits &= (1 << batch_size) - 1
        if bits:
            self._keep_part(position, bits)
        return not bits

    def _keep_part(self, position: Position, bits: int) -> bool:
        """Store a batch's unacknowledged bits; False if there is no room for one more."""
        size = _part_bytes(bits)
        partial = self._partial.get(position[0])
        known = None if partial is None else partial.get(position[1])
        if known is not None:
            size -= _part_bytes(known)
        if size > 0 and self._partial_bytes + size > PARTIAL_BYTES_MAX:
            return False
        if partial is None:
            partial = self._partial[position[0]] = {}
        partial[position[1]] = bits
        self._partial_bytes += size
        return True

    def _bits(self, position: Position) -> int:
        """A batch's unacknowledged bits; all ones if none is acknowledged."""
        return self._partial.get(position[0], {}).get(position[1], -1)

    def _drop_partial(self, position: Position) -> None:
        partial = self._partial.get(position[0])
        if partial is None or (bits := partial.pop(position[1], None)) is None:
            return
        self._partial_bytes -= _part_bytes(bits)
        if not partial:
            del self._partial[position[0]]

    def _move(self, position: Position) -> None:
        """Move mark-delete forward."""
        self.mark_delete = position
        for ledger_id in [key for key in self._holes if key <= position[0]]:
            bitmap = self._holes[ledger_id]
            before = len(bitmap)
            if ledger_id < position[0]:
                bitmap.clear()
            else:
                bitmap.remove_range(0, position[1] + 1)
            self.holes -= before - len(bitmap)
            if not bitmap:
                del self._holes[ledger_id]
        for ledger_id in [key for key in self._partial if key <= position[0]]:
            partial = self._partial[ledger_id]
            whole = ledger_id < position[0]
            for entry_id in [key for key in partial if whole or key <= position[1]]:
                self._partial_bytes -= _part_bytes(partial.pop(entry_id))
            if not partial:
                del self._partial[ledger_id]
        self._absorb()

    def _absorb(self) -> None:
        """Advance mark-delete over adjacent holes, also into the next ledgers."""
        holes = self._holes
        while holes:
            following = self._chain.next_position(self.mark_delete)
            bitmap = holes.get(following[0])
            if bitmap is None or following[1] not in bitmap:
                return
            last = run_end(bitmap, following[1])
            bitmap.remove_range(following[1], last + 1)
            self.holes -= last + 1 - following[1]
            if not bitmap:
                del holes[following[0]]
            self.mark_delete = Position(following[0], last)

    def _add_bitmap(self, ledger_id: int, bitmap: BitMap) -> None:
        ledger = self._chain.get(ledger_id)
        mark = self.mark_delete
        if ledger is None or ledger_id < mark[0]:
            return
        first = mark[1] + 1 if ledger_id == mark[0] else 0
        if first >= ledger.entries:
            return
        kept = bitmap & BitMap(range(first, ledger.entries))
        known = self._holes.pop(ledger_id, None)
        if known is not None:
            self.holes -= len(known)
            kept |= known
        if kept:
            self._holes[ledger_id] = kept
            self.holes += len(kept)

    def _holes_upto(self, position: Position) -> int:
        count = 0
        for ledger_id, bitmap in self._holes.items():
            if ledger_id < position[0]:
                count += len(bitmap)
            elif ledger_id == position[0] and position[1] >= 0:
                count += bitmap.rank(position[1])
        return count


def _part_bytes(bits: int) -> int:
    """Approximate memory of a partly acknowledged batch."""
    return PARTIAL_OVERHEAD_BYTES + (bits.bit_length() >> 3)


def run_end(bitmap: BitMap, first: int) -> int:
    """The last member of the run of consecutive members that begins at `first`."""
    last = first
    while last + 1 in bitmap:
        last += 1
        if last - first == _SHORT_RUN_ENTRIES:
            break
    else:
        return last
    step = _SHORT_RUN_ENTRIES
    while bitmap.contains_range(last, last + step + 1):
        last += step
        step *= 2
    while step:
        if bitmap.contains_range(last, last + step + 1):
            last += step
        step //= 2
    return last
