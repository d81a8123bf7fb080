"""Key_Shared's machine under random steps, beside a list of everything that is searched whole.

The production machine, strategy and consumers run without a pump: events go in and effects come out
by hand, so that anything may happen between a read and its result. The oracle knows each entry's
place (published, held, given back, acknowledged, or that provisionally) and the owner of each hash,
and checks every Send.
`key_shared_steps` are the steps.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter

import trio

from geminga_broker._tests.fake_client import payload, position, subscribe_request
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack, Entry
from geminga_broker.log.entry import LogEntry
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription._tests.key_shared_client import ModelConnection
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.delayed_tracker import DelayedTracker
from geminga_broker.subscription.effects import (
    AGAIN,
    REWIND,
    WAKE,
    Effect,
    Read,
    ReadAt,
    Send,
)
from geminga_broker.subscription.entry_filters import FilterContext
from geminga_broker.subscription.events import (
    Acked,
    EntriesRead,
    EntriesReadAgain,
    Event,
    Joined,
    Left,
    ReadableUpto,
    Resolved,
    RoundBegun,
    Welcomed,
)
from geminga_broker.subscription.state import State
from geminga_broker.subscription.strategies.key_shared import KeyShared, look_ahead
from geminga_broker.subscription.tracked import TrackedMachine
from geminga_broker.topic.api import KeySharedPolicy, SubType
from geminga_protocol.ids import Position
from geminga_protocol.keys import KEY_SLOTS, key_slot
from geminga_protocol.pb.pulsar_api_pb2 import KeySharedMode

MEMBERS_MAX = 8
UNACKED_MAX = 150
STICKY_PARTS = 10


class ModelCursor:
    """A cursor over the model's messages."""

    name = "model"
    durable = True
    fetched = (0, 0)
    snapshot_log = None

    def __init__(self, model: Model) -> None:
        self.model = model
        self.next = 0
        self.done = 0
        """Entries before it are acknowledged."""

    @property
    def read_position(self) -> Position:
        return position(self.next)

    def available(self, upto: Position | None = None) -> bool:
        beyond = upto is not None and self.next > upto.entry_id
        return self.next < len(self.model.entries) and not beyond

    def rewind(self) -> None:
        self.next = self.done

    def is_deleted(self, place: Position) -> bool:
        return place.entry_id in self.model.acked

    def ack(self, acks: Sequence[Ack]) -> None:
        """The oracle has noted them."""

    def ack_set(self, place: Position) -> tuple[int, ...]:
        return ()

    def read(self, entries_max: int, upto: Position | None) -> list[Entry]:
        model = self.model
        found: list[Entry] = []
        while self.available(upto) and len(found) < entries_max:
            if self.next not in model.acked:
                found.append(model.entries[self.next])
            self.next += 1
        return found

    def read_at(self, places: Sequence[Position]) -> list[Entry]:
        return [
            self.model.entries[place.entry_id]
            for place in places
            if place.entry_id not in self.model.acked
        ]


class Owner:
    """The subscription of the model's consumers."""

    name = "sub"
    topic_name = "model"
    partition = -1

    def __init__(self, model: Model) -> None:
        self.model = model

    def post(self, event: Event[Consumer]) -> None:
        self.model.post(event)

    def acknowledge(self, consumer: Consumer, acks: Sequence[Ack], cumulative: bool) -> None:
        self.model.post(Acked(consumer, acks, cumulative))

    def remove(self, consumer: Consumer) -> None:
        self.model.post(Left(consumer, 0.0))


@dataclass
class Line:
    """The oracle's book on one hash."""

    todo: list[int] = field(default_factory=list)
    """Entries that nobody holds and nobody acknowledged, ascending."""
    held: dict[int, Consumer] = field(default_factory=dict)


class Model:
    """The machine, its environment, and the oracle."""

    def __init__(self, seed: int, nursery: trio.Nursery) -> None:
        rng = self.rng = random.Random(seed)
        self.slow = rng.choice((0.0, 0.1, 0.6))
        self.transactions = seed % 2 == 1
        """Whether acknowledgements may be pending, and reads bounded."""
        sticky = seed % 5 == 4
        self.policy = KeySharedPolicy(KeySharedMode.STICKY if sticky else KeySharedMode.AUTO_SPLIT)
        self.options = TopicOptions(
            consistent_hashing=seed % 5 != 3,
            hash_points=rng.choice((3, 100)),
            look_ahead_per_consumer_entries=rng.choice((0, 7, 2000)),
            look_ahead_entries_max=rng.choice((20, 20_000)),
            unacked_per_consumer_max=rng.choice((0, 25)),
            unacked_per_subscription_max=rng.choice((0, UNACKED_MAX)),
            dispatch_entries_max=rng.choice((5, 100)),
        )
        self.entries: list[LogEntry] = []
        self.acked: set[int] = set()
        self.pending: set[int] = set()
        """Acknowledgements that are to be resolved."""
        self.readable: int | None = None
        """The last entry that may be read."""
        self.members: list[Consumer] = []
        self.woken = True
        self.sends = self.rounds = 0
        self.cursor = ModelCursor(self)
        state: State[Consumer] = State(self.options, self.cursor, FilterContext("t", "s"))
        self.strategy = KeyShared(state, self.policy)
        self.machine = TrackedMachine(state, self.strategy, DelayedTracker())
        first = self.strategy.selector.first_slot
        keys = [f"key-{n}" for n in range(rng.choice((3, 40, 400)))]
        self.slots = [key_slot(key.encode(), first) for key in keys]
        self.datas = [payload(7, key=key) for key in keys]
        self.lines = {slot: Line() for slot in self.slots}
        self.slot_of: list[int] = []
        self.owners: dict[int, Consumer | None] = dict.fromkeys(self.slots)
        self.reading: Read | ReadAt | None = None
        """What the machine waits for."""
        self._found: list[Entry] | None = None
        """Its result, if that was looked up when it was asked for."""
        self._room: int | None = None
        """How many entries this round may read ahead."""
        self._numbers = 0

    # ---- the broker's actions ----

    def post(self, event: Event[Consumer]) -> None:
        for effect in self.machine.step(event):
            self._act(effect)

    def _act(self, effect: Effect[Consumer]) -> None:
        if isinstance(effect, Send):
            self.sending(effect.member, effect.entries, effect.messages)
            effect.member.send(*effect[1:])
        elif effect is REWIND:
            self.cursor.rewind()
        elif effect in (WAKE, AGAIN):
            self.woken = True
        elif isinstance(effect, Read | ReadAt):
            assert self.reading is None
            self.reading = effect
            if self._room is None:
                self._room = look_ahead(self.options, len(self.members)) - len(self.strategy.replay)
            beyond = isinstance(effect, Read) and effect.entries_max > max(self._room, 0)
            assert not beyond, "reads farther than look-ahead goes"
            self._found = self._look_up(effect) if self.rng.random() < 0.5 else None

    def _look_up(self, effect: Read | ReadAt) -> list[Entry]:
        if isinstance(effect, Read):
            return self.cursor.read(effect.entries_max, effect.upto)
        return self.cursor.read_at(effect.positions)

    def _answer(self, effect: Read | ReadAt) -> None:
        self.reading = None
        found = self._look_up(effect) if self._found is None else self._found
        if isinstance(effect, Read):
            assert self._room is not None
            self._room -= len(found)
            self.post(EntriesRead(found, 0))
        else:
            self.post(EntriesReadAgain(effect.positions, found, 0))

    def resume(self, times: int) -> bool:
        """Run rounds for that many steps; returns whether there is nothing left to do."""
        for _ in range(times):
            if self.reading is None:
                if not self.woken or not self.members:
                    return True
                self.woken = False
                self._room = None
                self.post(RoundBegun(0.0))
            else:
                self._answer(self.reading)
            while self.reading is not None and self.rng.random() >= self.slow:
                self._answer(self.reading)
            if self.reading is None:
                self.rounds += 1
        return False

    def sending(self, consumer: Consumer, entries: Sequence[Entry], messages: int) -> None:
        """Checks a Send; the consumer was charged for it."""
        self.sends += 1
        assert consumer in self.members
        assert consumer.connection.writable
        assert messages == sum(entry.messages for entry in entries)
        room = consumer.permits + messages
        if consumer.limit:
            room = min(room, consumer.limit - (consumer.unacked - messages))
        for entry in entries:
            assert room > 0, "more than was asked for"
            room -= entry.messages
            number = entry.position.entry_id
            assert number not in self.pending, "its acknowledgement is pending"
            assert self.readable is None or number <= self.readable, "not to be read yet"
            slot = self.slot_of[number]
            line = self.lines[slot]
            assert self.owners[slot] is consumer, "not its hash"
            assert line.todo, "held already, or acknowledged"
            assert line.todo[0] == number, "not the first of its hash"
            assert all(each is consumer for each in line.held.values()), "the hash drains"
            del line.todo[0]
            line.held[number] = consumer

    # ---- clients' actions ----

    def publish(self, count: int) -> None:
        for _ in range(count):
            which = self.rng.randrange(len(self.slots))
            number = len(self.entries)
            messages = 1 if self.rng.random() < 0.8 else self.rng.randrange(2, 9)
            self.entries.append(LogEntry(position(number), self.datas[which], messages))
            self.slot_of.append(self.slots[which])
            self.lines[self.slots[which]].todo.append(number)
        self.woken = True

    def join(self) -> None:
        rng = self.rng
        self._numbers += 1
        policy = self.policy
        if policy.mode == KeySharedMode.STICKY:
            part = rng.randrange(STICKY_PARTS)
            size = KEY_SLOTS // STICKY_PARTS
            policy = KeySharedPolicy(policy.mode, ((part * size, part * size + size - 1),))
        connection = ModelConnection(f"c{self._numbers}")
        request = subscribe_request(
            connection, self._numbers, sub_type=SubType.Key_Shared, key_shared=policy,
            consumer_name=f"name-{rng.randrange(4)}")  # fmt: skip
        consumer = Consumer(request, Owner(self), self.options)
        try:
            self.post(Joined(consumer, policy))
        except BrokerError:
            return
        self.members.append(consumer)
        self.post(Welcomed(consumer, 0.0))
        self._look_up_owners()

    def leave(self, consumer: Consumer) -> None:
        self.members.remove(consumer)
        for line in self.lines.values():
            back = [number for number, holder in line.held.items() if holder is consumer]
            self._give_back(line, back)
        consumer.close()
        self._look_up_owners()

    def ack(self, consumer: Consumer, numbers: Sequence[int]) -> None:
        self._take_away(numbers)
        self.pending.difference_update(numbers)
        self._record(numbers)
        consumer.ack([Ack(position(number)) for number in numbers])

    def suspend(self, consumer: Consumer, numbers: Sequence[int]) -> None:
        """Acknowledgements that are pending, of entries that have no other."""
        numbers = [n for n in numbers if n not in self.pending and n not in self.acked]
        self._take_away(numbers)
        self.pending.update(numbers)
        self.post(Acked(consumer, [Ack(position(n)) for n in numbers], pending=True))

    def resolve(self, numbers: Sequence[int], committed: bool) -> None:
        self.pending.difference_update(numbers)
        if committed:
            self._record(numbers)
        for number in numbers:
            if number not in self.acked:
                self._queue(self.lines[self.slot_of[number]], [number])
        self.post(Resolved([position(number) for number in numbers], committed))

    def hold_reads(self, upto: int | None) -> None:
        """The log grows, but only entries up to this one may be read."""
        if isinstance(self.reading, Read) and self._found is None:
            self._found = self._look_up(self.reading)
        self.readable = upto
        self.post(ReadableUpto(None if upto is None else position(upto)))

    def _take_away(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            line = self.lines[self.slot_of[number]]
            line.held.pop(number, None)
            if number in line.todo:
                line.todo.remove(number)

    def _record(self, numbers: Sequence[int]) -> None:
        self.acked.update(numbers)
        while self.cursor.done in self.acked:
            self.cursor.done += 1

    def redeliver(self, consumer: Consumer, numbers: Sequence[int] | None) -> None:
        mine = [place.entry_id for place in consumer.pending]
        for number in mine if numbers is None else [n for n in numbers if n in mine]:
            self._give_back(self.lines[self.slot_of[number]], [number])
        places = None if numbers is None else [position(number) for number in numbers]
        consumer.redeliver(places)

    def _give_back(self, line: Line, numbers: Sequence[int]) -> None:
        for number in numbers:
            del line.held[number]
        self._queue(line, numbers)

    def _queue(self, line: Line, numbers: Sequence[int]) -> None:
        line.todo = sorted([*line.todo, *numbers])

    def _look_up_owners(self) -> None:
        """From the ranges that an operator sees."""
        found = [
            (start, end, each)
            for each in self.members
            for start, end in self.strategy.selector.ranges(each)
        ]
        ranges = sorted(found, key=itemgetter(0))
        assert all(before[1] < after[0] for before, after in pairwise(ranges))
        starts = [start for start, _, _ in ranges]
        for slot in self.owners:
            at = bisect_right(starts, slot) - 1
            is_owned = at >= 0 and slot <= ranges[at][1]
            assert is_owned or self._may_lack_owner
            self.owners[slot] = ranges[at][2] if is_owned else None

    @property
    def _may_lack_owner(self) -> bool:
        return not self.members or self.policy.mode == KeySharedMode.STICKY
