"""Key_Shared's dispatcher under random steps, beside a list of everything that is searched whole.

The production dispatcher, consumers and queues run without a loop of tasks: the coroutine of a
round is resumed by hand, so that anything may happen while it waits for a read. The oracle knows
each entry's place (published, held, given back, acknowledged) and the owner of each hash, and
checks every dispatch. `key_shared_steps` are the steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field

import trio

from geminga_broker._tests.fake_client import payload, position, subscribe_request
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack, Entry
from geminga_broker.log.entry import LogEntry
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.entry_filters import FilterContext
from geminga_broker.subscription.pump import DispatchContext
from geminga_broker.subscription.strategies.key_shared import KeySharedDispatcher, look_ahead
from geminga_broker.topic.api import KeySharedPolicy, SubType, TopicEnvironment
from geminga_protocol.ids import Position
from geminga_protocol.keys import KEY_SLOTS, key_slot
from geminga_protocol.pb.pulsar_api_pb2 import KeySharedMode

MEMBERS_MAX = 8
UNACKED_MAX = 150
STICKY_PARTS = 10


class Pause:
    """What a read awaits that takes its time."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class ModelConnection:
    """Takes everything; the model says when it is full."""

    def __init__(self, name: str) -> None:
        self.address = self.client_version = name
        self.protocol_version = 21
        self.supports_broker_entry_metadata = False
        self.principal = None
        self.writable = True
        self._waiting: list[Callable[[], object]] = []

    def write(self, *buffers: object) -> None:
        """Frames are of no interest here."""

    def write_now(self, *buffers: object) -> None:
        """Nor are these."""

    def on_writable(self, callback: Callable[[], object]) -> None:
        self._waiting.append(callback)

    def set_writable(self, writable: bool) -> None:
        self.writable = writable
        if writable:
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()

    def drop_consumer(self, consumer_id: int) -> None:
        raise AssertionError("the broker closes nobody here")

    drop_producer = drop_consumer


class ModelCursor:
    """A cursor over what the model published."""

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

    def available(self) -> bool:
        return self.next < len(self.model.entries)

    def rewind(self) -> None:
        self.next = self.done

    def is_deleted(self, place: Position) -> bool:
        return place.entry_id in self.model.acked

    def ack(self, acks: Sequence[Ack]) -> None:
        """The oracle has noted them."""

    async def read(self, *, entries_max: int, bytes_max: int) -> list[Entry]:
        model = self.model
        room = look_ahead(model.options, len(model.members)) - len(model.dispatcher.replay)
        assert entries_max <= max(room, 0), "reads farther than look-ahead goes"
        if model.rng.random() < model.slow:
            await Pause()
        found: list[Entry] = []
        while self.available() and len(found) < entries_max:
            if self.next not in model.acked:
                found.append(model.entries[self.next])
            self.next += 1
        return found

    async def read_at(self, places: Sequence[Position]) -> list[Entry]:
        if self.model.rng.random() < self.model.slow:
            await Pause()
        return [
            self.model.entries[place.entry_id]
            for place in places
            if place.entry_id not in self.model.acked
        ]


class Watched(KeySharedDispatcher):
    """Shows the model what it sends."""

    model: Model

    def send(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        self.model.sending(consumer, entries)
        super().send(consumer, entries)


class Owner:
    """The subscription of the model's consumers."""

    name = "sub"
    topic_name = "model"
    partition = -1

    def __init__(self, model: Model) -> None:
        self.model = model

    def wake(self) -> None:
        self.model.dispatcher.kick()
        self.model.woken = True

    def acknowledge(self, consumer: Consumer, acks: Sequence[Ack], cumulative: bool) -> None:
        self.model.dispatcher.acknowledge(consumer, acks, cumulative)

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        self.model.dispatcher.redeliver(consumer, positions)

    def remove(self, consumer: Consumer) -> None:
        self.model.dispatcher.remove(consumer)


@dataclass
class Line:
    """The oracle's book on one hash."""

    todo: list[int] = field(default_factory=list)
    """Entries that nobody holds and nobody acknowledged, ascending."""
    held: dict[int, Consumer] = field(default_factory=dict)


class Model:
    """The dispatcher, what it works with, and the oracle."""

    def __init__(self, seed: int, nursery: trio.Nursery) -> None:
        rng = self.rng = random.Random(seed)
        self.slow = rng.choice((0.0, 0.1, 0.6))
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
        self.members: list[Consumer] = []
        self.woken = True
        self.sends = self.rounds = 0
        self.cursor = ModelCursor(self)
        environment = TopicEnvironment(nursery)
        context = DispatchContext(
            self.cursor,
            environment,
            self.options,
            self._wake,
            lambda position: position,
            FilterContext("t", "s"),
            lambda _consumer: self.cursor,
        )
        self.dispatcher = Watched(context, self.policy)
        self.dispatcher.model = self
        first = self.dispatcher._selector.first_slot
        keys = [f"key-{n}" for n in range(rng.choice((3, 40, 400)))]
        self.slots = [key_slot(key.encode(), first) for key in keys]
        self.datas = [payload(7, key=key) for key in keys]
        self.lines = {slot: Line() for slot in self.slots}
        self.slot_of: list[int] = []
        self.owners: dict[int, Consumer | None] = dict.fromkeys(self.slots)
        self._round: Coroutine[None, None, bool] | None = None
        self._numbers = 0

    def _wake(self) -> None:
        self.woken = True

    # ---- what the broker does ----

    def resume(self, times: int) -> bool:
        """Let rounds go on for so many steps; whether there is nothing left to do."""
        for _ in range(times):
            if self._round is None:
                if not self.woken or not self.members:
                    return True
                self.woken = False
                self._round = self.dispatcher.round()
            try:
                self._round.send(None)
            except StopIteration as ended:
                self._round = None
                self.rounds += 1
                self.woken |= ended.value
        return False

    def sending(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        """Checks a dispatch before it is made."""
        self.sends += 1
        assert consumer in self.members
        assert consumer.connection.writable
        assert not consumer.blocked
        room = consumer.room
        for entry in entries:
            assert room > 0, "more than was asked for"
            room -= entry.messages
            number = entry.position.entry_id
            slot = self.slot_of[number]
            line = self.lines[slot]
            assert self.owners[slot] is consumer, "not its hash"
            assert line.todo, "held already, or acknowledged"
            assert line.todo[0] == number, "not the first of its hash"
            assert all(each is consumer for each in line.held.values()), "the hash drains"
            del line.todo[0]
            line.held[number] = consumer

    # ---- what clients do ----

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
            self.dispatcher.admit(consumer)
        except BrokerError:
            return
        self.members.append(consumer)
        self.dispatcher.added(consumer)
        self._look_up_owners()

    def leave(self, consumer: Consumer) -> None:
        self.members.remove(consumer)
        for line in self.lines.values():
            back = [number for number, holder in line.held.items() if holder is consumer]
            self._give_back(line, back)
        consumer.close()
        self._look_up_owners()
        if not self.members:
            self._round = None

    def ack(self, consumer: Consumer, numbers: Sequence[int]) -> None:
        for number in numbers:
            line = self.lines[self.slot_of[number]]
            line.held.pop(number, None)
            if number in line.todo:
                line.todo.remove(number)
            self.acked.add(number)
        while self.cursor.done in self.acked:
            self.cursor.done += 1
        consumer.ack([Ack(position(number)) for number in numbers])

    def redeliver(self, consumer: Consumer, numbers: Sequence[int] | None) -> None:
        mine = [place.entry_id for place in consumer.pending]
        for number in mine if numbers is None else [n for n in numbers if n in mine]:
            self._give_back(self.lines[self.slot_of[number]], [number])
        places = None if numbers is None else [position(number) for number in numbers]
        consumer.redeliver(places)

    def _give_back(self, line: Line, numbers: Sequence[int]) -> None:
        for number in numbers:
            del line.held[number]
        line.todo = sorted([*line.todo, *numbers])

    def _look_up_owners(self) -> None:
        """From the ranges that an operator sees."""
        ranges = [(self.dispatcher._selector.ranges(each), each) for each in self.members]
        for slot in self.owners:
            found = [each for owned, each in ranges if any(a <= slot <= b for a, b in owned)]
            assert len(found) == 1 or (not found and self._may_lack_owner)
            self.owners[slot] = found[0] if found else None

    @property
    def _may_lack_owner(self) -> bool:
        return not self.members or self.policy.mode == KeySharedMode.STICKY
