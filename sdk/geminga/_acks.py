"""Acknowledgements on their way to the broker (spec SDK-22;
PersistentAcknowledgmentsGroupingTracker of the Java client). Pure.

Acknowledged messages of a batch are noted one by one; the entry is acknowledged when its last one
is, or, with batch-index acknowledgement, each group tells the broker which are left (PIP-54).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from geminga_protocol.ack_set import AckSet, from_bits, full, to_bits

Position = tuple[int, int]

UNACKED_BATCHES_MAX = 100_000
"""Batches acknowledged in part that are remembered; the oldest is forgotten, then its acknowledged
messages may come again (at least once holds)."""


class AckGroup(NamedTuple):
    """One ACK command: positions, each with what is left of its batch (empty: nothing is)."""

    cumulative: bool
    ids: list[tuple[int, int, AckSet]]


class BatchAcks:
    """Which messages of one batch are acknowledged. `left` is 0 once it isn't asked any more."""

    __slots__ = ("flags", "left")

    def __init__(self, batch_size: int, ack_set: AckSet) -> None:
        """`ack_set` is what the broker said is left; empty means all."""
        if ack_set:
            bits = to_bits(ack_set)
            self.flags = bytearray(bits >> n & 1 for n in range(batch_size))
            self.left = sum(self.flags)
        else:
            self.flags = bytearray(b"\x01") * batch_size
            self.left = batch_size

    def ack_set(self) -> AckSet:
        """What is left, in the wire's words."""
        return from_bits(sum(1 << n for n, flag in enumerate(self.flags) if flag))


class AckTracker:
    """Collects acknowledgements and hands them out in groups."""

    def __init__(self, *, batch_index_ack: bool) -> None:
        self._batch_index_ack = batch_index_ack
        self._partial: dict[Position, BatchAcks] = {}
        self._individual: dict[Position, BatchAcks | None] = {}
        self._cumulative: tuple[int, int, AckSet] | None = None

    def __len__(self) -> int:
        """Positions waiting to be sent."""
        return len(self._individual) + (self._cumulative is not None)

    def add(self, ledger_id: int, entry_id: int) -> None:
        """A whole entry."""
        position = ledger_id, entry_id
        self._individual[position] = None
        if self._partial:
            self._drop(position)

    def add_all(self, positions: Iterable[Position]) -> None:
        """Whole entries."""
        for position in positions:
            self.add(*position)

    def add_in_batch(
        self, ledger_id: int, entry_id: int, index: int, batch_size: int, ack_set: AckSet = ()
    ) -> bool:
        """One message of a batch. Answers whether there is something new to send."""
        position = ledger_id, entry_id
        state = self._state(position, batch_size, ack_set)
        if state is None:
            return False
        if state.flags[index]:
            state.flags[index] = 0
            state.left -= 1
        if state.left and not self._batch_index_ack:
            return False
        self._is_new(position, state)
        return True

    def add_run_in_batch(
        self,
        position: Position,
        indexes: Iterable[int],
        batch_size: int,
        ack_set: AckSet = (),
    ) -> bool:
        """Some messages of a batch. Answers whether there is something new to send."""
        state = self._state(position, batch_size, ack_set)
        if state is None:
            return False
        flags = state.flags
        for index in indexes:
            flags[index] = 0
        state.left = flags.count(1)
        if state.left and not self._batch_index_ack:
            return False
        self._is_new(position, state)
        return True

    def _state(self, position: Position, batch_size: int, ack_set: AckSet) -> BatchAcks | None:
        state = self._partial.get(position)
        if state is not None and len(state.flags) != batch_size:
            # An id that the program made up told another size: nothing of it can be relied on.
            self._drop(position)
            state = None
        return state or self._begin(position, batch_size, ack_set)

    def _begin(self, position: Position, batch_size: int, ack_set: AckSet) -> BatchAcks | None:
        if position in self._individual:
            # Acknowledged whole before: without a state of its own it can be nothing else.
            return None
        if len(self._partial) >= UNACKED_BATCHES_MAX:
            self._drop(next(iter(self._partial)))
        state = self._partial[position] = BatchAcks(batch_size, ack_set)
        return state

    def _is_new(self, position: Position, state: BatchAcks) -> None:
        if state.left:
            self._individual[position] = state
        else:
            del self._partial[position]
            self._individual[position] = None

    def add_cumulative(
        self, ledger_id: int, entry_id: int, index: int = -1, batch_size: int = 0
    ) -> None:
        """Everything up to and including that message. Going back behind what waits to be sent
        changes nothing.
        """
        left: AckSet = ()
        if 0 <= index < batch_size - 1:
            if self._batch_index_ack:
                left = from_bits(to_bits(full(batch_size)) >> (index + 1) << (index + 1))
            else:
                # The batch is only done in part, so what the broker may forget ends before it.
                entry_id -= 1
        reached = self._cumulative
        if reached is None or self._is_after((ledger_id, entry_id, left), reached):
            self._cumulative = ledger_id, entry_id, left
            done = ledger_id, entry_id if not left else entry_id - 1
            for position in [p for p in self._partial if p <= done]:
                self._drop(position)

    def _drop(self, position: Position) -> None:
        state = self._partial.pop(position, None)
        if state is not None:
            state.left = 0

    def state_of(self, ledger_id: int, entry_id: int) -> BatchAcks | None:
        """Of a batch acknowledged in part. While it has two messages `left` at least, one of them
        may be noted in it, and nothing else is to be done, unless batch indexes are acknowledged:
        then it is None.
        """
        return None if self._batch_index_ack else self._partial.get((ledger_id, entry_id))

    @staticmethod
    def _is_after(new: tuple[int, int, AckSet], old: tuple[int, int, AckSet]) -> bool:
        if new[:2] != old[:2]:
            return new[:2] > old[:2]
        if not old[2]:
            return False
        return not new[2] or to_bits(new[2]).bit_count() < to_bits(old[2]).bit_count()

    def is_acked(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the entry is acknowledged whole, though the broker may not know it yet."""
        position = ledger_id, entry_id
        if position in self._individual:
            return self._individual[position] is None
        reached = self._cumulative
        if reached is None:
            return False
        return position < reached[:2] or (position == reached[:2] and not reached[2])

    def left_of(self, ledger_id: int, entry_id: int, batch_size: int) -> bytearray | None:
        """For a batch acknowledged in part: one flag for each message, 1 where it isn't yet."""
        state = self._partial.get((ledger_id, entry_id))
        return None if state is None or len(state.flags) != batch_size else state.flags

    def take(self, ids_max: int = 1000) -> list[AckGroup]:
        """Everything that waits, in commands of at most `ids_max` positions; it waits no more."""
        groups: list[AckGroup] = []
        if self._cumulative is not None:
            # Forgotten once sent: a broker that loses it delivers again, and must hear it again.
            groups.append(AckGroup(True, [self._cumulative]))
            self._cumulative = None
        if self._individual:
            ids = [
                (ledger_id, entry_id, () if state is None else state.ack_set())
                for (ledger_id, entry_id), state in self._individual.items()
            ]
            self._individual = {}
            groups += [
                AckGroup(False, ids[at : at + ids_max]) for at in range(0, len(ids), ids_max)
            ]
        return groups

    def reset(self) -> None:
        """Forget everything: after a seek, old acknowledgements mean nothing."""
        for position in list(self._partial):
            self._drop(position)
        self._individual = {}
        self._cumulative = None
