"""The decisions of a subscription: `step` takes an event and returns effects. No task, clock,
cursor or connection: the pump has those.

`OrderedMachine` is that of Exclusive and Failover, `TrackedMachine` (tracked.py) that of Shared and
Key_Shared. A round begins with RoundBegun. As long as a step ends with an effect that reads, its
result is the next event of the round; meanwhile other events may come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol

from geminga_broker.log.api import Ack, Entry
from geminga_broker.subscription.effects import (
    AGAIN,
    REWIND,
    WAKE,
    Acknowledge,
    AcknowledgeUpto,
    CountRedelivered,
    Effect,
    PauseUntil,
    Read,
    ReadFor,
    Send,
)
from geminga_broker.subscription.events import (
    Acked,
    DeletedOutside,
    EntriesRead,
    Event,
    Flow,
    Joined,
    Left,
    OptionsChanged,
    ReadableUpto,
    Redelivered,
    Resolved,
    RoundBegun,
    Welcomed,
    Writable,
)
from geminga_broker.subscription.special_metadata import special_metadata
from geminga_broker.subscription.state import NO_ACK_SETS, M, State
from geminga_broker.subscription.strategies.single_active import SingleActive
from geminga_broker.topic.api import KeySharedPolicy
from geminga_broker.topic.stats import ConsumerStats


class Figures(NamedTuple):
    """What statistics show of a machine."""

    blocked: bool = False
    """Whether the subscription as a whole has too many unacknowledged messages."""
    delayed: int = 0
    """Entries that wait for their time."""
    delayed_bytes: int = 0
    """About how much memory it takes to know them."""
    replaying: int = 0
    """Entries that wait to be sent again."""
    key_shared_mode: str | None = None
    out_of_order: bool = False
    """Whether consumers said that the order of a key does not matter."""


class Machine(Protocol[M]):
    """One of the two."""

    state: State[M]

    @property
    def sub_type(self) -> int:
        """The type of the subscription."""

    @property
    def active(self) -> M | None:
        """The active member of Exclusive and Failover."""

    def matches(self, policy: KeySharedPolicy) -> bool:
        """Whether a consumer with that Key_Shared policy may join."""

    def step(self, event: Event[M]) -> list[Effect[M]]:
        """Take note of an event. Raises BrokerError for a Joined that is refused."""

    def figures(self) -> Figures:
        """For statistics."""

    def describe(self, consumers: Sequence[tuple[M, ConsumerStats]]) -> None:
        """Add to the statistics of the members what only the machine knows."""


class OrderedMachine(Generic[M]):
    """Follows PersistentDispatcherSingleActiveConsumer. Redelivery goes back to the mark-delete
    position, since order comes first; nothing is tracked per entry.
    """

    def __init__(self, state: State[M], strategy: SingleActive[M]) -> None:
        self.state = state
        self._strategy = strategy
        self._not_before_s = 0.0

    @property
    def sub_type(self) -> int:
        """Exclusive or Failover."""
        return self._strategy.sub_type

    @property
    def active(self) -> M | None:
        """The active member."""
        return self._strategy.active

    def matches(self, policy: KeySharedPolicy) -> bool:
        """Policies do not matter here."""
        return True

    def figures(self) -> Figures:
        """Nothing is blocked, delayed or replayed."""
        return Figures()

    def describe(self, consumers: Sequence[tuple[M, ConsumerStats]]) -> None:
        """There is nothing to add."""

    def step(self, event: Event[M]) -> list[Effect[M]]:
        """Take note of an event. Raises BrokerError for a Joined that is refused."""
        match event:
            case RoundBegun():
                return self._begin(event)
            case EntriesRead():
                return self._read(event)
            case Acked():
                return self._acked(event)
            case Flow():
                event.member.grant(event.permits)
                return [WAKE]
            case Writable():
                return [WAKE]
            case Joined():
                self._strategy.admit(event.member, event.policy)
            case Welcomed():
                return self._elect(event.now_s, event.member)
            case Left():
                self._strategy.remove(event.member)
                return self._elect(event.now_s)
            case Redelivered():
                return self._redeliver(event)
            case DeletedOutside():
                self.state.forget_deleted()
            case Resolved():
                return self._resolve(event)
            case ReadableUpto():
                self.state.readable_upto = event.position
                return [WAKE]
            case OptionsChanged():
                self.state.options = event.options
            case _:
                pass
        return []

    def _elect(self, now_s: float, added: M | None = None) -> list[Effect[M]]:
        """Choose the active member after a change; the next goes on from the mark-delete
        position.
        """
        before = self._strategy.active
        effects: list[Effect[M]] = [*self._strategy.elect(added)]
        active = self._strategy.active
        if active is before:
            return effects
        if before is not None and before.sent and active is not None:
            # The old one may still acknowledge what it has: a short pause spares duplicates.
            self._not_before_s = now_s + self.state.options.failover_delay_s
        if active is not None:
            effects.append(ReadFor(active))
        return [*effects, *self._reset()]

    def _reset(self) -> list[Effect[M]]:
        self.state.epochs.note_reset()
        self.state.unsent = ()
        return [WAKE]

    def _acked(self, event: Acked[M]) -> list[Effect[M]]:
        if event.pending:
            self.state.provisional.update((ack.position, None) for ack in event.acks)
            return []
        if not event.cumulative:
            return [Acknowledge(self.state.recordable(event.acks))]
        return [AcknowledgeUpto(event.acks[0], self.state.options.batch_index_ack)]

    def _resolve(self, event: Resolved) -> list[Effect[M]]:
        for position in event.positions:
            self.state.provisional.pop(position, None)
        if event.committed:
            return [Acknowledge([Ack(position) for position in event.positions])]
        return self._reset()

    def _redeliver(self, event: Redelivered[M]) -> list[Effect[M]]:
        """All from the mark-delete position, whatever was asked for; only for the active member."""
        if event.member is not self._strategy.active:
            return []
        return [CountRedelivered(event.member, 1), *self._reset()]

    def _begin(self, event: RoundBegun) -> list[Effect[M]]:
        """Send what is left, or read for the active member."""
        state = self.state
        member = self._strategy.active
        if event.now_s < self._not_before_s:
            return [PauseUntil(self._not_before_s)]
        if member is None or not member.ready:
            return []
        state.allowance, state.paced = event.allowance, event.paced
        effects: list[Effect[M]] = []
        available = event.available
        if state.epochs.stale:
            state.epochs.rewound = state.epochs.now
            effects.append(REWIND)
            available = True
        if state.unsent:
            self._send(state.unsent, effects)
        elif available:
            wanted = state.entries_wanted(member.permits, member.average)
            effects.append(Read(wanted, state.bytes_max, state.readable_upto))
        return effects

    def _read(self, event: EntriesRead) -> list[Effect[M]]:
        entries = event.entries
        if self.state.epochs.stale:
            return [AGAIN]
        if not entries:
            return []
        effects: list[Effect[M]] = []
        # What the broker itself wrote is for no client.
        markers = {
            entry.position
            for entry in entries
            if (found := special_metadata(entry.data)) and found.HasField("marker_type")
        }
        if markers:
            effects.append(Acknowledge([Ack(position) for position in sorted(markers)]))
            entries = [entry for entry in entries if entry.position not in markers]
        judged = self.state.judge(entries)
        if judged is not None and judged.rejected:
            # Order does not allow to try the others later: they are sent.
            effects.append(Acknowledge(judged.rejected))
            gone = {ack.position for ack in judged.rejected}
            entries = [entry for entry in entries if entry.position not in gone]
        self._send(entries, effects, event.available)
        return effects

    def _send(
        self, entries: Sequence[Entry], effects: list[Effect[M]], available: bool = True
    ) -> None:
        def give(member: M, taken: Sequence[Entry], counts: Sequence[int]) -> None:
            acked = NO_ACK_SETS
            if self.state.options.batch_index_ack:
                counts, acked = self.state.without_acked(taken, counts)
            messages = sum(counts)
            member.take(len(counts), messages)
            effects.append(Send(member, taken, messages, ack_sets=acked))

        if pending := self.state.provisional:
            entries = [entry for entry in entries if entry.position not in pending]
        unsent = self.state.unsent = self._strategy.assign(entries, give)
        if available or unsent:
            effects.append(AGAIN)
