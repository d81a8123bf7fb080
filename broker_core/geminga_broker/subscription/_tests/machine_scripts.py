"""Helpers for scripts of a subscription's machine: members, entries, a cursor's state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from geminga_broker._tests.fake_client import payload, position
from geminga_broker.log.api import Ack, Entry
from geminga_broker.log.entry import LogEntry
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription.delayed_tracker import DelayedTracker
from geminga_broker.subscription.effects import (
    Effect,
    Read,
    Send,
)
from geminga_broker.subscription.entry_filters import FilterContext
from geminga_broker.subscription.events import (
    EntriesRead,
    Flow,
    Joined,
    RoundBegun,
    Welcomed,
)
from geminga_broker.subscription.machine import OrderedMachine
from geminga_broker.subscription.state import Member, State
from geminga_broker.subscription.strategies.key_shared import KeyShared
from geminga_broker.subscription.strategies.shared import Shared
from geminga_broker.subscription.strategies.single_active import SingleActive
from geminga_broker.subscription.tracked import TrackedMachine
from geminga_broker.topic.api import KeySharedPolicy, SubType
from geminga_protocol.ids import Position

POLICY = KeySharedPolicy()
MARKER = 20
BEGIN = RoundBegun(0.0)


@dataclass
class Known:
    """The cursor's acknowledgements."""

    deleted: set[Position] = field(default_factory=set)
    ack_sets: dict[Position, tuple[int, ...]] = field(default_factory=dict)

    def is_deleted(self, place: Position) -> bool:
        return place in self.deleted

    def ack_set(self, place: Position) -> tuple[int, ...]:
        return self.ack_sets.get(place, ())


def entry(number: int, *, messages: int = 1, **more: object) -> LogEntry:
    return LogEntry(position(number), payload(number, **more), messages)


def entries(*numbers: int) -> list[LogEntry]:
    return [entry(number) for number in numbers]


def at(*numbers: int) -> list[Position]:
    return [position(number) for number in numbers]


def acks(*numbers: int) -> list[Ack]:
    return [Ack(place) for place in at(*numbers)]


def sent(effects: Sequence[Effect[Member]]) -> list[tuple[str, list[int]]]:
    """Names and entry ids of the Sends."""
    return [
        (effect.member.name, [each.position.entry_id for each in effect.entries])
        for effect in effects
        if isinstance(effect, Send)
    ]


Ordered = OrderedMachine[Member]
Tracked = TrackedMachine[Member]


def state_of(known: Known, **more: object) -> State[Member]:
    return State(TopicOptions(**more), known, FilterContext("t", "s"))


def ordered(kind: int = SubType.Exclusive, **more: object) -> Ordered:
    state = state_of(Known(), **more)
    return OrderedMachine(state, SingleActive(state.members, kind, "t", -1))


def shared(**more: object) -> tuple[Tracked, Known, DelayedTracker]:
    known, delays = Known(), DelayedTracker()
    state = state_of(known, **more)
    return TrackedMachine(state, Shared(state), delays), known, delays


def key_shared(**more: object) -> tuple[Tracked, KeyShared[Member]]:
    state = state_of(Known(), **more)
    strategy = KeyShared(state, POLICY)
    return TrackedMachine(state, strategy, DelayedTracker()), strategy


def join(machine: Ordered | Tracked, name: str, permits: int = 0) -> Member:
    member = Member(name)
    assert machine.step(Joined(member, POLICY)) == []
    machine.step(Welcomed(member, 0.0))
    if permits:
        machine.step(Flow(member, permits))
    return member


def read(machine: Ordered | Tracked, *found: Entry) -> list[Effect[Member]]:
    """A round that reads these, up to the end of the log."""
    begun = machine.step(BEGIN)
    assert isinstance(begun[-1], Read)
    effects = machine.step(EntriesRead(list(found), 0))
    while effects and isinstance(effects[-1], Read):
        effects = machine.step(EntriesRead((), 0))
    return effects
