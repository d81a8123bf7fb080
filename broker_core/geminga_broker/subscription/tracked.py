"""The machine of Shared and Key_Shared: each sent entry is held until it is acknowledged or given
back (spec BR-32, BR-33, BR-34).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from geminga_broker.subscription import effects as fx
from geminga_broker.subscription import events as ev
from geminga_broker.subscription.delayed_tracker import DelayedTracker
from geminga_broker.subscription.holdings import Holdings, Sharing
from geminga_broker.subscription.rounds import Rounds
from geminga_broker.subscription.state import M, State
from geminga_broker.topic.stats import SubscriptionStats


class TrackedMachine(Generic[M]):
    """Follows PersistentDispatcherMultipleConsumers: `holdings` has the members' entries, `rounds`
    sends them.
    """

    active: M | None = None

    def __init__(
        self,
        state: State[M],
        strategy: Sharing[M],
        delays: DelayedTracker,
        paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self.state = state
        self.strategy = strategy
        self.sub_type = strategy.sub_type
        self.matches = strategy.matches
        self.holdings: Holdings[M] = Holdings(state, strategy, delays, paused)
        self._rounds: Rounds[M] = Rounds(self.holdings)
        self._delays = delays

    def describe(self, stats: SubscriptionStats) -> None:
        """Add waiting entries, reasons of pauses, and the strategy's own statistics."""
        delays, strategy = self._delays, self.strategy
        stats.blocked_subscription_on_unacked_msgs = self.holdings.blocked
        stats.msg_delayed = len(delays)
        stats.delayed_message_index_size_in_bytes = delays.size_bytes
        stats.msg_in_replay = strategy.waiting
        stats.key_shared_mode = strategy.mode
        stats.allow_out_of_order_delivery = strategy.out_of_order
        strategy.describe(stats)

    def step(self, event: ev.Event[M]) -> list[fx.Effect[M]]:
        """Handle an event. Raises BrokerError for a refused Joined."""
        effects: list[fx.Effect[M]] = []
        holdings, rounds = self.holdings, self._rounds
        match event:
            case ev.Acked():
                holdings.acked(event, effects)
            case ev.RoundBegun():
                rounds.begin(event, effects)
            case ev.EntriesRead():
                rounds.read(event, effects)
            case ev.EntriesReadAgain():
                rounds.read_again(event, effects)
            case ev.Flow():
                event.member.grant(event.permits)
                if not event.member.blocked:
                    holdings.change()
            case ev.Writable():
                holdings.change()
            case ev.DueCollected():
                rounds.due(event, effects)
            case ev.ReadFailed():
                rounds.fail(effects)
            case ev.Redelivered():
                holdings.redeliver(event, effects)
            case _:
                self._step_rarely(event, effects)
        if holdings.wake:
            holdings.wake = False
            effects.append(fx.WAKE)
        return effects

    def _step_rarely(self, event: ev.Event[M], effects: list[fx.Effect[M]]) -> None:
        holdings, state = self.holdings, self.state
        match event:
            case ev.PartsRecorded():
                holdings.parts_recorded(event)
            case ev.Resolved():
                holdings.resolve(event, effects)
            case ev.ReadableUpto():
                state.readable_upto = event.position
                holdings.wake = True
            case ev.Joined():
                self.strategy.admit(event.member, event.policy)
            case ev.Welcomed():
                holdings.wake = True
            case ev.Left():
                holdings.left(event)
            case ev.DeletedOutside():
                state.forget_deleted()
                state.epochs.note_acked()
                self._delays.discard_upto(event.mark_delete)
                if self._delays.finished:
                    effects.append(fx.SAVE_DELAYS)
                self.strategy.discard_where(state.acknowledged.is_deleted)
                holdings.wake = True
            case ev.OptionsChanged():
                state.options = event.options
                holdings.change()
