"""Random steps of `key_shared_model`, and invariants between them. Any number of steps by:

python -m geminga_broker.subscription._tests.key_shared_steps --steps 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import time

import trio

from geminga_broker.subscription._tests.key_shared_client import ModelConnection
from geminga_broker.subscription._tests.key_shared_model import MEMBERS_MAX, Model
from geminga_broker.subscription.strategies.key_shared import look_ahead


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
        by = consumer if rng.random() < 0.95 else rng.choice(members)
        if model.transactions and rng.random() < 0.4:
            model.suspend(by, chosen)
        else:
            model.ack(by, chosen)
    elif what < 0.65:
        consumer = rng.choice(members)
        held = [place.entry_id for place in consumer.pending]
        some = rng.sample(held, rng.randrange(len(held) + 1))
        model.redeliver(consumer, None if rng.random() < 0.2 else some)
    elif what < 0.68:
        consumer = rng.choice(members)
        assert isinstance(consumer.connection, ModelConnection)
        consumer.connection.set_writable(not consumer.connection.writable)
    elif model.transactions and what < 0.71:
        pending = [place.entry_id for place in model.machine.state.provisional]
        chosen = rng.sample(pending, rng.randrange(len(pending) + 1))
        model.resolve(chosen, committed=rng.random() < 0.5)
        upto = len(model.entries) - 1
        if model.readable is not None:
            upto = rng.randrange(model.readable, len(model.entries) + 1)
        model.hold_reads(None if upto == len(model.entries) else upto)
    else:
        if model.resume(rng.randrange(1, 6)):
            check_nothing_is_stuck(model)
    for consumer in members:
        assert consumer.given == consumer.sent + consumer.permits + consumer.held


def check_nothing_is_stuck(model: Model) -> None:
    """The machine waits to be woken: then nothing may be ready to go."""
    if model.machine.holdings.blocked:
        return
    limit = look_ahead(model.options, len(model.members))
    for slot, line in model.lines.items():
        owner = model.owners[slot]
        if owner is None or not line.todo or not owner.ready:
            continue
        if model.readable is not None and line.todo[0] > model.readable:
            continue
        free = all(holder is owner for holder in line.held.values())
        read = line.todo[0] < model.cursor.next
        assert not free or (not read and len(model.strategy.replay) >= limit), f"{slot} is stuck"


def check_books(model: Model) -> None:
    """The machine's tables against the oracle's."""
    holders = model.strategy.draining
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
    assert {each.hash for each in shown} == draining
    assert all(len(model.lines[each.hash].held) == each.unack_msgs for each in shown)
    for consumer in model.members:
        assert consumer.unacked == sum(consumer.pending.values())
    waiting = [n for line in model.lines.values() for n in line.todo if n < model.cursor.next]
    if model.reading is None and not model.machine.state.epochs.stale:
        queued = {place.entry_id for place in model.strategy.replay._hashes}
        assert queued - model.pending == set(waiting)
    # Some of these were finally acknowledged meanwhile.
    assert {place.entry_id for place in model.machine.state.provisional} >= model.pending


def drain(model: Model) -> None:
    """All consumers take and acknowledge: this must end in at most as many turns as there are
    entries.
    """
    while None in model.owners.values():
        model.join()
    model.hold_reads(None)
    model.resolve(sorted(model.pending), committed=False)
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
    """That many random steps; from time to time all messages are consumed."""
    async with trio.open_nursery() as nursery:
        model = Model(seed, nursery)
        for number in range(1, steps + 1):
            step(model)
            if not number % 200:
                check_books(model)
            if not number % 2000 or number == steps:
                drain(model)
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
