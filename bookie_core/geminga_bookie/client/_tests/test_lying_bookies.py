"""A ledger's clients with late, repeated, damaged or reordered responses of bookies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga_bookie.client._tests.test_client import Answers, World, settle, world, written
from geminga_bookie.client.api import LedgerMetadata, LedgerOptions, LedgerState
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.errors import (
    BookkeeperError,
    DigestMismatch,
    LedgerClosed,
    MetadataConflict,
    NoSuchEntry,
    StorageFailed,
)
from geminga_protocol.bookkeeper import digest as packets
from geminga_protocol.bookkeeper.digest import Digest

__all__ = ["world"]


async def held(world: World, payloads: list[bytes]) -> tuple[LedgerWriter, Answers]:
    """A writer whose entries are stored, each appended separately, without results."""
    writer = await world.client.create(LedgerOptions())
    world.bookie.held = []
    answers = Answers()
    for payload in payloads:
        writer.append([(payload,)], answers)
    return writer, answers


def answer(world: World, number: int, error: StorageFailed | None = None) -> None:
    assert world.bookie.held is not None
    done, first, count = world.bookie.held[number]
    done(first, count, error)


async def test_entries_tell_of_what_is_confirmed_only(world: World) -> None:
    """Recovery starts at the bookies' last add confirmed, and needs that entry."""
    writer, _ = await held(world, [b"a", b"b"])
    answer(world, 0)
    writer.append([(b"c",), (b"d",)], Answers())
    stored = world.bookie._ledgers[writer.ledger_id].entries
    assert [packets.header(stored[n])[2] for n in range(4)] == [-1, -1, 0, 0]


async def test_answers_out_of_order_confirm_in_order(world: World) -> None:
    writer, answers = await held(world, [b"a", b"b", b"c"])
    answer(world, 2)
    answer(world, 1)
    assert (list(answers), writer.last_add_confirmed) == ([], -1)
    answer(world, 0)
    assert [(first, count, error) for first, count, error in answers] == [
        (0, 1, None),
        (1, 1, None),
        (2, 1, None),
    ]
    assert (writer.last_add_confirmed, writer.length) == (2, 3)


async def test_an_answer_for_more_than_was_sent_confirms_no_more(world: World) -> None:
    writer, answers = await held(world, [b"a", b"b"])
    assert world.bookie.held is not None
    world.bookie.held[0][0](0, 100, None)
    assert (len(answers), writer.last_add_confirmed) == (2, 1)


@pytest.mark.parametrize("number", [0, 1])
async def test_answers_after_a_failure_confirm_nothing(world: World, number: int) -> None:
    """Their appends failed, so that their producer resends them."""
    writer, answers = await held(world, [b"a", b"b"])
    writer.abandon(StorageFailed("given up"))
    answer(world, number)
    assert [type(error) for _, _, error in answers] == [StorageFailed, StorageFailed]
    assert writer.last_add_confirmed == -1
    await writer.close()
    assert (await world.client.metadata(writer.ledger_id)).last_entry_id == -1


async def test_a_damaged_entry_is_not_recovered(world: World) -> None:
    """It would be rewritten as if it were intact."""
    writer, _ = await held(world, [b"a", b"b", b"c"])
    world.bookie.held = None
    entries = world.bookie._ledgers[writer.ledger_id].entries
    entries[1] = entries[1][:-1] + b"?"
    with pytest.raises(DigestMismatch):
        await world.client.open(writer.ledger_id, b"", recover=True)
    assert (await world.client.metadata(writer.ledger_id)).state is not LedgerState.CLOSED


async def test_what_is_not_confirmed_is_not_read(world: World) -> None:
    """A recovery may find that too few bookies have it."""
    writer, _ = await held(world, [b"a", b"b"])
    answer(world, 0)
    answer(world, 1)
    writer.append([(b"c",)], Answers())
    reader = await world.client.open(writer.ledger_id, b"", recover=False)
    assert reader.last_add_confirmed == 1
    assert [bytes(view) for view in await reader.read(0, 1)] == [b"a", b"b"]
    for first in (0, 2):
        with pytest.raises(NoSuchEntry, match="which ends at 1"):
            await reader.read(first, 2)


async def test_a_recovered_ledger_is_as_long_as_its_last_entry_says(world: World) -> None:
    writer, _ = await held(world, [b"a" * n for n in range(1, 5)])
    world.bookie.held = None
    reader = await world.client.open(writer.ledger_id, b"", recover=True)
    assert (reader.last_add_confirmed, reader.length) == (3, 10)


LIES = {
    "a higher LAC": lambda entry, ledger_id: entry[:16] + (9).to_bytes(8, "big") + entry[24:],
    "of another ledger": lambda entry, ledger_id: Digest().packet(ledger_id + 1, 0, 0, 1, [b"a"]),
    "cut": lambda entry, ledger_id: entry[:20],
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("recover", [True, False])
async def test_a_bookies_word_for_the_end_does_not_count(
    world: World, lie: str, recover: bool
) -> None:
    """Only what the ledger's writer said, under its digest."""
    writer = await written(world, [b"a", b"b"])
    ledger = world.bookie._ledgers[writer.ledger_id]
    ledger.entries[1] = LIES[lie](ledger.entries[1], writer.ledger_id)
    if recover or lie != "a higher LAC":
        with pytest.raises(BookkeeperError):
            await world.client.open(writer.ledger_id, b"", recover=recover)
    else:
        reader = await world.client.open(writer.ledger_id, b"", recover=False)
        assert reader.last_add_confirmed == 0, "what is confirmed is still read"
    assert (await world.client.metadata(writer.ledger_id)).state is not LedgerState.CLOSED


@pytest.mark.parametrize("recover", [True, False])
async def test_an_explicit_lac(world: World, recover: bool) -> None:
    """It reaches further than what the entries tell; a forged one is refused."""
    writer = await written(world, [b"a", b"b"])
    ledger_id, key = writer.ledger_id, packets.master_key(b"")
    forged = Digest().lac_packet(ledger_id, 1)[:-1] + b"?"
    world.bookie._ledgers[ledger_id].explicit_packet = forged
    if recover:
        with pytest.raises(BookkeeperError):
            await world.client.open(ledger_id, b"", recover=True)
    else:
        reader = await world.client.open(ledger_id, b"", recover=False)
        assert reader.last_add_confirmed == -1, "the last packet was pushed before any answer"
    world.bookie._ledgers[ledger_id].explicit_packet = None
    await world.bookie.write_lac(ledger_id, key, 1, Digest().lac_packet(ledger_id, 1))
    reader = await world.client.open(ledger_id, b"", recover=recover)
    assert reader.last_add_confirmed == 1


async def test_a_ledger_is_not_made_over_another(world: World) -> None:
    store = LedgerMetadataStore(world.store)
    writer = await written(world, [b"a"])
    known = await store.read(writer.ledger_id)
    taken = {known.metadata.ledger_id + n for n in (1, 2)}
    for ledger_id in taken:
        await store.create(another(known.metadata, ledger_id))
    with pytest.raises(MetadataConflict):
        await store.create(another(known.metadata, writer.ledger_id))
    assert await store.read(writer.ledger_id) == known
    made = await world.client.create(LedgerOptions())
    assert made.ledger_id not in taken | {writer.ledger_id}


def another(metadata: LedgerMetadata, ledger_id: int) -> LedgerMetadata:
    return replace(metadata, ledger_id=ledger_id, ensembles={0: ("elsewhere:3181",)})


async def test_a_closed_writer_takes_nothing(world: World) -> None:
    writer = await written(world, [b"a"])
    await writer.close()
    answers = Answers()
    writer.append([(b"b",)], answers)
    await settle()
    assert [type(error) for _, _, error in answers] == [LedgerClosed]
    assert (await world.client.metadata(writer.ledger_id)).last_entry_id == 0
