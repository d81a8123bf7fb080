"""Copies are completed, and lost bookies replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
import trio.testing

from geminga_bookie.autorecovery._tests.world import Bookie, Mute, World
from geminga_bookie.client.api import LedgerMetadata, LedgerOptions, LedgerState
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.metadata_store import encode
from geminga_bookie.errors import StorageFailed
from geminga_protocol.bookkeeper import paths
from geminga_protocol.bookkeeper import underreplication as tree

SIZES = [(3, 3, 2), (4, 2, 2), (5, 3, 2)]


@pytest.mark.parametrize("sizes", SIZES)
async def test_a_lost_bookie_is_replaced(
    autojump_clock: object, sizes: tuple[int, int, int]
) -> None:
    world = World(6)
    await world.register()
    before = await world.ledger(sizes, 40)
    lost = before.ensembles[0][1]
    await world.kill(world.peer(lost))
    await world.audit()
    assert await world.marked() == [before.ledger_id]
    await world.work()
    after = await world.check_whole(before.ledger_id)
    assert lost not in after.ensembles[0]
    assert await world.marked() == []
    assert await world.tasks.locked() == set()


@pytest.mark.parametrize("kind", [Bookie, Mute])
async def test_entries_in_the_middle_are_completed(
    autojump_clock: object, kind: type[Bookie]
) -> None:
    """They are found on bookies that can't list their entries, too. Nobody is replaced."""
    world = World(0)
    world.peers = [kind(f"b{n}:3181") for n in range(3)]
    for peer in world.peers:
        world.directory.join(peer)
    await world.register()
    before = await world.ledger((3, 3, 2), 40)
    for entry_id in (5, 6, 20):
        world.peers[1].lose(before.ledger_id, entry_id)
    await world.audit()
    task = await world.tasks.read(before.ledger_id)
    assert task is not None
    assert task.missing.replicas == ("b1:3181",)
    await world.work()
    assert await world.check_whole(before.ledger_id) == before
    assert await world.marked() == []
    node = await world.store.get(tree.CHECK_ALL_LEDGERS_TIME)
    assert node is not None
    assert tree.decode_time(tree.CHECK_ALL_LEDGERS_TIME, node.value)


async def test_a_damaged_copy_is_not_copied(autojump_clock: object) -> None:
    world = World(4)
    await world.register()
    before = await world.ledger((3, 3, 2), 20)
    world.peer(before.ensembles[0][0]).damage(before.ledger_id, 7)
    await world.kill(world.peer(before.ensembles[0][1]))
    await world.audit()
    await world.work()
    after = await world.client.metadata(before.ledger_id)
    copied = world.peer(after.ensembles[0][1]).packet(before.ledger_id, 7)
    assert copied == world.peer(before.ensembles[0][2]).packet(before.ledger_id, 7)


async def test_an_entry_without_a_copy_keeps_task_and_metadata(autojump_clock: object) -> None:
    """Nothing is guessed. Another ledger is repaired all the same."""
    world = World(6)
    await world.register()
    before = await world.ledger((3, 3, 2), 20)
    other = await world.ledger((3, 3, 2), 20)
    for peer in world.peers:
        if peer.packet(before.ledger_id, 9):
            peer.lose(before.ledger_id, 9)
    common = sorted({*before.ensembles[0]} & {*other.ensembles[0]})[0]
    await world.kill(world.peer(common))
    await world.audit()
    await world.work()
    assert await world.client.metadata(before.ledger_id) == before
    assert await world.marked() == [before.ledger_id]
    assert await world.tasks.locked() == set()
    await world.check_whole(other.ledger_id)


async def test_without_another_bookie_the_task_is_kept(autojump_clock: object) -> None:
    world = World(3)
    await world.register()
    before = await world.ledger((3, 3, 2), 20)
    world.peers[0].lose(before.ledger_id, 3)
    await world.kill(world.peers[1])
    await world.audit()
    await world.work()
    assert await world.marked() == [before.ledger_id]
    assert await world.client.metadata(before.ledger_id) == before
    assert world.peers[0].packet(before.ledger_id, 3), "what can be copied is"
    world.peers[1].is_gone = False
    await world.register(world.peers[1])
    await world.work()
    await world.check_whole(before.ledger_id)
    assert await world.marked() == []


async def test_a_read_only_bookie_stays_while_it_lacks_nothing(autojump_clock: object) -> None:
    world = World(4)
    await world.register()
    before = await world.ledger((3, 3, 2), 20)
    full = world.peer(before.ensembles[0][0])
    await world.remove(full)
    await world.register(full, readonly=True)
    await world.audit()
    assert await world.marked() == []
    full.lose(before.ledger_id, 11)
    await world.audit()
    await world.work()
    after = await world.check_whole(before.ledger_id)
    assert full.bookie_id not in after.ensembles[0]


async def test_a_bookie_that_does_not_answer_is_not_taken_for_empty(autojump_clock: object) -> None:
    world = World(4)
    await world.register()
    before = await world.ledger((3, 3, 2), 20)
    world.peer(before.ensembles[0][0]).is_gone = True
    await world.audit()
    assert await world.marked() == []
    await world.tasks.publish(before.ledger_id, [before.ensembles[0][0]])
    await world.work()
    assert await world.marked() == [before.ledger_id]
    assert await world.client.metadata(before.ledger_id) == before


async def test_lines_about_many_ledgers_are_few(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Of bookies that don't answer, of entries that can't be copied, of invalid metadata."""
    world = World(4)
    await world.register()
    made = [await world.ledger((3, 3, 2), 2) for _ in range(60)]
    for each in made[:30]:
        await world.store.put(paths.ledger(each.ledger_id), b"nonsense")
    for each in made[30:]:
        world.peer(each.ensembles[0][0]).lose(each.ledger_id, 1)
    for peer in world.peers:
        peer.is_gone = True
    auditor = world.auditor()
    await auditor.check_ledgers()
    for peer in world.peers:
        peer.is_gone = False
        peer.failure = StorageFailed("no space")
    await auditor.check_ledgers()
    await world.work()
    told = Counter(str(each.msg).partition(" (and ")[0] for each in caplog.records)
    for text in ("be checked: %s", "no valid metadata: %s", "be copied to bookie %s: %s"):
        [count] = [told[each] for each in told if each.endswith(text)]
        assert 5 <= count <= 40, told


async def test_an_open_ledger_with_a_lost_bookie_is_closed_after_the_grace_period(
    autojump_clock: object,
) -> None:
    world = World(4)
    await world.register()
    writer = await world.client.create(LedgerOptions(3, 3, 2))
    await append_durably(writer, [(b"%d" % n,) for n in range(10)])
    ensemble = (await world.client.metadata(writer.ledger_id)).ensembles[0]
    await world.kill(world.peer(ensemble[2]))
    await world.audit()
    start = trio.current_time()
    await world.work()
    assert trio.current_time() - start >= 30
    metadata = await world.client.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 9)
    assert await world.marked() == [writer.ledger_id]
    await world.work()
    await world.check_whole(writer.ledger_id)
    assert await world.marked() == []


async def test_an_open_ledger_whose_writer_replaced_the_bookie_is_left_open(
    autojump_clock: object,
) -> None:
    world = World(5)
    await world.register()
    async with trio.open_nursery() as nursery:
        world.client._nursery = nursery
        writer = await world.client.create(LedgerOptions(3, 3, 2))
        await append_durably(writer, [(b"%d" % n,) for n in range(10)])
        ensemble = (await world.client.metadata(writer.ledger_id)).ensembles[0]
        await world.kill(world.peer(ensemble[2]))
        await append_durably(writer, [(b"%d" % n,) for n in range(10, 20)])
        await trio.testing.wait_all_tasks_blocked()
        assert len((await world.client.metadata(writer.ledger_id)).ensembles) == 2
        await world.audit()
        await world.work()
        metadata = await world.client.metadata(writer.ledger_id)
        assert metadata.state is LedgerState.OPEN
        assert ensemble[2] not in metadata.ensembles[0]
        await append_durably(writer, [(b"%d" % n,) for n in range(20, 30)])
        await writer.close()
        nursery.cancel_scope.cancel()
    await world.check_whole(writer.ledger_id)


async def test_a_task_marked_again_meanwhile_stays(autojump_clock: object) -> None:
    world = World(4)
    await world.register()
    before = await world.ledger((3, 3, 2), 5)
    await world.tasks.publish(before.ledger_id, ["b0:3181"])
    session = world.session()
    task = await world.tasks.acquire(before.ledger_id, world.store.session.epoch)
    assert task is not None
    await world.tasks.publish(before.ledger_id, ["b0:3181"])
    assert not await world.tasks.complete(task)
    assert await world.marked() == [before.ledger_id]
    await session.aclose()


@pytest.mark.parametrize(
    "change",
    [
        lambda known: replace(known, ensembles={}, state=LedgerState.OPEN),
        lambda known: replace(known, ensembles={0: ("b0:3181", "b1:3181")}),
        lambda known: replace(known, ensembles={3: known.ensembles[0]}),
        lambda known: replace(known, ack_quorum=4),
    ],
)
async def test_metadata_that_place_no_entries_hold_nothing_up(
    autojump_clock: object, change: Callable[[LedgerMetadata], LedgerMetadata]
) -> None:
    """They must end no daemon, nor the bookie whose process it is in."""
    world = World(4)
    await world.register()
    wrong, good = [await world.ledger((3, 3, 2), 10) for _ in range(2)]
    await world.store.put(paths.ledger(wrong.ledger_id), encode(change(wrong)))
    await world.kill(world.peer("b0:3181"))
    await world.tasks.publish(wrong.ledger_id, [])
    await world.tasks.publish(good.ledger_id, [])
    await world.audit()
    await world.work()
    await world.check_whole(good.ledger_id)
    assert await world.marked() == [wrong.ledger_id]


async def test_a_deleted_ledger_needs_nothing(autojump_clock: object) -> None:
    world = World(4)
    await world.register()
    before = await world.ledger((3, 3, 2), 5)
    await world.tasks.publish(before.ledger_id, ["b0:3181"])
    await world.client.delete(before.ledger_id)
    await world.work()
    assert await world.marked() == []
    assert await world.store.children(tree.TASKS) == []


async def test_nothing_is_done_while_it_is_disabled(autojump_clock: object) -> None:
    world = World(4)
    await world.register()
    before = await world.ledger((3, 3, 2), 5)
    await world.tasks.publish(before.ledger_id, ["b0:3181"])
    assert await world.tasks.disable()
    assert not await world.tasks.disable()
    await world.work()
    assert await world.marked() == [before.ledger_id]
    assert await world.tasks.enable()
    assert not await world.tasks.enable()
    await world.work()
    assert await world.marked() == []
