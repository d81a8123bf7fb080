"""Key_Shared's dispatcher under random steps, beside a list of everything that is searched whole.

The production dispatcher, consumers and queues run without a loop of tasks: the coroutine of a
round is resumed by hand, so that anything may happen while it waits for a read. The oracle knows
each entry's place (published, held, given back, acknowledged) and the owner of each hash, and
checks every dispatch. By hand, any number of steps:

    python -m geminga_broker._tests.key_shared_model --steps 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field

import trio

from geminga_broker.consumer import Consumer
from geminga_broker.dispatch.key_shared import KeySharedDispatcher, look_ahead
from geminga_broker.dispatch.pump import DispatchContext
from geminga_broker.entry_filters import FilterContext
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack, Entry
from geminga_broker.log.entry import LogEntry
from geminga_broker.topic_api import KeySharedPolicy, SubType, TopicEnvironment, TopicOptions
from geminga_protocol.ids import Position
from geminga_protocol.keys import KEY_SLOTS, key_slot
from geminga_protocol.pb.pulsar_api_pb2 import KeySharedMode

from .fake_client import payload, position, subscribe_request

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
    side_log = None

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
            self.cursor, environment, self.options, self._wake, lambda p: p, FilterContext("t", "s")
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


def step(model: Model) -> None:
    """One thing that a client, the network or the broker does."""
    rng, members = model.rng, model.members
    what = rng.random()
    if not members or (what < 0.01 and len(members) < MEMBERS_MAX):
        model.join()
    elif what < 0.018:
        model.leave(rng.choice(members))
    elif what < 0.15:
        model.publish(rng.randrange(1, 12))
    elif what < 0.3:
        rng.choice(members).flow(rng.choice((1, 5, 30)))
    elif what < 0.6:
        consumer = rng.choice(members)
        held = [place.entry_id for place in consumer.pending]
        chosen = rng.sample(held, rng.randrange(len(held) + 1))
        if rng.random() < 0.05 and model.entries:
            chosen.append(rng.randrange(len(model.entries)))
        # Now and then the acknowledgement comes by another consumer than the one that holds it.
        model.ack(consumer if rng.random() < 0.95 else rng.choice(members), chosen)
    elif what < 0.65:
        consumer = rng.choice(members)
        held = [place.entry_id for place in consumer.pending]
        some = rng.sample(held, rng.randrange(len(held) + 1))
        model.redeliver(consumer, None if rng.random() < 0.2 else some)
    elif what < 0.68:
        consumer = rng.choice(members)
        assert isinstance(consumer.connection, ModelConnection)
        consumer.connection.set_writable(not consumer.connection.writable)
    else:
        if model.resume(rng.randrange(1, 6)):
            check_nothing_is_stuck(model)
    for consumer in members:
        assert consumer.given == consumer.sent + consumer.permits + consumer.held


def check_nothing_is_stuck(model: Model) -> None:
    """The dispatcher waits to be woken: then nothing may be ready to go."""
    dispatcher = model.dispatcher
    if dispatcher.blocked:
        return
    limit = look_ahead(model.options, len(model.members))
    for slot, line in model.lines.items():
        owner = model.owners[slot]
        if owner is None or not line.todo or not owner.ready:
            continue
        free = all(holder is owner for holder in line.held.values())
        read = line.todo[0] < model.cursor.next
        assert not free or (not read and len(dispatcher.replay) >= limit), f"{slot} is stuck"


def check_books(model: Model) -> None:
    """The dispatcher's tables against the oracle's."""
    dispatcher, holders = model.dispatcher, model.dispatcher._holders
    held = {n: c for line in model.lines.values() for n, c in line.held.items()}
    pending = {place.entry_id: c for c in model.members for place in c.pending}
    assert pending == held
    assert {place.entry_id for place in holders._hashes} == held.keys()
    draining = {
        slot
        for slot, line in model.lines.items()
        if any(holder is not model.owners[slot] for holder in line.held.values())
    }
    shown = [each for hashes in holders.draining_hashes().values() for each in hashes]
    assert {each.key_hash for each in shown} == draining
    assert all(len(model.lines[each.key_hash].held) == each.entries for each in shown)
    for consumer in model.members:
        assert consumer.unacked == sum(consumer.pending.values())
    waiting = [n for line in model.lines.values() for n in line.todo if n < model.cursor.next]
    if model._round is None and not dispatcher.stale:
        assert len(dispatcher.replay) == len(waiting)


def drain(model: Model) -> None:
    """Everybody takes and acknowledges: all must come to its end in as many turns as there are
    entries.
    """
    while None in model.owners.values():
        model.join()
    left = sum(len(line.todo) + len(line.held) for line in model.lines.values())
    for _ in range(left + 3):
        for consumer in model.members:
            assert isinstance(consumer.connection, ModelConnection)
            if not consumer.connection.writable:
                consumer.connection.set_writable(True)
            consumer.flow(10)
        while not model.resume(100):
            pass
        check_nothing_is_stuck(model)
        for consumer in model.members:
            model.ack(consumer, [place.entry_id for place in consumer.pending])
        if not any(line.held or line.todo for line in model.lines.values()):
            break
    for slot, line in model.lines.items():
        assert not line.held
        assert not line.todo, f"{slot} waits for ever"
    check_books(model)


async def run(seed: int, steps: int) -> Model:
    """So many random steps; all that was published comes to its end now and then."""
    async with trio.open_nursery() as nursery:
        model = Model(seed, nursery)
        for number in range(1, steps + 1):
            step(model)
            if not number % 200:
                check_books(model)
            if not number % 2000 or number == steps:
                drain(model)
        if model._round is not None:
            model._round.close()
        return model


def main() -> None:
    """Seeds from the one given on, ten thousand steps each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began, sends, rounds = time.perf_counter(), 0, 0
    for number in range(max(1, options.steps // 10_000)):
        print(f"seed {options.seed + number}", end="\r", flush=True)
        model = trio.run(run, options.seed + number, min(options.steps, 10_000))
        sends += model.sends
        rounds += model.rounds
    seconds = time.perf_counter() - began
    print(f"{options.steps} steps, {rounds} rounds, {sends} dispatches in {seconds:.0f} s")


if __name__ == "__main__":
    main()
