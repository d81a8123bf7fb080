"""The entries held by the members of a Shared or Key_Shared subscription: from the send until they
are acknowledged or given back (spec BR-32, BR-33).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias

from geminga_broker.log.api import Ack, Entry
from geminga_broker.subscription import effects as fx
from geminga_broker.subscription import events as ev
from geminga_broker.subscription.delayed_tracker import DelayedTracker
from geminga_broker.subscription.state import M, State
from geminga_broker.subscription.strategies.key_shared import KeyShared
from geminga_broker.subscription.strategies.shared import Shared
from geminga_protocol import ack_set as ack_sets
from geminga_protocol.ids import EARLIEST, Position

Sharing: TypeAlias = Shared[M] | KeyShared[M]
"""The strategies that share entries among members."""


class Holdings(Generic[M]):
    """The held entries; the strategy has those that wait to be resent."""

    def __init__(
        self,
        state: State[M],
        strategy: Sharing[M],
        delays: DelayedTracker,
        paused: Callable[[], bool],
    ) -> None:
        self.state = state
        self.strategy = strategy
        self.replay = strategy.replay
        self.delays = delays
        self.counts: dict[Position, int] = {}
        """Earlier deliveries of entries; bounded by the unacked limits."""
        self.over_limit = False
        """Whether the subscription's own unacked limit was reached at the last check."""
        self.wake = False
        """Whether the step must end with WAKE."""
        self.held_upto = EARLIEST
        """The last entry that a member held at the last reread of the log."""
        self._paused = paused
        """Whether the broker's limit of unacknowledged messages pauses this subscription."""

    @property
    def blocked(self) -> bool:
        """Whether the subscription's unacked limit is reached; ends at half of it."""
        if self._paused():
            return True
        limit = self.state.options.unacked_per_subscription_max
        if not limit:
            self.over_limit = False
        elif (unacked := sum([member.unacked for member in self.state.members])) >= limit:
            self.over_limit = True
        elif unacked < limit / 2:
            self.over_limit = False
        return self.over_limit

    def change(self) -> None:
        """Waiting entries may have become sendable: run a round."""
        self.state.epochs.note_changed()
        self.wake = True

    def left(self, event: ev.Left[M]) -> None:
        """Queue its entries for the others; without others, start over with the next member."""
        state, member = self.state, event.member
        if len(state.members) > 1 and not event.all_leave:
            self.strategy.remove(member, member.pending)
            state.epochs.note_put_back()
        else:
            self.strategy.remove(member, None)
        member.pending.clear()
        if not state.members:
            self.strategy.emptied()
            self.counts.clear()
            self.reset()
        member.unacked = 0
        self.wake = True

    def reset(self) -> None:
        """Start over from the mark-delete position; takes effect with the next round."""
        self.state.epochs.note_reset()
        self.state.unsent = ()
        self.wake = True

    def redeliver(self, event: ev.Redelivered[M], effects: list[fx.Effect[M]]) -> None:
        """Queue those of the entries that this member holds and that are not acknowledged."""
        member = event.member
        held = member.pending
        messages = 0
        back: list[Position] = []
        for position in list(held) if event.positions is None else event.positions:
            count = held.pop(position, None)
            if count is None:
                continue
            messages += count
            if self.state.acknowledged.is_deleted(position):
                # Acknowledged while it was being read, when no member held it.
                self.wake |= self.strategy.released(position)
                continue
            self.counts[position] = self.counts.get(position, 0) + 1
            back.append(position)
        if back:
            self.strategy.put_back(back)
            self.state.epochs.note_put_back()
        effects.append(fx.CountRedelivered(member, messages))
        if member.release(messages):
            self.change()
        if member.blocked and member.unacked < member.limit:
            member.unblock()
            self.change()
        self.wake = True

    def acked(self, event: ev.Acked[M], effects: list[fx.Effect[M]]) -> None:
        """The member that acknowledges an entry need not be its holder."""
        assert not event.cumulative, "consumers refuse cumulative acks of this type"
        member = event.member
        if event.pending:
            self._suspend(event)
            return
        was_blocked = self.over_limit
        parts: list[Position] = []
        counts, pending, released = self.counts, member.pending, self.strategy.released
        for ack in event.acks:
            position = ack.position
            if ack.ack_set:
                parts.append(position)
                continue
            messages = pending.pop(position, None)
            if messages is None:
                self._acknowledged_elsewhere(position)
            else:
                if released(position):
                    self.wake = True
                if member.release(messages):
                    self.change()
            if counts:
                counts.pop(position, None)
        if not member.pending:
            member.pending.clear()  # frees the memory of a dict that a burst enlarged
        acks = self.state.recordable(event.acks)
        if parts and self.state.options.batch_index_ack:
            effects.append(fx.Acknowledge(acks, member, parts))
        else:
            effects.append(fx.Acknowledge(acks))
        if was_blocked and not self.blocked:
            self.wake = True

    def _suspend(self, event: ev.Acked[M]) -> None:
        """Acknowledgements are pending: no member holds the entries."""
        strategy, provisional = self.strategy, self.state.provisional
        was_blocked = self.over_limit
        for position, _, _ in event.acks:
            held = position in event.member.pending
            owner = event.member if held else self._holder(position)
            if owner is None:
                provisional.setdefault(position, None)
                continue
            provisional[position] = strategy.hash_of_held(position)
            self.wake |= strategy.released(position)
            if owner.release(owner.pending.pop(position)):
                self.change()
        self.wake |= was_blocked and not self.blocked

    def resolve(self, event: ev.Resolved, effects: list[fx.Effect[M]]) -> None:
        """Acknowledge pending entries, or queue them as if given back."""
        for position in event.positions:
            key_hash = self.state.provisional.pop(position, None)
            if event.committed:
                self._acknowledged_elsewhere(position)
                self.counts.pop(position, None)
            elif key_hash is not None and not self.state.acknowledged.is_deleted(position):
                self.counts[position] = self.counts.get(position, 0) + 1
                self.replay.add(position, key_hash)
        if event.committed:
            effects.append(fx.Acknowledge([Ack(position) for position in event.positions]))
        else:
            self.state.epochs.note_put_back()
        self.change()

    def without_pending(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries without those with a pending acknowledgement."""
        provisional = self.state.provisional
        if not provisional:
            return entries
        for entry in entries:
            if entry.position in provisional and entry.position not in self.delays:
                provisional[entry.position] = self.strategy.hash_of(entry)
        return [entry for entry in entries if entry.position not in provisional]

    def _acknowledged_elsewhere(self, position: Position) -> None:
        """Acknowledge an entry of another member, or of none: then it may be queued."""
        owner = self._holder(position)
        if owner is not None:
            if self.strategy.released(position):
                self.wake = True
            if owner.release(owner.pending.pop(position)):
                self.change()
            return
        self.state.epochs.note_acked()
        self.delays.discard(position)
        self.strategy.acknowledged_unheld(position)
        if self.replay and self.replay.discard(position):
            self.wake = True  # room for look-ahead

    def parts_recorded(self, event: ev.PartsRecorded[M]) -> None:
        """Take the rest of these batches from the cursor, which has all acknowledgements."""
        was_blocked = self.over_limit
        known = self.state.acknowledged
        for position in event.positions:
            if known.is_deleted(position):
                self._acknowledged_elsewhere(position)
                self.counts.pop(position, None)
                continue
            owner = event.member if position in event.member.pending else self._holder(position)
            words = known.ack_set(position)
            if owner is not None and words:
                held = owner.pending[position]
                left = owner.pending[position] = min(held, ack_sets.cardinality(words))
                if owner.release(held - left):
                    self.change()
        if was_blocked and not self.blocked:
            self.wake = True

    def _holder(self, position: Position) -> M | None:
        for member in self.state.members:
            if position in member.pending:
                return member
        return None

    def unheld(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries without held and queued ones, during a reread of the log."""
        if not entries or entries[0].position > self.held_upto:
            return entries
        return [
            entry
            for entry in entries
            if entry.position not in self.replay and self._holder(entry.position) is None
        ]
