"""A bookie that fails is replaced, and nothing that was confirmed is lost (BK-21)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio

from geminga_bookie.client._tests.cluster import DISK, Cluster, Heard, Peer, append
from geminga_bookie.client._tests.test_client import settle
from geminga_bookie.client.api import LedgerMetadata, LedgerState
from geminga_bookie.client.append import CHANGE_WAIT_S, CLOSE_WAIT_S, SPARE_POLL_S
from geminga_bookie.errors import (
    BookieUnavailable,
    LedgerFenced,
    RequestTimeout,
    StorageFailed,
    UnknownLedgerState,
)


async def test_another_bookie_takes_its_place(nursery: trio.Nursery) -> None:
    """From the first entry on that is not confirmed, and gets all of them."""
    cluster = Cluster(4, nursery)
    writer, [first, second, third] = await cluster.writer(3, 3, 2)
    heard = Heard()
    append(writer, 3, heard)
    await settle()
    second.failure = DISK
    append(writer, 2, heard)
    append(writer, 1, heard)
    await settle()
    assert (heard.confirmed, heard.error) == (6, None)
    metadata = await cluster.client.metadata(writer.ledger_id)
    [_, change] = metadata.ensembles
    assert change >= 3
    came = cluster.peer(metadata.ensembles[change][1])
    assert came not in (first, second, third)
    assert metadata.ensembles[change] == (first.bookie_id, came.bookie_id, third.bookie_id)
    assert came.has(writer.ledger_id) == list(range(change, 6))
    append(writer, 4, heard)
    await settle()
    assert second.adds[-1][0] < change, "it is sent nothing more"
    await writer.close()
    metadata = await cluster.client.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 9)
    cluster.check_copies(metadata, 9, 2)
    second.is_gone = True
    reader = await cluster.client.open(writer.ledger_id, b"", recover=False)
    assert [bytes(each) for each in await reader.read(0, 9)] == [b"%d" % n for n in range(10)]


async def test_a_fragment_without_a_confirmed_entry_is_changed(nursery: trio.Nursery) -> None:
    cluster = Cluster(5, nursery)
    writer, [_, second, third] = await cluster.writer(3, 2, 2)
    second.failure = third.failure = DISK
    heard = Heard()
    append(writer, 7, heard)
    await settle()
    assert (heard.confirmed, heard.error) == (7, None)
    metadata = await cluster.client.metadata(writer.ledger_id)
    assert list(metadata.ensembles) == [0]
    cluster.check_copies(metadata, 6, 2)


async def test_nothing_is_confirmed_before_the_change_is_durable(nursery: trio.Nursery) -> None:
    """What was sent belongs to the new fragment, where a recovery would look for it."""
    cluster = Cluster(4, nursery)
    writer, [first, second, third] = await cluster.writer(3, 3, 2)
    heard = Heard()
    first.held = []
    third.held = []
    append(writer, 2, heard)
    await settle()
    cluster.store.gate = trio.Event()
    second.failure = DISK
    append(writer, 2, heard)
    await settle()
    first.release()
    third.release()
    append(writer, 1, heard)
    await settle()
    assert heard.confirmed == 0
    cluster.store.gate.set()
    await settle()
    assert heard.confirmed == 5
    assert list((await cluster.client.metadata(writer.ledger_id)).ensembles) == [0]


async def test_answers_of_a_replaced_bookie_count_no_more(nursery: trio.Nursery) -> None:
    """Its copies are not where the metadata says."""
    cluster = Cluster(4, nursery)
    writer, [first, second, third] = await cluster.writer(3, 3, 2)
    fourth = next(each for each in cluster.peers if each not in (first, second, third))
    heard = Heard()
    second.held = []
    third.is_silent = fourth.is_silent = True
    append(writer, 2, heard)
    await settle()
    assert second.held
    done, begin, count, _ = second.held[0]
    done(begin, count, DISK)
    await settle()
    assert fourth.has(writer.ledger_id) == [0, 1]
    done(begin, count, None)
    await settle()
    assert heard.confirmed == 0


async def test_what_a_replaced_bookie_had_counts_no_more(nursery: trio.Nursery) -> None:
    cluster = Cluster(4, nursery)
    writer, [first, second, third] = await cluster.writer(3, 3, 2)
    [fourth] = [each for each in cluster.peers if each not in (first, second, third)]
    first.held = []
    third.held = []
    heard = Heard()
    append(writer, 2, heard)
    await settle()
    second.failure = DISK
    fourth.is_silent = True
    append(writer, 1, heard)
    await settle()
    assert fourth.has(writer.ledger_id) == [0, 1, 2]
    first.release()
    await settle()
    assert heard.confirmed == 0, "one bookie of the new ensemble has them"
    third.release()
    await settle()
    assert heard.confirmed == 3


async def test_a_change_that_may_have_been_made(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    """Nobody is left to replace the failed bookie after all, and the store's answer was lost: in
    which ensemble entries are is not known, and nothing is confirmed any more."""
    cluster = Cluster(4, nursery)
    writer, [first, second, third] = await cluster.writer(3, 3, 2)
    [fourth] = [each for each in cluster.peers if each not in (first, second, third)]
    first.held = third.held = []
    cluster.store.outcomes = [False]
    heard = Heard()
    append(writer, 1, heard)
    second.failure = DISK
    append(writer, 1, heard)
    await settle()
    cluster.directory.leave(fourth.bookie_id)
    await trio.sleep(1)
    assert (heard.confirmed, type(heard.error)) == (0, RequestTimeout)


async def test_without_another_bookie_ack_quorums_go_on(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    """And one that comes later takes its place."""
    cluster = Cluster(3, nursery)
    writer, [first, second, third] = await cluster.writer(3, 3, 2)
    heard = Heard()
    second.failure = DISK
    append(writer, 2, heard)
    await settle()
    assert (heard.confirmed, heard.error) == (2, None)
    assert list((await cluster.client.metadata(writer.ledger_id)).ensembles) == [0]
    late = Peer("b9:3181")
    cluster.peers.append(late)
    cluster.directory.join(late)
    first.held = []
    append(writer, 2, heard)
    await trio.sleep(1)
    first.release()
    await settle()
    assert heard.confirmed == 4
    metadata = await cluster.client.metadata(writer.ledger_id)
    assert metadata.ensembles[2] == (first.bookie_id, late.bookie_id, third.bookie_id)
    assert late.has(writer.ledger_id) == [2, 3]


async def test_a_spare_that_nobody_told_of_is_found(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    cluster = Cluster(3, nursery)
    writer, [_, second, _] = await cluster.writer(3, 3, 2)
    second.failure = DISK
    append(writer, 2, Heard())
    await settle()
    late = Peer("b9:3181")
    cluster.directory._ports[late.bookie_id] = late
    await trio.sleep(SPARE_POLL_S + 1)
    append(writer, 1, Heard())
    await settle()
    assert late.has(writer.ledger_id) == [2]


async def test_without_ack_quorums_the_ledger_fails(nursery: trio.Nursery) -> None:
    cluster = Cluster(3, nursery)
    writer, [_, second, third] = await cluster.writer(3, 3, 2)
    heard = Heard()
    append(writer, 1, heard)
    await settle()
    second.failure = DISK
    append(writer, 1, heard)
    await settle()
    third.failure = DISK
    append(writer, 1, heard)
    await settle()
    assert (heard.confirmed, heard.error) == (2, DISK)
    await writer.close()
    assert (await cluster.client.metadata(writer.ledger_id)).last_entry_id == 1


async def test_one_that_fails_again_is_replaced_again(nursery: trio.Nursery) -> None:
    cluster = Cluster(5, nursery)
    writer, members = await cluster.writer(3, 3, 3)
    for peer in cluster.peers:
        if peer not in members:
            peer.failure = DISK
            break
    members[0].failure = DISK
    heard = Heard()
    append(writer, 3, heard)
    await settle()
    assert (heard.confirmed, heard.error) == (3, None)
    cluster.check_copies(await cluster.client.metadata(writer.ledger_id), 2, 3)


@pytest.mark.parametrize("outcomes", [[True], [False], [False, False, True], [True, True]])
async def test_a_store_that_does_not_answer(
    nursery: trio.Nursery, autojump_clock: object, outcomes: list[bool]
) -> None:
    cluster = Cluster(4, nursery)
    cluster.store.outcomes = list(outcomes)
    writer, [_, second, _] = await cluster.writer(3, 3, 3)
    second.failure = DISK
    heard = Heard()
    append(writer, 2, heard)
    await trio.sleep(5)
    assert (heard.confirmed, heard.error) == (2, None)
    append(writer, 1, heard)
    await settle()
    cluster.store.outcomes = []
    await writer.close()
    cluster.check_copies(await cluster.client.metadata(writer.ledger_id), 2, 3)


async def test_a_change_without_an_end_fails_the_ledger(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    cluster = Cluster(4, nursery)
    writer, [_, second, _] = await cluster.writer(3, 3, 3)
    cluster.store.gate = trio.Event()
    second.failure = DISK
    heard = Heard()
    append(writer, 2, heard)
    await trio.sleep(CHANGE_WAIT_S + 1)
    assert (heard.confirmed, type(heard.error)) == (0, RequestTimeout)
    cluster.store.gate.set()
    await writer.close()
    assert (await cluster.client.metadata(writer.ledger_id)).state is LedgerState.CLOSED


async def test_a_change_meets_a_recovery(nursery: trio.Nursery) -> None:
    """The writer gives up, and nothing of what it didn't confirm is confirmed later."""
    cluster = Cluster(4, nursery)
    writer, [_, second, _] = await cluster.writer(3, 3, 2)
    heard = Heard()
    append(writer, 2, heard)
    await settle()
    other = await cluster.client.open(writer.ledger_id, b"", recover=True)
    second.failure = DISK
    for peer in cluster.peers:
        peer.held = [] if peer is not second else None
    append(writer, 1, heard)
    await settle()
    assert (heard.confirmed, type(heard.error)) == (2, LedgerFenced)
    assert other.last_add_confirmed == 1
    with pytest.raises(LedgerFenced):
        await writer.close()


async def test_the_close_during_a_change(nursery: trio.Nursery) -> None:
    """The change may have been made although nobody waits for it any more."""
    cluster = Cluster(4, nursery)
    writer, [_, second, _] = await cluster.writer(3, 3, 3)
    heard = Heard()
    append(writer, 2, heard)
    await settle()
    cluster.store.gate = trio.Event()
    second.failure = DISK
    append(writer, 1, heard)
    await settle()
    writer.abandon(StorageFailed("given up"))
    metadata = await cluster.client.metadata(writer.ledger_id)
    changed = {**metadata.ensembles, 2: metadata.ensembles[0]}
    store = writer._store
    cluster.store.gate.set()
    await store.update(writer._known, _with(metadata, changed))
    await writer.close()
    metadata = await cluster.client.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 1)
    assert metadata.ensembles == changed


async def test_a_silent_bookie_does_not_hold_the_close(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    cluster = Cluster(3, nursery)
    writer, members = await cluster.writer(3, 3, 3)
    heard = Heard()
    append(writer, 2, heard)
    await settle()
    members[0].is_silent = True
    append(writer, 2, heard)
    with trio.fail_after(CLOSE_WAIT_S + 1):
        await writer.close()
    assert (heard.confirmed, type(heard.error)) == (2, RequestTimeout)
    assert (await cluster.client.metadata(writer.ledger_id)).last_entry_id == 1


async def test_readers_follow_entries_that_moved() -> None:
    """Others copy what a lost bookie had."""
    cluster = Cluster(2, None)
    writer, [old] = await cluster.writer(1, 1, 1)
    append(writer, 3, Heard())
    await settle()
    await writer.close()
    reader = await cluster.client.open(writer.ledger_id, b"", recover=False)
    [new] = [each for each in cluster.peers if each is not old]
    new._ledgers[writer.ledger_id] = old._ledgers[writer.ledger_id]
    old.is_gone = True
    with pytest.raises(BookieUnavailable):
        await reader.read(0, 2)
    known = writer._known
    await writer._store.update(known, _with(known.metadata, {0: (new.bookie_id,)}))
    assert len(await reader.read(0, 2)) == 3


async def test_a_reader_of_an_open_ledger_asks_who_is_there(autojump_clock: object) -> None:
    cluster = Cluster(3, None)
    writer, [first, second, _] = await cluster.writer(3, 3, 2)
    append(writer, 3, Heard())
    await settle()
    append(writer, 1, Heard())
    await settle()
    first.is_silent = True
    reader = await cluster.client.open(writer.ledger_id, b"", recover=False)
    assert reader.last_add_confirmed == 2
    second.is_gone = True
    with pytest.raises(BookieUnavailable):
        await reader.read_last_add_confirmed()
    first.is_silent = second.is_gone = False
    await writer.close()
    assert await reader.read_last_add_confirmed() == 3


@pytest.mark.parametrize("bookies", [3, 4])
async def test_a_recovery_replaces_who_is_away(bookies: int) -> None:
    """Where nobody can take its place, an ack quorum of copies is enough; but not less."""
    cluster = Cluster(bookies, None)
    writer, [first, second, third] = await cluster.writer(3, 3, 2)
    append(writer, 3, Heard())
    await settle()
    for peer in (first, third):
        peer.held = []
    append(writer, 2, Heard())
    await settle()
    first.held = third.held = None
    second.is_gone = True
    reader = await cluster.client.open(writer.ledger_id, b"", recover=True)
    assert reader.last_add_confirmed == 4
    metadata = await cluster.client.metadata(writer.ledger_id)
    cluster.check_copies(metadata, 4, 2)
    assert len(metadata.ensembles) == bookies - 2
    if bookies == 4:
        came = cluster.peer(metadata.ensembles[max(metadata.ensembles)][1])
        assert came.has(writer.ledger_id) == list(range(max(metadata.ensembles), 5))


async def test_a_recovery_needs_ack_quorums_of_copies() -> None:
    cluster = Cluster(3, None)
    writer, [first, _, third] = await cluster.writer(3, 3, 2)
    append(writer, 2, Heard())
    await settle()
    first.failure = third.failure = DISK
    with pytest.raises(UnknownLedgerState, match="can't be written again"):
        await cluster.client.open(writer.ledger_id, b"", recover=True)
    first.failure = None
    reader = await cluster.client.open(writer.ledger_id, b"", recover=True)
    assert reader.last_add_confirmed == 1


def _with(metadata: LedgerMetadata, ensembles: dict[int, Sequence[str]]) -> LedgerMetadata:
    return replace(metadata, ensembles=ensembles)
