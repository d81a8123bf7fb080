"""Acknowledgements on their way to the broker (spec SDK-22;
PersistentAcknowledgmentsGroupingTracker of the Java client). Pure.

Acknowledged messages of a batch are noted one by one; the entry is acknowledged when its last one
is, or, with batch-index acknowledgement, each group tells the broker which are left (PIP-54).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

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
    """Which messages of a delivered batch are acknowledged. `left` is 0 once all are."""

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
        """What is left, as an ack set of the wire."""
        return from_bits(sum(1 << n for n, flag in enumerate(self.flags) if flag))

    def finish(self) -> None:
        """The whole entry was acknowledged."""
        self.flags = bytearray(len(self.flags))
        self.left = 0

    def merged(self, other: BatchAcks) -> BatchAcks:
        """A new state: what neither this nor the other delivery of the batch has acknowledged."""
        made = BatchAcks(len(self.flags), ())
        made.flags = bytearray(map(min, self.flags, other.flags))
        made.left = made.flags.count(1)
        return made


AckStates = dict[Position, BatchAcks]
"""States of the batches that came over one attachment, begun by their first acknowledgement."""


class Delivery(Protocol):
    """A delivered entry. Its `ack_set` is never changed: the first acknowledgement makes a state of
    its own, `ack_state`, which deliveries of the same entry over one attachment share.
    """

    ledger_id: int
    entry_id: int
    message_count: int
    ack_set: AckSet
    ack_state: BatchAcks | None
    ack_states: AckStates | None


class AckTracker:
    """Collects acknowledgements and hands them out in groups.

    States belong to deliveries, not to positions: a cursor that somebody else has moved back
    detaches the consumer, and then every message has to come again.
    """

    def __init__(self, *, batch_index_ack: bool) -> None:
        self._batch_index_ack = batch_index_ack
        self._states: AckStates = {}
        self._individual: dict[Position, BatchAcks | None] = {}
        self._cumulative: tuple[int, int, AckSet] | None = None

    def __len__(self) -> int:
        """Positions waiting to be sent."""
        return len(self._individual) + (self._cumulative is not None)

    def add(self, ledger_id: int, entry_id: int) -> None:
        """A whole entry."""
        position = ledger_id, entry_id
        self._individual[position] = None
        if self._states:
            self._drop(position)

    def add_all(self, positions: Iterable[Position]) -> None:
        """Whole entries."""
        for position in positions:
            self.add(*position)

    def add_in_batch(
        self, position: Position, index: int, batch_size: int, ack_set: AckSet = ()
    ) -> bool:
        """One message of a batch, of which only the id is known. Returns whether there is something
        new to send.
        """
        if self._waits_whole(position):
            return False
        state = self._state(self._states, position, batch_size, ack_set)
        return self._note(position, state, (index,), self._states)

    def add_delivered(self, delivery: Delivery, indexes: Sequence[int]) -> bool:
        """Some messages of a delivered batch. Returns whether there is something new to send."""
        position = delivery.ledger_id, delivery.entry_id
        if self._waits_whole(position):
            return False
        states = self._states if delivery.ack_states is None else delivery.ack_states
        state = delivery.ack_state
        if state is None:
            state = self._state(states, position, delivery.message_count, delivery.ack_set)
            delivery.ack_state = state
        return self._note(position, state, indexes, states)

    def _waits_whole(self, position: Position) -> bool:
        return position in self._individual and self._individual[position] is None

    @staticmethod
    def _state(
        states: AckStates, position: Position, batch_size: int, ack_set: AckSet
    ) -> BatchAcks:
        state = states.get(position)
        # An id that the program made up may have told another size: such a state is replaced.
        if state is None or len(state.flags) != batch_size:
            if state is None and len(states) >= UNACKED_BATCHES_MAX:
                del states[next(iter(states))]
            state = states[position] = BatchAcks(batch_size, ack_set)
        return state

    def _note(
        self, position: Position, state: BatchAcks, indexes: Sequence[int], states: AckStates
    ) -> bool:
        flags = state.flags
        if len(indexes) == 1:
            state.left -= flags[indexes[0]]
            flags[indexes[0]] = 0
        else:
            for index in indexes:
                flags[index] = 0
            state.left = flags.count(1)
        if not state.left:
            if states.get(position) is state:
                del states[position]
            self._individual[position] = None
            return True
        if not self._batch_index_ack:
            return False
        waiting = self._individual.get(position)
        if waiting is not None and waiting is not state and len(waiting.flags) == len(flags):
            # Of two deliveries of one entry: one group tells of both.
            state = waiting.merged(state)
        self._individual[position] = state
        return True

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
            for position in [p for p in self._states if p <= done]:
                self._drop(position)

    def _drop(self, position: Position) -> None:
        state = self._states.pop(position, None)
        if state is not None:
            state.finish()

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

    def deliver(self, delivery: Delivery) -> bytearray | None:
        """An entry came. For a batch that was acknowledged in part since the consumer was attached:
        one flag for each message, 1 where it isn't acknowledged yet.
        """
        states = delivery.ack_states = self._states
        state = states.get((delivery.ledger_id, delivery.entry_id)) if states else None
        if state is None or len(state.flags) != delivery.message_count:
            return None
        delivery.ack_state = state
        return state.flags

    def is_left(self, delivery: Delivery, index: int) -> bool:
        """Whether a message of a delivered entry isn't acknowledged yet."""
        states = delivery.ack_states
        state = delivery.ack_state
        if state is None and states:
            state = states.get((delivery.ledger_id, delivery.entry_id))
        if state is None or len(state.flags) != delivery.message_count:
            return True
        return bool(state.flags[index])

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

    def detached(self) -> None:
        """What comes over the next attachment is delivered anew. What waits to be sent goes on
        waiting.
        """
        self._states.clear()
        self._states = {}

    def reset(self) -> None:
        """Forget everything: after a seek, old acknowledgements mean nothing."""
        self.detached()
        self._individual = {}
        self._cumulative = None
