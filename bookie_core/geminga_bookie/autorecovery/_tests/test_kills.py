"""A worker that is killed at any of its steps: drawn ledgers, lost bookies, lost and damaged
entries. Mistakes that are planted are found.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

import pytest
import trio

from geminga_bookie.autorecovery import fragments, inspection, repair, task_store
from geminga_bookie.autorecovery._tests.world import World, drawn, members
from geminga_bookie.client._tests.cluster import DISK
from geminga_bookie.client.api import LedgerMetadata
from geminga_bookie.errors import BookkeeperError, NoSuchEntry
from geminga_bookie.port import BookiePort
from geminga_protocol.bookkeeper import underreplication as tree

SEEDS = 200 if os.environ.get("GEMINGA_NIGHTLY") else 40
LIVES_MAX = 400


async def scene(chance: random.Random) -> Scene:
    """Closed ledgers, some of whose copies are gone; each entry has a whole copy still."""
    world = World(7)
    await world.register()
    ledgers = []
    for _ in range(chance.randint(1, 2)):
        ledgers.append(await world.ledger(drawn(chance), chance.randint(1, 25)))
    lost = chance.choice(world.peers)
    kept = {}
    for metadata in ledgers:
        for entry_id in range(metadata.last_entry_id + 1):
            holders = members(metadata, entry_id)
            truth = world.peer(holders[0]).packet(metadata.ledger_id, entry_id)
            others = [each for each in holders if each != lost.bookie_id]
            damaged = 0
            if len(others) > 1 and chance.random() < 0.2:
                peer = world.peer(chance.choice(others))
                if chance.random() < 0.7:
                    peer.lose(metadata.ledger_id, entry_id)
                else:
                    peer.damage(metadata.ledger_id, entry_id)
                    damaged = 1
            kept[metadata.ledger_id, entry_id] = truth, damaged
    fate = chance.random()
    if fate < 0.6:
        await world.kill(lost)
    elif fate < 0.8:
        await world.remove(lost)
        await world.register(lost, readonly=True)
        for metadata in ledgers:
            if held := lost.has(metadata.ledger_id):
                lost.lose(metadata.ledger_id, chance.choice(held))
    return Scene(world, ledgers, kept)


class Scene(NamedTuple):
    """What a life begins with."""

    world: World
    ledgers: list[LedgerMetadata]
    kept: dict[tuple[int, int], tuple[bytes | None, int]]
    """Of each entry its packet, and how many copies are damaged where no list shows it."""

    def whole(self, metadata: LedgerMetadata) -> list[int]:
        """How many whole copies each entry has on bookies that the metadata name."""
        return [
            sum(
                not self.world.peer(each).is_gone
                and self.world.peer(each).packet(metadata.ledger_id, entry_id)
                == self.kept[metadata.ledger_id, entry_id][0]
                for each in members(metadata, entry_id)
            )
            for entry_id in range(metadata.last_entry_id + 1)
        ]


async def live(seed: int) -> None:
    """Kill the worker at each step, one after the other, until a life is long enough. In some lives
    a bookie refuses what is copied to it.
    """
    chance = random.Random(seed)
    at = await scene(chance)
    world, ledgers = at.world, at.ledgers
    await world.audit()
    for step in range(LIVES_MAX):
        before = [at.whole(each) for each in ledgers]
        refusing = chance.choice(world.peers) if chance.random() < 0.3 else None
        if refusing is not None:
            refusing.failure = DISK
        was_killed = await world.work((step, chance.random() < 0.5))
        for number, metadata in enumerate(ledgers):
            ledgers[number] = await world.client.metadata(metadata.ledger_id)
            pairs = zip(before[number], at.whole(ledgers[number]), strict=True)
            assert all(then <= now for then, now in pairs), "a copy that was known is not"
        assert await world.store.children(tree.LOCKS) == [], "a lock outlived its worker"
        if refusing is not None:
            refusing.failure = None
        elif not was_killed:
            break
    else:
        raise AssertionError("the work never ends")
    assert await world.marked() == []
    for metadata in ledgers:
        for entry_id, copies in enumerate(at.whole(metadata)):
            _, damaged = at.kept[metadata.ledger_id, entry_id]
            assert copies == metadata.write_quorum - damaged, "copies are missing"


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_killed_at_each_step(autojump_clock: object, seed: int) -> None:
    await live(seed)


def metadata_first(patch: pytest.MonkeyPatch) -> None:
    """The metadata name a bookie before it has the entries."""
    copy = repair.Copier.copy

    async def early(self: repair.Copier, lack: fragments.Lack, target: str) -> None:
        if target == lack.bookie_id:
            await copy(self, lack, target)

    patch.setattr(repair.Copier, "copy", early)


def half_copied(patch: pytest.MonkeyPatch) -> None:
    """The last run is not copied."""
    batches = repair.Copier.copy.__globals__["batches"]
    patch.setitem(
        repair.Copier.copy.__globals__,
        "batches",
        lambda runs, most: iter(list(batches(runs, most))[:-1]),
    )


def unanswered(patch: pytest.MonkeyPatch) -> None:
    """Writes are not waited for."""

    async def write(self: repair.Copier, target: BookiePort, first: int, run: list[bytes]) -> None:
        ledger = self._metadata.ledger_id
        target.add(ledger, self._master_key, first, run, lambda *_: None, recovery=True)

    patch.setattr(repair.Copier, "_write", write)


def no_digest(patch: pytest.MonkeyPatch) -> None:
    """A damaged copy is copied."""
    patch.setitem(
        repair.Copier.copy.__globals__, "whole", lambda _digest, _ledger, _first, found: found
    )


def skipped(patch: pytest.MonkeyPatch) -> None:
    """An error while copying is taken for success."""
    copy_run = repair.Copier._copy_run

    async def careless(
        self: repair.Copier, lack: fragments.Lack, first: int, end: int, target: BookiePort
    ) -> None:
        try:
            await copy_run(self, lack, first, end, target)
        except NoSuchEntry:
            pass

    original = repair.Copier._read

    async def first_only(self: repair.Copier, lack: fragments.Lack, first: int, end: int) -> object:
        ensemble = lack.fragment.ensemble
        port = self._bookies.port(ensemble[first % len(ensemble)])
        if first % 3 == 0:
            return await port.read(
                self._metadata.ledger_id, first, entries_max=end - first, bytes_max=1 << 20
            )
        return await original(self, lack, first, end)

    patch.setattr(repair.Copier, "_copy_run", careless)
    patch.setattr(repair.Copier, "_read", first_only)


def lasting_lock(patch: pytest.MonkeyPatch) -> None:
    """A lock outlives the worker that made it."""
    acquire = task_store.TaskStore.acquire

    async def acquired(self: task_store.TaskStore, ledger_id: int, epoch: int) -> object:
        put = self._store.put

        async def lasting(path: str, value: bytes, version: int, *, epoch: int) -> object:
            return await put(path, value, version)

        with pytest.MonkeyPatch.context() as during:
            during.setattr(self._store, "put", lasting)
            return await acquire(self, ledger_id, epoch)

    patch.setattr(task_store.TaskStore, "acquire", acquired)


def edges_only(patch: pytest.MonkeyPatch) -> None:
    """Entries in the middle of a fragment are not looked for."""
    original = inspection.not_in

    async def edges_not_in(
        listed: set[int], share: Iterable[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        runs = list(share)
        edges = dict.fromkeys((runs[0][0], runs[-1][1] - 1))
        return await original(listed, [(each, each + 1) for each in edges])

    patch.setattr(inspection, "not_in", edges_not_in)


def done_at_once(patch: pytest.MonkeyPatch) -> None:
    """A task is removed whatever its outcome."""
    original = repair.Repairer.repair

    async def whole(
        self: repair.Repairer, ledger_id: int, suspects: Container[str] | None, attempt: int
    ) -> repair.Outcome:
        await original(self, ledger_id, suspects, attempt)
        return repair.Outcome.WHOLE

    async def lost(self: repair.Repairer, *what: object) -> bool:
        return False

    patch.setattr(repair.Repairer, "repair", whole)
    patch.setattr(repair.Repairer, "_replace", lost)


MISTAKES: list[Callable[[pytest.MonkeyPatch], None]] = [
    metadata_first,
    half_copied,
    unanswered,
    no_digest,
    skipped,
    lasting_lock,
    edges_only,
    done_at_once,
]


@pytest.mark.parametrize("plant", MISTAKES, ids=lambda each: each.__name__)
@pytest.mark.slow
async def test_mistakes_are_found(
    autojump_clock: object, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in range(200):
            try:
                with trio.fail_after(100_000):
                    await live(seed)
            except (AssertionError, BookkeeperError):
                return
    pytest.fail("not found within 200 seeds")
