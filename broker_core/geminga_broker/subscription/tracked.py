"""The machine of Shared and Key_Shared: every entry that was sent is held until it is acknowledged
or given back (spec BR-32, BR-33, BR-34).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

from geminga_broker.subscription.effects import WAKE, Effect
from geminga_broker.subscription.events import (
    Acked,
    DeletedOutside,
    DueCollected,
    EntriesRead,
    EntriesReadAgain,
    Event,
    Flow,
    Joined,
    Left,
    OptionsChanged,
    PartsRecorded,
    ReadableUpto,
    ReadFailed,
    Redelivered,
    Resolved,
    RoundBegun,
    Welcomed,
    Writable,
)
from geminga_broker.subscription.holdings import Holdings
from geminga_broker.subscription.machine import Figures
from geminga_broker.subscription.rounds import Rounds
from geminga_broker.subscription.state import M, State
from geminga_broker.subscription.strategies.api import Delays, Sharing
from geminga_broker.topic.api import KeySharedPolicy
from geminga_broker.topic.stats import ConsumerStats


class TrackedMachine(Generic[M]):
    """Follows PersistentDispatcherMultipleConsumers: `holdings` for what members have, `rounds` for
    what they get.
    """

    active: M | None = None

    def __init__(
        self,
        state: State[M],
        strategy: Sharing[M],
        delays: Delays,
        paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self.state = state
        self.strategy = strategy
        self.holdings: Holdings[M] = Holdings(state, strategy, delays, paused)
        self._rounds: Rounds[M] = Rounds(self.holdings)
        self._delays = delays

    @property
    def sub_type(self) -> int:
        """Shared or Key_Shared."""
        return self.strategy.sub_type

    def matches(self, policy: KeySharedPolicy) -> bool:
        """Whether a consumer with that Key_Shared policy may join."""
        return self.strategy.matches(policy)

    def figures(self) -> Figures:
        """For statistics."""
        delays, strategy = self._delays, self.strategy
        return Figures(
            self.holdings.blocked,
            len(delays),
            delays.size_bytes,
            strategy.waiting,
            strategy.mode,
            strategy.out_of_order,
        )

    def describe(self, consumers: Sequence[tuple[M, ConsumerStats]]) -> None:
        """Add to the statistics of the members what only the strategy knows."""
        self.strategy.describe(consumers)

    def step(self, event: Event[M]) -> list[Effect[M]]:
        """Take note of an event. Raises BrokerError for a Joined that is refused."""
        effects: list[Effect[M]] = []
        holdings, rounds = self.holdings, self._rounds
        match event:
            case Acked():
                holdings.acked(event, effects)
            case RoundBegun():
                rounds.begin(event, effects)
            case EntriesRead():
                rounds.read(event, effects)
            case EntriesReadAgain():
                rounds.read_again(event, effects)
            case Flow():
                event.member.grant(event.permits)
                if not event.member.blocked:
                    holdings.change()
            case Writable():
                holdings.change()
            case DueCollected():
                rounds.due(event, effects)
            case ReadFailed():
                rounds.fail(effects)
            case Redelivered():
                holdings.redeliver(event, effects)
            case _:
                self._step_rarely(event, effects)
        if holdings.wake:
            holdings.wake = False
            effects.append(WAKE)
        return effects

    def _step_rarely(self, event: Event[M], effects: list[Effect[M]]) -> None:
        holdings, state = self.holdings, self.state
        match event:
            case PartsRecorded():
                holdings.parts_recorded(event)
            case Resolved():
                holdings.resolve(event, effects)
            case ReadableUpto():
                state.readable_upto = event.position
                holdings.wake = True
            case Joined():
                self.strategy.admit(event.member, event.policy)
            case Welcomed():
                holdings.wake = True
            case Left():
                holdings.left(event)
            case DeletedOutside():
                state.forget_deleted()
                state.epochs.note_acked()
                self._delays.forget_deleted()
                holdings.wake |= self.strategy.discard_where(state.acknowledged.is_deleted)
            case OptionsChanged():
                state.options = event.options
                holdings.change()
            case _:
                pass
