"""The check of placement, and what auditor and worker count, under Apache's names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from geminga_bookie.autorecovery import process
from geminga_bookie.autorecovery._tests.world import World, members
from geminga_bookie.autorecovery.auditor import Auditor
from geminga_bookie.autorecovery.config import AutoRecoveryConfig, load_config
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.autorecovery.placement_check import misplaced, moves
from geminga_bookie.autorecovery.process import run_autorecovery
from geminga_bookie.autorecovery.repair import Outcome, Repairer
from geminga_bookie.autorecovery.stats import COUNTERS, GAUGES, SUMMARIES, RecoveryStats
from geminga_bookie.autorecovery.task_store import TaskStore
from geminga_bookie.autorecovery.worker import ReplicationWorker
from geminga_bookie.client.api import DigestType, LedgerMetadata, LedgerState
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.placement_rules import PlacementOptions, PlacementRules
from geminga_protocol.bookkeeper import underreplication as tree
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import MetadataStore

RACKS = {"a1": "/a", "a2": "/a", "b1": "/b", "b2": "/b", "c1": "/c"}
RULES = PlacementRules(racks=RACKS)


def ledger(*ensembles: str, write: int, state: LedgerState = LedgerState.CLOSED) -> LedgerMetadata:
    """One of 10 entries a fragment."""
    found = {10 * at: tuple(each.split()) for at, each in enumerate(ensembles)}
    size = len(found[0])
    kind = DigestType.CRC32C
    return LedgerMetadata(1, size, write, write, state, 99, 0, kind, b"", found, {}, 0)


def test_a_write_quorum_spans_racks() -> None:
    assert misplaced(ledger("a1 b1", write=2), RULES) == []
    assert misplaced(ledger("a1 a2", write=2), RULES) == [0]
    assert misplaced(ledger("a1 b1", "a1 a2", "b1 b2", write=2), RULES) == [10, 20]
    # Each write set counts, not only the ensemble.
    assert misplaced(ledger("a1 a2 b1", write=2), RULES) == [0]
    assert misplaced(ledger("a1 b1 a2 b2", write=2), RULES) == []
    assert misplaced(ledger("a1 a2", write=1), RULES) == []
    assert misplaced(ledger("a1 a2", write=2, state=LedgerState.OPEN), RULES) == []


def test_more_racks_and_enforced_ones() -> None:
    three = replace(RULES, options=PlacementOptions(min_racks=3))
    assert misplaced(ledger("a1 b1 b2", write=3), RULES) == []
    assert misplaced(ledger("a1 b1 b2", write=3), three) == [0]
    assert misplaced(ledger("a1 b1 c1", write=3), three) == []
    enforced = replace(RULES, options=PlacementOptions(enforce_racks=True))
    assert misplaced(ledger("a1 x1", write=2), RULES) == []
    assert misplaced(ledger("a1 x1", write=2), enforced) == [0]
    no_racks = replace(RULES, options=PlacementOptions(by_rack=False))
    assert misplaced(ledger("a1 a2", write=2), no_racks) == []


async def test_the_periodic_check(autojump_clock: object, nursery: trio.Nursery) -> None:
    options = AutoRecoveryOptions(
        placement_check_interval_s=100, ledger_check_interval_s=0, marked_grace_s=60
    )
    world = World(4, options)
    await world.register()
    for _ in range(3):
        await world.ledger((2, 2, 2), 3)
    tasks = TaskStore(world.store, "auditor")
    await tasks.prepare()
    earlier = TaskStore(world.store, "auditor", now_ms=lambda: wall_clock_ms() - 61_000)
    await earlier.publish(1, ["b9:3181"])
    world.directory.placement = PlacementRules(racks={"b0:3181": "/a", "b1:3181": "/b"})
    stats = RecoveryStats()
    auditor = Auditor(world.store, world.directory, tasks, options, stats)
    nursery.start_soon(auditor.run)
    await trio.sleep(1)
    wrong = 0
    async for ledger_id in world.client.ledgers():
        metadata = await world.client.metadata(ledger_id)
        wrong += {*metadata.ensembles[0]} == {"b2:3181", "b3:3181"}
    assert wrong
    values = stats.values
    assert values["auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY"] == wrong
    overdue = "auditor_NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD"
    assert values[overdue] == 1
    assert await tasks.checked_ms(tree.PLACEMENT_CHECK_TIME) is not None
    assert 'auditor_PLACEMENT_POLICY_CHECK_TIME_count{success="true"} 1' in stats.text()


def test_as_few_bookies_move_as_may_be() -> None:
    writable = [*RACKS, "d1"]
    racks = PlacementRules(racks={**RACKS, "d1": "/d"})
    (place,) = moves(ledger("a1 a2", write=2), 0, writable, racks) or {}
    assert place == 0
    found = moves(ledger("b1 c1", "a1 b1 a2", write=2), 10, writable, racks)
    assert found is not None
    assert len(found) == 1
    assert moves(ledger("a1 a2", write=2), 0, ["a1", "a2"], racks) is None
    three = replace(racks, options=PlacementOptions(min_racks=3))
    three = replace(three, racks={**racks.racks, "a3": "/a"})
    found = moves(ledger("a1 a2 a3", write=3), 0, writable, three)
    assert found is not None
    assert len(found) == 2
    assert moves(ledger("a1 a2", write=2), 0, ["a1", "b1"], replace(racks, racks={})) is None


MOVING = AutoRecoveryOptions(batch_entries=3, moves_misplaced=True)
HOMES = {f"b{number}:3181": rack for number, rack in enumerate(("/a", "/a", "/a", "/b", "/c"))}


async def misplaced_ledger(world: World) -> LedgerMetadata:
    """One in a single rack, as it was before its bookies' racks were known."""
    await world.register(*world.peers[:3])
    for peer in world.peers[3:]:
        world.directory.leave(peer.bookie_id)
    made = await world.ledger((3, 2, 2), 10)
    for peer in world.peers[3:]:
        world.directory.join(peer)
        await world.register(peer)
    world.directory.placement = PlacementRules(racks=HOMES)
    return made


async def test_misplaced_ledgers_are_moved() -> None:
    world = World(5, MOVING)
    made = await misplaced_ledger(world)
    stats = RecoveryStats()
    tasks = TaskStore(world.store, "worker")
    await Auditor(world.store, world.directory, tasks, world.options).check_placement()
    assert await world.marked() == [made.ledger_id]
    worker = ReplicationWorker(world.store, world.directory, tasks, world.options, stats)
    async with trio.open_nursery() as nursery:
        assert await worker.look(world.store.session.epoch, nursery)
    assert await world.marked() == []
    metadata = await world.check_whole(made.ledger_id)
    assert misplaced(metadata, world.directory.rules()) == []
    stayed = set(metadata.ensembles[0]) & set(made.ensembles[0])
    assert len(stayed) == 1
    values = stats.values
    assert values["replication_worker_NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED"] == 1
    copied = values["replication_worker_NUM_ENTRIES_WRITTEN"]
    assert copied == values["replication_worker_NUM_ENTRIES_READ"]
    new = {*metadata.ensembles[0]} - stayed
    places = [members(metadata, entry_id) for entry_id in range(10)]
    assert copied == sum(each in new for found in places for each in found)
    packets = [each.packet(made.ledger_id, 0) for each in world.peers]
    (size,) = {len(each) for each in packets if each is not None}
    for what in ("READ", "WRITTEN"):
        name = f'replication_worker_NUM_BYTES_{what}_sum{{success="true"}}'
        assert f"{name} {float(copied * size)}\n" in stats.text()
    assert 'replication_worker_READ_DATA_LATENCY_count{success="true"}' in stats.text()


async def test_ledgers_without_other_bookies_stay_marked(autojump_clock: object) -> None:
    world = World(5, MOVING)
    made = await misplaced_ledger(world)
    world.directory.placement = PlacementRules(racks=dict.fromkeys(HOMES, "/a"))
    await world.auditor().check_placement()
    assert not await world.work()
    assert await world.marked() == [made.ledger_id]
    assert (await world.client.metadata(made.ledger_id)).ensembles == made.ensembles


async def test_nothing_moves_unless_it_is_asked_for() -> None:
    world = World(5)
    made = await misplaced_ledger(world)
    await world.auditor().check_placement()
    assert await world.marked() == []
    await world.tasks.publish(made.ledger_id, [])
    await world.work()
    assert await world.marked() == []
    assert (await world.client.metadata(made.ledger_id)).ensembles == made.ensembles


@pytest.mark.parametrize("is_made", [False, True])
async def test_a_move_that_is_killed_is_done_again(is_made: bool) -> None:
    """At each step; the ledger is whole at each moment."""
    step = 0
    while True:
        world = World(5, MOVING)
        made = await misplaced_ledger(world)
        await world.auditor().check_placement()
        was_killed = await world.work((step, is_made))
        await world.check_whole(made.ledger_id)
        assert not await world.work()
        metadata = await world.check_whole(made.ledger_id)
        assert misplaced(metadata, world.directory.rules()) == []
        assert await world.marked() == []
        if not was_killed:
            break
        step += 1
    assert step > 5


async def test_two_workers_on_one_ledger_do_no_harm() -> None:
    """The lock of one ended with its session, and it hasn't noticed: metadata change by
    compare-and-set, and only of the fragment that was copied.
    """
    world = World(6, AutoRecoveryOptions(batch_entries=3))
    await world.register()
    made = await world.ledger((3, 3, 2), 20)
    lost = made.ensembles[0][:2]
    workers = [Repairer(world.store, world.directory, world.options, lost=[each]) for each in lost]
    found: dict[int, Outcome] = {}

    async def repair(number: int) -> None:
        found[number] = await workers[number].repair(made.ledger_id, {lost[number]})

    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(repair, number)
    assert sorted(each.value for each in found.values()) == ["lacking", "whole"]
    metadata = await world.check_whole(made.ledger_id)
    assert len({*lost} & {*metadata.ensembles[0]}) == 1
    left = next(number for number in range(2) if lost[number] in metadata.ensembles[0])
    assert found[left] is Outcome.LACKING


async def test_what_is_counted(autojump_clock: object) -> None:
    world = World(4, AutoRecoveryOptions())
    await world.register()
    lost = world.peer((await world.ledger((3, 3, 2), 5)).ensembles[0][0])
    await world.kill(lost)
    stats = RecoveryStats()
    tasks = TaskStore(world.store, "worker")
    auditor = Auditor(world.store, world.directory, tasks, world.options, stats)
    await auditor._audit(True)
    await auditor.check_ledgers()
    worker = ReplicationWorker(world.store, world.directory, tasks, world.options, stats)
    async with trio.open_nursery() as nursery:
        assert await worker.look(world.store.session.epoch, nursery)
    assert stats.values["auditor_NUM_LEDGERS_CHECKED"] == 1
    assert stats.values["replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED"] == 1
    text = stats.text()
    for line in (
        'auditor_NUM_UNDER_REPLICATED_LEDGERS_sum{success="true"} 1.0',
        'auditor_AUDIT_BOOKIES_TIME_count{success="true"} 1',
        'auditor_CHECK_ALL_LEDGERS_TIME_count{success="true"} 1',
        'replication_worker_rereplicate_count{success="true"} 1',
        'replication_worker_rereplicate_count{success="false"} 0',
    ):
        assert f"{line}\n" in text


async def test_its_http_port(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1)
    await world.register()

    @asynccontextmanager
    async def opened(
        _config: AutoRecoveryConfig,
    ) -> AsyncIterator[tuple[MetadataStore, BookieDirectory]]:
        yield world.store, world.directory

    monkeypatch.setattr(process, "open_cluster", opened)
    keys = {
        "metadataServiceUri": "zk+hierarchical://h:1/ledgers",
        "httpServerEnabled": "true",
        "httpServerHost": "127.0.0.1",
        "httpServerPort": "0",
    }
    async with trio.open_nursery() as nursery:
        running = await nursery.start(run_autorecovery, load_config(None, {}, keys))
        assert running.http_port is not None
        async with await trio.open_tcp_stream("127.0.0.1", running.http_port) as stream:
            await stream.send_all(b"GET /metrics HTTP/1.0\r\n\r\n")
            received = b"".join([each async for each in stream])
        for name in COUNTERS + GAUGES:
            assert f"\n{name} 0\n".encode() in received
        for name in SUMMARIES:
            assert f"# TYPE {name} summary\n".encode() in received
        nursery.cancel_scope.cancel()
