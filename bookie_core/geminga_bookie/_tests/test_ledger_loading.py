"""Ledgers that are not in memory: the event loop never waits for an index, and order holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
import trio

from geminga_bookie._tests.support import (
    KEY,
    FaultyDisk,
    Outcomes,
    SlowFlush,
    add,
    ledgers,
    packets,
    read_all,
    read_lac,
    small_options,
    until,
    write_lac,
)
from geminga_bookie.errors import (
    LedgerFenced,
    NoSuchLedger,
    StorageFailed,
    TooManyRequests,
    UnauthorizedAccess,
)
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.storage import ledger_table
from geminga_bookie.storage.ledger_directory import LedgerDirectory, Sealed
from geminga_bookie.storage.ledger_loading import PENDING_BYTES
from geminga_bookie.storage.ledger_table import LedgerTable
from geminga_bookie.storage.location_index import LocationIndex


@dataclass
class SlowIndex:
    """Records of ledgers are read once the test lets them be; notes the threads."""

    go: threading.Event = field(default_factory=threading.Event)
    asked: list[int] = field(default_factory=list)
    error: OSError | None = None


@pytest.fixture
def slow_index(monkeypatch: pytest.MonkeyPatch) -> SlowIndex:
    slow = SlowIndex()
    slow.go.set()
    real = LocationIndex.ledger

    def ledger(index: LocationIndex, ledger_id: int) -> object:
        slow.asked.append(ledger_id)
        assert slow.go.wait(60)
        if slow.error is not None:
            raise slow.error
        return real(index, ledger_id)

    monkeypatch.setattr(LocationIndex, "ledger", ledger)
    return slow


@contextmanager
def no_index_in_this_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Reads of an index in the thread of the event loop fail; all threads' are counted."""
    loop = threading.get_ident()
    reads: list[int] = []
    real = LocationIndex._reading

    def reading(index: LocationIndex) -> object:
        reads.append(threading.get_ident())
        assert threading.get_ident() != loop, "the event loop reads the index"
        return real(index)

    with monkeypatch.context() as patch:
        patch.setattr(LocationIndex, "_reading", reading)
        yield reads


async def with_cold_ledgers(bookie: InProcessBookie, count: int) -> None:
    """Ledgers 0, 1, ... with three entries each, of which none is in memory."""
    for ledger_id in range(count):
        await add(bookie, ledger_id, range(3))
    await bookie.checkpointer.checkpoint()
    forget_all(bookie)


def forget_all(bookie: InProcessBookie) -> None:
    """The states that are on disk are not in memory any more."""
    table = bookie.storage.table
    bound, ledger_table.STATES_BYTES_MAX = ledger_table.STATES_BYTES_MAX, 0
    table.trim()
    ledger_table.STATES_BYTES_MAX = bound
    assert not table.states
    assert table.size_bytes == 0


async def test_the_event_loop_reads_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bookie(small_options(tmp_path)) as port:
        bookie = cast(InProcessBookie, port)
        await with_cold_ledgers(bookie, 8)
        with no_index_in_this_thread(monkeypatch) as reads:
            await add(bookie, 0, [3])
            assert await read_all(bookie, 1, 0, 2) == packets(1, range(3))
            assert await read_lac(bookie, 2) == 1
            await bookie.fence(3, KEY)
            await write_lac(bookie, 4, 7)
            assert await bookie.wait_entry(5, 0, 0) == (packets(5, [0])[0], 1)
            await bookie.force(6)
            assert await bookie.list_entries(7) == [0, 1, 2]
            with pytest.raises(NoSuchLedger):
                await bookie.read(9, 0, entries_max=1, bytes_max=1)
            assert reads
        with pytest.raises(UnauthorizedAccess):
            await add(bookie, 1, [3], key=b"another")
        with pytest.raises(LedgerFenced):
            await add(bookie, 3, [3])


async def test_a_new_ledger_above_all_others_is_not_looked_for(
    tmp_path: Path, slow_index: SlowIndex
) -> None:
    """Ids grow: making a ledger costs no read, also after a restart."""
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        await with_cold_ledgers(cast(InProcessBookie, port), 3)
        await add(port, 3, range(2))
    slow_index.asked.clear()
    async with open_bookie(options) as port:
        await add(port, 4, range(2))
        assert 4 not in slow_index.asked
        await add(port, 2, [3])
        await add(port, 10, range(2))
        await add(port, 7, range(2))
        assert slow_index.asked[-2:] == [2, 7]


async def test_adds_keep_their_order_while_their_ledger_is_looked_for(
    tmp_path: Path, slow_index: SlowIndex
) -> None:
    """Also if a read brings it into memory first."""
    async with open_bookie(small_options(tmp_path)) as port:
        bookie = cast(InProcessBookie, port)
        await with_cold_ledgers(bookie, 2)
        slow_index.go.clear()
        cold, other = Outcomes(), Outcomes()
        for entry in range(3, 9):
            bookie.add(0, KEY, entry, packets(0, [entry]), cold)
        bookie.add(0, b"wrong", 9, packets(0, [9]), cold)
        bookie.add(5, KEY, 0, packets(5, [0]), other)
        await other.wait_for(1)
        assert not cold.runs, "only adds of that ledger wait"
        await until(lambda: slow_index.asked)
        bookie.storage.table.enter(0, bookie.storage.table.stores[0].index and _found(bookie, 0))
        bookie.add(0, KEY, 9, packets(0, [9]), cold)
        slow_index.go.set()
        await cold.wait_for(8)
        firsts = [first + number for first, count, _ in cold.runs for number in range(count)]
        assert firsts == [3, 4, 5, 6, 7, 8, 9, 9]
        assert [type(error) for error in cold.errors] == [UnauthorizedAccess]
        assert await read_all(bookie, 0, 0, 9) == packets(0, range(10))


def _found(bookie: InProcessBookie, ledger_id: int):
    """What a read of the index would return, without waiting."""
    store = bookie.storage.stores[0]
    records = {record.ledger_id: record for record in store.index.ledgers()}
    return records[ledger_id], store


async def test_adds_without_room_stay_before_later_ones(
    tmp_path: Path, slow_index: SlowIndex
) -> None:
    disk = FaultyDisk()
    options = small_options(tmp_path, write_cache_bytes=40_000)
    async with open_bookie(options, disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        await with_cold_ledgers(bookie, 1)
        slow_index.go.clear()
        cold, filling = Outcomes(), Outcomes()
        bookie.add(0, KEY, 3, packets(0, [3]), cold)
        bookie.add(0, KEY, 4, packets(0, [4]), cold)
        slow = SlowFlush(disk)
        for entry in range(60):
            bookie.add(7, KEY, entry, packets(7, [entry], 1000), filling)
        assert bookie.statistics().throttled_adds > 0
        bookie.add(0, KEY, 5, packets(0, [5]), cold)  # it waits for room already
        slow_index.go.set()
        await until(lambda: not bookie.loader.is_waited_for(0, bookie.storage.table.states.get(0)))
        slow.go.set()
        await cold.wait_for(3)
        assert not cold.errors
        firsts = [first + number for first, count, _ in cold.runs for number in range(count)]
        assert firsts == [3, 4, 5]
        await filling.wait_for(60)


async def test_an_index_that_fails(tmp_path: Path, slow_index: SlowIndex) -> None:
    """The adds fail; the next ones look again."""
    async with open_bookie(small_options(tmp_path)) as port:
        bookie = cast(InProcessBookie, port)
        await with_cold_ledgers(bookie, 2)
        slow_index.error = OSError(5, "injected")
        with pytest.raises(StorageFailed):
            await add(bookie, 0, [3])
        with pytest.raises(StorageFailed):
            await bookie.read(1, 0, entries_max=1, bytes_max=1)
        slow_index.error = None
        await add(bookie, 0, [3])
        assert await read_all(bookie, 0, 0, 3) == packets(0, range(4))


async def test_adds_that_wait_for_a_record_are_bounded(
    tmp_path: Path, slow_index: SlowIndex
) -> None:
    options = small_options(tmp_path, write_cache_bytes=20_000)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        await with_cold_ledgers(bookie, 1)
        slow_index.go.clear()
        outcomes = Outcomes()
        for entry in range(3, 43):
            bookie.add(0, KEY, entry, packets(0, [entry], 1000), outcomes)
        slow_index.go.set()
        await outcomes.wait_for(40)
        assert {type(error) for error in outcomes.errors} == {TooManyRequests}
        taken = 20_000 // (1032 + PENDING_BYTES)
        firsts = [first for first, _, error in outcomes.runs if error is not None]
        assert firsts == sorted(firsts)
        assert firsts[0] == 3 + taken
        assert await read_all(bookie, 0, 3, 2 + taken) == packets(0, range(3, 3 + taken), 1000)


@pytest.mark.parametrize("by_add", [False, True])
async def test_a_ledger_deleted_while_it_is_looked_for(
    tmp_path: Path, slow_index: SlowIndex, monkeypatch: pytest.MonkeyPatch, by_add: bool
) -> None:
    """What was read before the deletion doesn't bring it back."""
    real = LedgerTable.search
    held, go = threading.Event(), threading.Event()

    def search(table: LedgerTable, ledger_id: int) -> object:
        found = real(table, ledger_id)
        if not held.is_set():
            held.set()
            assert go.wait(60)
        return found

    async with open_bookie(small_options(tmp_path)) as port:
        bookie = cast(InProcessBookie, port)
        await with_cold_ledgers(bookie, 2)
        monkeypatch.setattr(LedgerTable, "search", search)
        outcomes = Outcomes()

        async def look() -> None:
            with pytest.raises(NoSuchLedger):
                await bookie.read(0, 0, entries_max=1, bytes_max=1)

        async with trio.open_nursery() as nursery:
            if by_add:
                bookie.add(0, b"its new key", 0, packets(0, [0]), outcomes)
            else:
                nursery.start_soon(look)
            await until(held.is_set)
            await bookie.gc.collect(ledgers(1))
            go.set()
        if by_add:
            await outcomes.wait_for(1)
            assert not outcomes.errors, "it is a new ledger"


async def test_states_are_bounded_by_their_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys may have 64 KiB: what is looked up is forgotten, without a checkpoint."""
    monkeypatch.setattr(ledger_table, "STATES_BYTES_MAX", 100_000)
    async with open_bookie(small_options(tmp_path)) as port:
        bookie = cast(InProcessBookie, port)
        table = bookie.storage.table
        for ledger_id in range(40):
            await add(port, ledger_id, [0], key=bytes(20_000))
        await bookie.checkpointer.checkpoint()
        assert table.size_bytes <= 100_000
        for ledger_id in range(40):
            await port.read(ledger_id, 0, entries_max=1, bytes_max=1)
            assert table.size_bytes <= 100_000 * 5 // 4 + 30_000
            assert table.size_bytes == sum(map(_size, table.states.values()))


def _size(state: ledger_table.LedgerRuntime) -> int:
    return state.measure()


async def test_changed_records_fill_the_write_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fences and keys of many ledgers are flushed before they take more memory than entries may;
    those that came during a flush right after it.
    """
    all_came = threading.Event()
    flush = LedgerDirectory.flush

    def slow(store: LedgerDirectory, sealed: Sealed) -> None:
        all_came.wait()
        flush(store, sealed)

    monkeypatch.setattr(LedgerDirectory, "flush", slow)
    options = small_options(tmp_path, write_cache_bytes=400_000)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        store = bookie.storage.stores[0]
        try:
            for ledger_id in range(20):
                await port.fence(ledger_id, bytes(50_000))
            assert store.is_full
        finally:
            all_came.set()
        await until(lambda: bookie.checkpointer.checkpoints >= 2)
        assert not store.is_full


async def test_entries_alone_change_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The LAC that they bring stands in their packets."""
    written: list[int] = []
    real: Callable[..., None] = LocationIndex.write

    def write(index: LocationIndex, locations=(), records=(), removed=(), **more) -> None:
        written.extend(record.ledger_id for record in records)
        real(index, locations, records, removed, **more)

    monkeypatch.setattr(LocationIndex, "write", write)
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        await add(port, 1, range(3))
        await bookie.checkpointer.checkpoint()
        assert written == [1]
        await add(port, 1, range(3, 6))
        await bookie.checkpointer.checkpoint()
        assert written == [1]
    async with open_bookie(options) as port:
        assert await read_lac(port, 1) == 4


async def test_a_long_poll_of_a_ledger_that_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a state learnt of the LAC from entries on disk goes with it; one that is waited for
    stays."""
    real = InProcessBookie._lac_answer

    async def answer(bookie: InProcessBookie, state: ledger_table.LedgerRuntime) -> object:
        found = await real(bookie, state)
        asked.append(state.ledger_id)
        if asked == [0, 1]:
            forget_all(bookie)
            await add(bookie, 1, [3])
            await bookie.checkpointer.checkpoint()
        forget_all(bookie)
        return found

    asked: list[int] = []
    results: list[tuple[bytes | None, int]] = []

    async def poll(ledger_id: int, previous_lac: int) -> None:
        results.append(await bookie.wait_entry(ledger_id, 0, previous_lac))

    async with open_bookie(small_options(tmp_path)) as port:
        bookie = cast(InProcessBookie, port)
        await with_cold_ledgers(bookie, 2)
        with monkeypatch.context() as patch, trio.fail_after(30):
            patch.setattr(InProcessBookie, "_lac_answer", answer)
            assert await bookie.wait_entry(0, 0, 0) == (packets(0, [0])[0], 1)
            assert asked == [0]
            assert await bookie.wait_entry(1, 0, 1) == (packets(1, [0])[0], 2)
            assert asked == [0, 1, 1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll, 1, 2)
            await until(lambda: 1 in bookie._waiters)
            ledger_table.STATES_BYTES_MAX, before = 0, ledger_table.STATES_BYTES_MAX
            bookie.storage.table.trim()
            ledger_table.STATES_BYTES_MAX = before
            assert 1 in bookie.storage.table.states
            assert not results
            await add(bookie, 1, [4])
        assert results == [(packets(1, [0])[0], 3)]
