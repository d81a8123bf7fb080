"""The decisions of a subscription: `step` takes an event and returns effects. The pump has all
tasks, clocks, cursors and connections.

`OrderedMachine` is for Exclusive and Failover, `TrackedMachine` (tracked.py) for Shared and
Key_Shared. A round begins with RoundBegun. While a step ends with an effect that reads, its result
is the next event of the round; other events may come in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from geminga_broker.log.api import Ack, Entry
from geminga_broker.subscription import effects as fx
from geminga_broker.subscription import events as ev
from geminga_broker.subscription.state import NO_ACK_SETS, M, State
from geminga_broker.subscription.strategies.single_active import SingleActive
from geminga_broker.topic.api import KeySharedPolicy
from geminga_broker.topic.stats import SubscriptionStats


class OrderedMachine(Generic[M]):
    """Follows PersistentDispatcherSingleActiveConsumer. Redelivery restarts at the mark-delete
    position, since order comes first; nothing is tracked per entry.
    """

    def __init__(self, state: State[M], strategy: SingleActive[M]) -> None:
        self.state = state
        self.sub_type = strategy.sub_type
        self._strategy = strategy
        self.pauses_until_s = 0.0
        """When a new active member is first sent to, by the loop's clock."""

    @property
    def active(self) -> M | None:
        """The active member."""
        return self._strategy.active

    def matches(self, policy: KeySharedPolicy) -> bool:
        """Always: Key_Shared policies are ignored."""
        return True

    def describe(self, stats: SubscriptionStats) -> None:
        """Add the active member; nothing is blocked, delayed or replayed."""
        stats.active_consumer_name = self.active.name if self.active is not None else None

    def step(self, event: ev.Event[M]) -> list[fx.Effect[M]]:
        """Handle an event. Raises BrokerError for a refused Joined."""
        match event:
            case ev.RoundBegun():
                return self._begin(event)
            case ev.EntriesRead():
                return self._read(event)
            case ev.Acked():
                return self._acked(event)
            case ev.Flow():
                event.member.grant(event.permits)
                return [fx.WAKE]
            case ev.Writable():
                return [fx.WAKE]
            case ev.Joined():
                self._strategy.admit(event.member, event.policy)
            case ev.Welcomed():
                return self._elect(event.now_s, event.member)
            case ev.Left():
                self._strategy.remove(event.member)
                return self._elect(event.now_s)
            case ev.Redelivered():
                return self._redeliver(event)
            case ev.DeletedOutside():
                self.state.forget_deleted()
            case ev.Resolved():
                return self._resolve(event)
            case ev.ReadableUpto():
                self.state.readable_upto = event.position
                return [fx.WAKE]
            case ev.OptionsChanged():
                self.state.options = event.options
        return []

    def _elect(self, now_s: float, added: M | None = None) -> list[fx.Effect[M]]:
        """Choose the active member after a change; a new one starts at the mark-delete position."""
        before = self._strategy.active
        effects: list[fx.Effect[M]] = [*self._strategy.elect(added)]
        active = self._strategy.active
        if active is before:
            return effects
        if before is not None and before.sent and active is not None:
            # A short pause avoids duplicates: the old one may still acknowledge its entries.
            self.pauses_until_s = now_s + self.state.options.failover_delay_s
        if active is not None:
            effects.append(fx.ReadFor(active))
        return [*effects, *self._reset()]

    def _reset(self) -> list[fx.Effect[M]]:
        self.state.epochs.note_reset()
        self.state.unsent = ()
        return [fx.WAKE]

    def _acked(self, event: ev.Acked[M]) -> list[fx.Effect[M]]:
        if event.pending:
            self.state.provisional.update((ack.position, None) for ack in event.acks)
            return []
        if not event.cumulative:
            return [fx.Acknowledge(self.state.recordable(event.acks))]
        return [fx.AcknowledgeUpto(event.acks[0], self.state.options.batch_index_ack)]

    def _resolve(self, event: ev.Resolved) -> list[fx.Effect[M]]:
        for position in event.positions:
            self.state.provisional.pop(position, None)
        if event.committed:
            return [fx.Acknowledge([Ack(position) for position in event.positions])]
        return self._reset()

    def _redeliver(self, event: ev.Redelivered[M]) -> list[fx.Effect[M]]:
        """Resend all from the mark-delete position, not only these entries; active member only."""
        if event.member is not self._strategy.active:
            return []
        return [fx.CountRedelivered(event.member, 1), *self._reset()]

    def _begin(self, event: ev.RoundBegun) -> list[fx.Effect[M]]:
        """Send unsent entries, or read for the active member."""
        state = self.state
        member = self._strategy.active
        if event.now_s < self.pauses_until_s:
            return [fx.PauseUntil(self.pauses_until_s)]
        if member is None or not member.ready:
            return []
        state.allowance, state.paced = event.allowance, event.paced
        effects: list[fx.Effect[M]] = []
        available = event.available
        if state.epochs.stale:
            state.epochs.rewound = state.epochs.now
            effects.append(fx.REWIND)
            available = True
        if state.unsent:
            self._send(state.unsent, effects)
        elif available:
            wanted = state.entries_wanted(member.permits, member.average)
            effects.append(fx.Read(wanted, state.bytes_max, state.readable_upto))
        return effects

    def _read(self, event: ev.EntriesRead) -> list[fx.Effect[M]]:
        entries = event.entries
        if self.state.epochs.stale:
            return [fx.AGAIN]
        if not entries:
            return []
        effects: list[fx.Effect[M]] = []
        # Markers are the broker's own, not for clients.
        markers = {
            entry.position
            for entry in entries
            if (found := entry.special) and found.HasField("marker_type")
        }
        if markers:
            effects.append(fx.Acknowledge([Ack(position) for position in sorted(markers)]))
            entries = [entry for entry in entries if entry.position not in markers]
        judged = self.state.judge(entries)
        if judged is not None and judged.rejected:
            # Rescheduled entries are sent: the order doesn't allow to retry them later.
            effects.append(fx.Acknowledge(judged.rejected))
            gone = {ack.position for ack in judged.rejected}
            entries = [entry for entry in entries if entry.position not in gone]
        self._send(entries, effects, event.available)
        return effects

    def _send(
        self, entries: Sequence[Entry], effects: list[fx.Effect[M]], available: bool = True
    ) -> None:
        def give(member: M, taken: Sequence[Entry], counts: Sequence[int]) -> None:
            acked = NO_ACK_SETS
            if self.state.options.batch_index_ack:
                counts, acked = self.state.without_acked(taken, counts)
            messages = sum(counts)
            member.take(len(counts), messages)
            effects.append(fx.Send(member, taken, messages, ack_sets=acked))

        if pending := self.state.provisional:
            entries = [entry for entry in entries if entry.position not in pending]
        unsent = self.state.unsent = self._strategy.assign(entries, give)
        if available or unsent:
            effects.append(fx.AGAIN)
