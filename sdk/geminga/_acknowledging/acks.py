"""Acknowledgements waiting to be sent to the broker (spec SDK-22;
PersistentAcknowledgmentsGroupingTracker of the Java client). Pure.

Acknowledged messages of a batch are noted one by one; the entry is acknowledged with its last one,
or, with batch-index acknowledgement, each group tells the broker the unacknowledged ones (PIP-54).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from geminga_protocol.ack_set import AckSet, from_bits, full, to_bits

Position = tuple[int, int]

UNACKED_BATCHES_MAX = 100_000
"""Bound of remembered partly acknowledged batches; acknowledged messages of the oldest, forgotten
one may be redelivered (at least once holds)."""


RUN_IDS_MIN = 16
"""Shorter runs are sent with the other ids."""
_NO_RUN = -1 << 70
"""No id on the wire is so low."""


class AckGroup(NamedTuple):
    """One ACK command: positions, each with its batch's unacknowledged messages (empty: none); or a
    run of whole entries that follow one another: ledger, first entry, number of entries.
    """

    cumulative: bool
    ids: list[tuple[int, int, AckSet]]
    run: tuple[int, int, int] | None = None

    def all_ids(self) -> list[tuple[int, int, AckSet]]:
        """The positions, those of a run too."""
        if self.run is None:
            return self.ids
        ledger_id, first, count = self.run
        return [(ledger_id, entry_id, ()) for entry_id in range(first, first + count)]


class BatchAcks:
    """The unacknowledged messages of a delivered batch; `left` is their number."""

    __slots__ = ("flags", "left")

    def __init__(self, batch_size: int, ack_set: AckSet) -> None:
        """`ack_set`: unacknowledged messages according to the broker; empty: all."""
        if ack_set:
            bits = to_bits(ack_set)
            self.flags = bytearray(bits >> n & 1 for n in range(batch_size))
            self.left = sum(self.flags)
        else:
            self.flags = bytearray(b"\x01") * batch_size
            self.left = batch_size

    def ack_set(self) -> AckSet:
        """The unacknowledged messages, in the wire's form."""
        return from_bits(sum(1 << n for n, flag in enumerate(self.flags) if flag))

    def finish(self) -> None:
        """Mark the whole entry as acknowledged."""
        self.flags = bytearray(len(self.flags))
        self.left = 0

    def merged(self, other: BatchAcks) -> BatchAcks:
        """A new state: messages acknowledged by neither this nor the other delivery."""
        made = BatchAcks(len(self.flags), ())
        made.flags = bytearray(map(min, self.flags, other.flags))
        made.left = made.flags.count(1)
        return made


AckStates = dict[Position, BatchAcks]
"""States of one connection's batches, from their first acknowledgement on."""


class Delivery(Protocol):
    """A delivered entry. Its `ack_set` never changes: the first acknowledgement creates
    `ack_state`, which deliveries of the same entry over one connection share.
    """

    ledger_id: int
    entry_id: int
    message_count: int
    ack_set: AckSet
    ack_state: BatchAcks | None
    ack_states: AckStates | None


class AckTracker:
    """Collects acknowledgements and returns them in groups.

    States belong to deliveries, not to positions: if another client moves the cursor back, the
    consumer is disconnected, and every message must be delivered again.
    """

    keeps = True
    """Whether acknowledgements are remembered."""

    def __init__(self, *, batch_index_ack: bool) -> None:
        self._batch_index_ack = batch_index_ack
        self._states: AckStates = {}
        self._individual: dict[Position, BatchAcks | None] = {}
        self._cumulative: tuple[int, int, AckSet] | None = None
        # Whole entries that were acknowledged one after the other; none is in `_individual`.
        self._run_ledger = self._run_first = self._run_end = _NO_RUN

    def __len__(self) -> int:
        """Positions waiting to be sent."""
        run = self._run_end - self._run_first
        return len(self._individual) + (self._cumulative is not None) + run

    def add(self, ledger_id: int, entry_id: int) -> None:
        """Acknowledge a whole entry."""
        if entry_id == self._run_end and ledger_id == self._run_ledger:
            self._run_end = entry_id + 1
            if not self._individual and not self._states:
                return
            # What waits of a part of it is told with the whole.
            self._individual.pop((ledger_id, entry_id), None)
        elif self._run_ledger == _NO_RUN and ledger_id >= 0 and entry_id >= 0:
            self._run_ledger, self._run_first = ledger_id, entry_id
            self._run_end = entry_id + 1
            self._individual.pop((ledger_id, entry_id), None)
        elif not self._is_in_run(ledger_id, entry_id):
            self._individual[ledger_id, entry_id] = None
        if self._states:
            self._drop((ledger_id, entry_id))

    def _is_in_run(self, ledger_id: int, entry_id: int) -> bool:
        return ledger_id == self._run_ledger and self._run_first <= entry_id < self._run_end

    def add_all(self, positions: Iterable[Position]) -> None:
        """Acknowledge whole entries."""
        for position in positions:
            self.add(*position)

    def add_in_batch(
        self, position: Position, index: int, batch_size: int, ack_set: AckSet = ()
    ) -> bool:
        """Acknowledge one message of a batch by its id. Returns whether there is something new to
        send.
        """
        if self._waits_whole(position):
            return False
        state = self._state(self._states, position, batch_size, ack_set)
        return self._note(position, state, (index,), self._states)

    def add_delivered(self, delivery: Delivery, indexes: Sequence[int]) -> bool:
        """Acknowledge messages of a delivered batch. Returns whether there is something new to
        send.
        """
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
        return self._individual.get(position, position) is None or self._is_in_run(*position)

    @staticmethod
    def _state(
        states: AckStates, position: Position, batch_size: int, ack_set: AckSet
    ) -> BatchAcks:
        state = states.get(position)
        # An id made by the program may have had a wrong size: replace its state.
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
            # Two deliveries of one entry: one group has both.
            state = waiting.merged(state)
        self._individual[position] = state
        return True

    def add_cumulative(
        self, ledger_id: int, entry_id: int, index: int = -1, batch_size: int = 0
    ) -> None:
        """Acknowledge all up to the message, inclusive. A position before a waiting one changes
        nothing.
        """
        left: AckSet = ()
        if 0 <= index < batch_size - 1:
            if self._batch_index_ack:
                left = from_bits(to_bits(full(batch_size)) >> (index + 1) << (index + 1))
            else:
                # A partly acknowledged batch: whole entries are acknowledged up to before it.
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
        """Whether the whole entry is acknowledged, sent or not."""
        position = ledger_id, entry_id
        if self._is_in_run(ledger_id, entry_id):
            return True
        if position in self._individual:
            return self._individual[position] is None
        reached = self._cumulative
        if reached is None:
            return False
        return position < reached[:2] or (position == reached[:2] and not reached[2])

    def fresh_from(self, ledger_id: int) -> int | None:
        """The ledger's entries from that one on are not acknowledged, as far as is known here; None
        if each has to be asked about.
        """
        reached = self._cumulative
        if self._individual or (reached is not None and reached[0] > ledger_id):
            return None
        fresh = self._run_end if self._run_ledger == ledger_id else 0
        if reached is not None and reached[0] == ledger_id:
            fresh = max(fresh, reached[1] + 1)
        return fresh

    def deliver(self, delivery: Delivery) -> bytearray | None:
        """Note a delivered entry. For a batch that is partly acknowledged over this connection,
        returns one flag per message, 1 if it is unacknowledged.
        """
        states = delivery.ack_states = self._states
        state = states.get((delivery.ledger_id, delivery.entry_id)) if states else None
        if state is None or len(state.flags) != delivery.message_count:
            return None
        delivery.ack_state = state
        return state.flags

    def is_left(self, delivery: Delivery, index: int) -> bool:
        """Whether a message of a delivered entry is unacknowledged."""
        states = delivery.ack_states
        state = delivery.ack_state
        if state is None and states:
            state = states.get((delivery.ledger_id, delivery.entry_id))
        if state is None or len(state.flags) != delivery.message_count:
            return True
        return bool(state.flags[index])

    def take(self, ids_max: int = 1000) -> list[AckGroup]:
        """Take all waiting acknowledgements, in commands of at most `ids_max` positions."""
        groups: list[AckGroup] = []
        if self._cumulative is not None:
            # Forget it once sent: if the broker loses it, it redelivers, and needs it again.
            groups.append(AckGroup(True, [self._cumulative]))
            self._cumulative = None
        ids = [
            (ledger_id, entry_id, () if state is None else state.ack_set())
            for (ledger_id, entry_id), state in self._individual.items()
        ]
        self._individual = {}
        ledger_id, first, end = self._run_ledger, self._run_first, self._run_end
        self._run_ledger = self._run_first = self._run_end = _NO_RUN
        if end - first < RUN_IDS_MIN:
            ids += [(ledger_id, entry_id, ()) for entry_id in range(first, end)]
        else:
            for at in range(first, end, ids_max):
                run = ledger_id, at, min(ids_max, end - at)
                groups.append(AckGroup(False, [], run))
        groups += [AckGroup(False, ids[at : at + ids_max]) for at in range(0, len(ids), ids_max)]
        return groups

    def detached(self) -> None:
        """Forget states of deliveries, as the next connection delivers again. Acknowledgements
        still wait to be sent.
        """
        self._states.clear()
        self._states = {}

    def reset(self) -> None:
        """Forget everything: after a seek, old acknowledgements mean nothing."""
        self.detached()
        self._individual = {}
        self._cumulative = None
        self._run_ledger = self._run_first = self._run_end = _NO_RUN


class PassingAcks(AckTracker):
    """For a non-persistent topic, whose messages all have the same id: nothing is remembered nor
    sent, else a message would be dropped while the acknowledgement of the one before waits
    (NonPersistentAcknowledgmentGroupingTracker of the Java client).
    """

    keeps = False

    def add(self, ledger_id: int, entry_id: int) -> None:
        """Nothing is noted."""

    def add_in_batch(
        self, position: Position, index: int, batch_size: int, ack_set: AckSet = ()
    ) -> bool:
        """Nothing is noted."""
        return False

    def add_delivered(self, delivery: Delivery, indexes: Sequence[int]) -> bool:
        """Nothing is noted."""
        return False

    def add_cumulative(
        self, ledger_id: int, entry_id: int, index: int = -1, batch_size: int = 0
    ) -> None:
        """Nothing is noted."""

    def deliver(self, delivery: Delivery) -> bytearray | None:
        """Each delivery is a message of its own."""
        return None
