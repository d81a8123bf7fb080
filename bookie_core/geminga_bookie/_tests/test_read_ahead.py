"""Many ledgers that are caught up on at once share the read cache; reads that wait are bounded."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import cast

import pytest
import trio

from geminga_bookie._tests.support import add, packets, read_all, small_options, until
from geminga_bookie.errors import NoSuchEntry, TooManyRequests
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.storage.read_cache import WINDOW_BYTES_MIN, CachedBlock, ReadCache
from geminga_protocol._tests.cost import cpu_s

KIB = 1024
BLOCK_ENTRIES = 128
AHEAD_BYTES = 4096 * KIB
CACHE_BYTES = 32 * 1024 * KIB


class Readers:
    """Readers of endless ledgers with entries of 1 KiB, as `Reader` serves them."""

    def __init__(self, count: int, chance: random.Random) -> None:
        self._cache = ReadCache(CACHE_BYTES)
        self._places = [0] * count
        self._chance = chance
        self.read_bytes = self.loaded_bytes = self.loads = 0

    def round(self, entries: int) -> None:
        """Each reads that many, in any order."""
        order = list(range(len(self._places)))
        self._chance.shuffle(order)
        for ledger_id in order:
            self._read(ledger_id, entries)

    def _read(self, ledger_id: int, entries: int) -> None:
        cache, end = self._cache, self._places[ledger_id] + entries
        while (place := self._places[ledger_id]) < end:
            found = cache.get(ledger_id, place, end - place, CACHE_BYTES)
            if found is None:
                sequential = cache.window_end(ledger_id) == place
                self._load(ledger_id, place, 1 if sequential else 8)
                continue
            self._places[ledger_id] = place = place + len(found)
            self.read_bytes += len(found) * KIB
            behind = cache.window_end(ledger_id)
            if cache.is_near_end(ledger_id, place) and cache.get(ledger_id, behind, 1, 1) is None:
                self._load(ledger_id, behind, 1)

    def _load(self, ledger_id: int, entry_id: int, divisor: int) -> None:
        window = min(AHEAD_BYTES, self._cache.window_bytes_max()) // divisor
        begin = entry_id // BLOCK_ENTRIES
        count = max(1, window // (BLOCK_ENTRIES * KIB))
        self._cache.put(
            ledger_id,
            [
                CachedBlock(number * BLOCK_ENTRIES, [b""] * BLOCK_ENTRIES, BLOCK_ENTRIES * KIB)
                for number in range(begin, begin + count)
            ],
        )
        self.loads += 1
        self.loaded_bytes += count * BLOCK_ENTRIES * KIB


@pytest.mark.parametrize(
    ("count", "more", "load_kib"),
    [(1, 1.4, 2000), (4, 1.4, 2000), (8, 1.2, 1200), (16, 1.1, 700), (64, 1.1, 120)],
)
@pytest.mark.slow
def test_ledgers_caught_up_on_at_once_are_loaded_once(
    count: int, more: float, load_kib: int
) -> None:
    """With windows of one size sixteen of them loaded everything 16 times."""
    readers = Readers(count, random.Random(count))
    for _ in range(64):
        readers.round(256)
    assert readers.loaded_bytes < more * readers.read_bytes
    assert readers.read_bytes / readers.loads > load_kib * KIB


def test_a_window_grows_again_when_readers_end() -> None:
    cache = ReadCache(CACHE_BYTES)

    def load(ledger_id: int, first: int) -> None:
        cache.put(ledger_id, [CachedBlock(first, [b""], 1024 * KIB)])

    for ledger_id in range(32):
        load(ledger_id, 0)
    assert cache.window_bytes_max() < CACHE_BYTES // 60
    for first in range(1, 40):
        load(0, first)
    assert cache.window_bytes_max() == CACHE_BYTES // 4
    assert ReadCache(0).window_bytes_max() == WINDOW_BYTES_MIN


@pytest.mark.slow
def test_many_ledgers_of_which_little_was_read_are_evicted_at_once() -> None:
    """The loop must not be held: a look at all of them for each eviction took minutes here."""
    cache = ReadCache(CACHE_BYTES)
    for ledger_id in range(100_000):
        cache.put(ledger_id, [CachedBlock(0, [b"", b""], 320)])
        cache.get(ledger_id, 0, 1, 1)

    def evict() -> None:
        cache.put(-1, [CachedBlock(0, [b""], 5 * 1024 * KIB)])
        cache.window_bytes_max()

    assert cpu_s(evict, tries=1) < 0.5
    assert cache.size_bytes <= CACHE_BYTES


async def test_reads_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, real = threading.Event(), LedgerDirectory.load
    loading: list[int] = []

    def load(store: LedgerDirectory, ledger_id: int, *rest: int) -> list[CachedBlock]:
        loading.append(ledger_id)
        assert go.wait(60)
        return real(store, ledger_id, *rest)

    monkeypatch.setattr(LedgerDirectory, "load", load)
    options = small_options(tmp_path, read_threads=3, waiting_reads_max=10)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        for ledger_id in range(12):
            await add(port, ledger_id, range(3))
        await bookie.checkpointer.checkpoint()
        results: list[list[bytes]] = []

        async def read(ledger_id: int, entry_id: int) -> None:
            results.append(await port.read(ledger_id, entry_id, entries_max=1, bytes_max=KIB))

        async with trio.open_nursery() as nursery:
            for ledger_id in range(9):
                nursery.start_soon(read, ledger_id, 1)
            nursery.start_soon(read, 0, 2)
            await until(lambda: len(loading) == 3 and bookie.reader.waiting == 10)
            with trio.fail_after(30), pytest.raises(TooManyRequests):
                await port.read(9, 0, entries_max=1, bytes_max=KIB)
            assert len(loading) == 3
            go.set()
        assert sorted(results) == sorted(
            [*(packets(each, [1])[0:1] for each in range(9)), packets(0, [2])]
        )
        assert await read_all(port, 9, 0, 2) == packets(9, range(3))
        with pytest.raises(NoSuchEntry):
            await port.read(9, 3, entries_max=1, bytes_max=KIB)
        assert bookie.reader.waiting == 0
