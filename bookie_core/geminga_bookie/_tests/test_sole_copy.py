"""A damaged journal of the only bookie (BK-02): what is intact is read, what is lost is told, and
no ledger ends in front of an entry that is there.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from geminga_bookie._tests.support import copy_files, small_options
from geminga_bookie.client.api import LOSS_ACCEPTED, LedgerOptions, LedgerState
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.errors import (
    BookkeeperError,
    EntryLost,
    NoSuchEntry,
    NoSuchLedger,
    UnknownLedgerState,
)
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.options import BookieOptions, JournalOptions
from geminga_bookie.port import BookiePort
from geminga_protocol._tests.rounds import rounds
from geminga_protocol.bookkeeper.digest import master_key
from geminga_runtime.metadata.memory import MemoryMetadataStore

LEDGERS = 2
ENTRIES = 300
PAGE_BYTES = 4096
JOURNAL = JournalOptions(segment_bytes=1024 * 1024, first_segment_bytes=1024 * 1024)


def options_in(folder: Path) -> BookieOptions:
    return small_options(folder, journal=JOURNAL)


async def write(bookie: BookiePort, store: MemoryMetadataStore, draw: random.Random) -> list[int]:
    """Ledgers written at once, in bursts or in one: the entries' LAC lies far behind. None is
    closed.
    """
    pause = draw.choice([0, 0.05])
    client = client_of(bookie, store)
    writers = [await client.create(LedgerOptions(1, 1, 1)) for _ in range(LEDGERS)]
    waiting = LEDGERS * ENTRIES
    written = trio.Event()

    def done(_first: int, count: int, error: BookkeeperError | None) -> None:
        nonlocal waiting
        assert error is None
        waiting -= count
        if not waiting:
            written.set()

    for number in range(ENTRIES):
        for writer in writers:
            writer.append([(b"%d" % number, b"." * 100)], done)
        if draw.random() < pause:
            await trio.sleep(0.001)
    await written.wait()
    return [writer.ledger_id for writer in writers]


def client_of(bookie: BookiePort, store: MemoryMetadataStore) -> BookkeeperClient:
    bookies = KnownBookies()
    bookies.join(bookie)
    return BookkeeperClient(bookies, store)


def journal_of(folder: Path) -> Path:
    return max((folder / "journal").glob("*.journal"), key=used_bytes)


def used_bytes(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


def flip(path: Path, draw: random.Random) -> None:
    """A bit of a record."""
    data = bytearray(path.read_bytes())
    data[draw.randrange(PAGE_BYTES, used_bytes(path))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


async def check(bookie: BookiePort, store: MemoryMetadataStore, ledger_ids: Sequence[int]) -> int:
    """Each entry that the bookie holds is read, each in front of one is known to be lost. Returns
    how many are lost in front of others.
    """
    client, lost = client_of(bookie, store), 0
    for ledger_id in ledger_ids:
        try:
            held = await bookie.list_entries(ledger_id)
        except NoSuchLedger:
            continue  # all of it was in the damaged record
        reader = await client.open(ledger_id, b"", recover=True)
        assert reader.last_add_confirmed == held[-1]
        for entry_id in range(held[-1] + 1):
            if entry_id in held:
                [view] = await reader.read(entry_id, entry_id)
                assert bytes(view) == b"%d" % entry_id + b"." * 100
            else:
                lost += 1
                with pytest.raises(EntryLost, match="no other copy"):
                    await reader.read(entry_id, entry_id)
        with pytest.raises(NoSuchEntry):
            await bookie.read(ledger_id, held[-1] + 1, entries_max=1, bytes_max=1)
    return lost


@pytest.mark.slow
async def test_a_damaged_record_costs_its_own_entries_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever bit of the newest journal it is, and after another start too."""
    lost = 0
    for seed in range(rounds(24)):
        draw = random.Random(seed)
        store = MemoryMetadataStore()
        whole, cut = tmp_path / "whole", tmp_path / "cut"
        async with open_bookie(options_in(whole)) as bookie:
            ledger_ids = await write(bookie, store, draw)
            copy_files(whole, cut)
        flip(journal_of(cut), draw)
        async with open_bookie(options_in(cut)) as bookie:
            now = await check(bookie, store, ledger_ids)
        lost += now
        async with open_bookie(options_in(cut)) as bookie:
            assert await check(bookie, store, ledger_ids) == now
        assert not now or "acknowledged entries may be lost" in caplog.text
        caplog.clear()
        shutil.rmtree(whole)
        shutil.rmtree(cut)
    assert lost, "no seed had a hole"


async def test_an_entry_that_failed_is_no_loss(tmp_path: Path) -> None:
    """A gap of a journal without damage was never acknowledged: there a ledger may end."""
    store = MemoryMetadataStore()
    async with open_bookie(options_in(tmp_path)) as bookie:
        [ledger_id, *_] = await write(bookie, store, random.Random(0))
        added: list[BookkeeperError | None] = []
        passed = trio.Event()

        def done(_first: int, _count: int, error: BookkeeperError | None) -> None:
            added.append(error)
            passed.set()

        [packet] = await bookie.read(ledger_id, 0, entries_max=1, bytes_max=1)
        key = await master_key_of(store, ledger_id)
        bookie.add(ledger_id, key, ENTRIES + 5, [packet], done)
        await passed.wait()
        assert added == [None]
        with pytest.raises(NoSuchEntry) as failed:
            await bookie.read(ledger_id, ENTRIES + 1, entries_max=1, bytes_max=1)
        assert not isinstance(failed.value, EntryLost)


async def master_key_of(store: MemoryMetadataStore, ledger_id: int) -> bytes:
    client = BookkeeperClient(KnownBookies(), store)
    return master_key((await client.metadata(ledger_id)).password)


async def test_with_copies_elsewhere_it_is_unknown_what_is_lost(tmp_path: Path) -> None:
    """Other bookies are asked, and the end waits for them, until the loss is accepted."""
    store = MemoryMetadataStore()
    async with open_bookie(options_in(tmp_path / "a")) as bookie:
        [ledger_id, *_] = await write(bookie, store, random.Random(0))
        copy_files(tmp_path / "a", tmp_path / "b")
    path = journal_of(tmp_path / "b")
    data = bytearray(path.read_bytes())
    data[data.index(b"%d" % (ENTRIES // 2) + b"." * 100)] ^= 1
    path.write_bytes(data)
    options = replace(options_in(tmp_path / "b"), replicas_elsewhere=True)
    async with open_bookie(options) as bookie:
        for entry_id in (ENTRIES // 2, ENTRIES):
            with pytest.raises(UnknownLedgerState):
                await bookie.read(ledger_id, entry_id, entries_max=1, bytes_max=1)
        client = client_of(bookie, store)
        with pytest.raises(UnknownLedgerState):
            await client.open(ledger_id, b"", recover=True)
        ledgers = LedgerMetadataStore(store)
        known = await ledgers.read(ledger_id)
        marked = replace(known.metadata, custom_metadata={LOSS_ACCEPTED: b"true"})
        await ledgers.update(known, marked)
        held = await bookie.list_entries(ledger_id)
        reader = await client.open(ledger_id, b"", recover=True)
        assert reader.last_add_confirmed == held[-1]
        assert (await client.metadata(ledger_id)).state is LedgerState.CLOSED
        for entry_id in held:
            assert await reader.read(entry_id, entry_id)


@pytest.mark.parametrize("sizes", [(3, 1, 1), (3, 3, 2)])
async def test_a_bookie_that_is_away_has_not_lost_anything(sizes: tuple[int, int, int]) -> None:
    """Also where a loss was accepted: its entries may be there."""
    store, bookies = MemoryMetadataStore(), KnownBookies()
    away = MemoryBookie("b3:3181")
    for each in (MemoryBookie("b1:3181"), MemoryBookie("b2:3181"), away):
        bookies.join(each)
    client = BookkeeperClient(bookies, store)
    custom = {LOSS_ACCEPTED: b"true"}
    writer = await client.create(LedgerOptions(*sizes, custom_metadata=custom))
    await append_durably(writer, [(b"%d" % number,) for number in range(6)])
    bookies.leave(away.bookie_id)
    with pytest.raises(UnknownLedgerState):
        await client.open(writer.ledger_id, b"", recover=True)
    bookies.join(away)
    reader = await client.open(writer.ledger_id, b"", recover=True)
    assert reader.last_add_confirmed == 5
