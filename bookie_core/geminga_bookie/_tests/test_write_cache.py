"""Both caches against dumb oracles (BK-03, BK-05)."""

from __future__ import annotations

from itertools import pairwise

import trio
from hypothesis import given
from hypothesis import strategies as st

from geminga_bookie._tests.support import packet, packets
from geminga_bookie.storage.entry_logs.format import BLOCK_BYTES_MAX, BLOCK_ENTRIES_MAX
from geminga_bookie.storage.ledger_directory import split_run
from geminga_bookie.storage.read_cache import IDLE_CACHES, CachedBlock, ReadCache
from geminga_bookie.storage.write_cache import CachedRun, Throttle, WriteCache, take_bounded

adds = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 8)), max_size=30)


@given(adds, st.integers(1, 10), st.integers(1, 1000))
def test_a_write_cache_answers_what_was_put(
    runs: list[tuple[int, int, int]], entries_max: int, bytes_max: int
) -> None:
    cache, oracle = WriteCache(), {}
    for ledger_id, first, count in runs:
        group = packets(ledger_id, range(first, first + count))
        cache.put(ledger_id, first, group, sum(map(len, group)))
        oracle.update({(ledger_id, first + place): group[place] for place in range(count)})
    for ledger_id in range(4):
        expected = sorted(entry for ledger, entry in oracle if ledger == ledger_id)
        assert sorted(set(cache.entry_ids(ledger_id))) == expected
        for entry in range(40):
            found = cache.get(ledger_id, entry, entries_max, bytes_max)
            if (ledger_id, entry) not in oracle:
                assert found is None
                continue
            assert found is not None
            assert 1 <= len(found) <= entries_max
            assert found == [oracle[ledger_id, entry + place] for place in range(len(found))]
            assert len(found) == 1 or sum(map(len, found)) <= bytes_max
    flushed = {
        (ledger_id, run.first + place)
        for ledger_id, run in cache.sorted_runs()
        for place in range(len(run.packets))
    }
    assert flushed == set(oracle)
    cache.drop(1)
    assert 1 not in cache
    size = sum(len(group) for _, run in cache.sorted_runs() for group in run.packets)
    assert cache.size_bytes == size


def test_runs_that_follow_each_other_are_one() -> None:
    cache = WriteCache()
    for first in range(0, 100, 10):
        cache.put(1, first, packets(1, range(first, first + 10)), 1)
    assert [(run.first, len(run.packets)) for _, run in cache.sorted_runs()] == [(0, 100)]


def test_the_packets_are_not_copied() -> None:
    cache, group = WriteCache(), packets(1, range(3))
    cache.put(1, 0, group, 1)
    found = cache.get(1, 1, 1, 1)
    assert found is not None
    assert found[0] is group[1]


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 20), st.integers(0, 200))
def test_take_bounded(sizes: list[int], entries_max: int, bytes_max: int) -> None:
    group = [bytes(size) for size in sizes]
    expected = [group[0]]
    for item in group[1:entries_max]:
        if sum(map(len, expected)) + len(item) > bytes_max:
            break
        expected.append(item)
    assert take_bounded(group, 0, entries_max, bytes_max) == expected


@given(st.lists(st.sampled_from([10, 1000, 100_000, BLOCK_BYTES_MAX + 1]), max_size=40))
def test_runs_are_split_into_blocks(sizes: list[int]) -> None:
    run = CachedRun(7, [bytes(1) * size for size in [5, *sizes]])
    parts = list(split_run(run))
    assert [item for _, part in parts for item in part] == run.packets
    position = 7
    for first, part in parts:
        assert first == position
        assert part
        assert len(part) == 1 or sum(map(len, part)) <= BLOCK_BYTES_MAX
        position += len(part)
    for (_, part), (_, after) in pairwise(parts):
        assert sum(map(len, part)) + len(after[0]) > BLOCK_BYTES_MAX, "blocks are filled"


def test_blocks_are_bounded_in_entries() -> None:
    run = CachedRun(0, [b"x"] * 2500)
    assert [len(part) for _, part in split_run(run)] == [BLOCK_ENTRIES_MAX, BLOCK_ENTRIES_MAX, 452]


def block(ledger_id: int, first: int, count: int) -> CachedBlock:
    group = packets(ledger_id, range(first, first + count))
    return CachedBlock(first, group, sum(map(len, group)))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(1, 6)), max_size=40),
    st.integers(1, 12),
    st.integers(1, 2000),
)
def test_a_read_cache_is_bounded_and_right(
    puts: list[tuple[int, int, int]], entries_max: int, bytes_max: int
) -> None:
    cache = ReadCache(4000)
    for ledger_id, place, count in puts:
        cache.put(ledger_id, [block(ledger_id, place * 6, count)])
        assert cache.size_bytes <= 4000
        for entry in range(0, 80, 3):
            found = cache.get(ledger_id, entry, entries_max, bytes_max)
            if found is not None:
                assert found == packets(ledger_id, range(entry, entry + len(found)))
                assert len(found) <= entries_max
                assert len(found) == 1 or sum(map(len, found)) <= bytes_max
        assert cache.get(ledger_id, place * 6, 1, 1) == [
            packet(ledger_id, place * 6, place * 6 - 1)
        ]
    for ledger_id in range(4):
        cache.drop(ledger_id)
    assert cache.size_bytes == 0


def test_reads_go_on_over_blocks() -> None:
    cache = ReadCache(1 << 20)
    cache.put(1, [block(1, 0, 10), block(1, 10, 10), block(1, 30, 10)])
    assert cache.get(1, 5, 100, 1 << 20) == packets(1, range(5, 20))
    assert cache.get(1, 20, 1, 1) is None
    assert cache.window_end(1) == 40


def test_a_catch_up_read_evicts_its_own_blocks_first() -> None:
    one = block(1, 0, 10).size_bytes
    cache = ReadCache(one * 6)
    cache.put(2, [block(2, 0, 10)])
    for first in range(0, 1000, 10):
        cache.put(1, [block(1, first, 10)])
        if first % 200 == 0:  # slow, but it goes on
            assert cache.get(2, first // 200, 1, 1) is not None
    assert cache.get(2, 5, 1, 1) is not None
    assert cache.get(1, 990, 1, 1) is not None
    assert cache.get(1, 0, 1, 1) is None


def test_blocks_of_unread_ledgers_are_evicted_first() -> None:
    one = block(1, 0, 10).size_bytes
    cache = ReadCache(one * 6)
    for ledger_id in range(2, 6):
        cache.put(ledger_id, [block(ledger_id, 0, 10)])
    loads = 6 * (IDLE_CACHES + 1)
    for number in range(loads):
        cache.put(1, [block(1, 10 * number, 10)])
    assert [cache.get(ledger_id, 0, 1, 1) for ledger_id in range(2, 6)] == [None] * 4
    for number in range(loads - 6, loads):
        assert cache.get(1, 10 * number, 1, 1) is not None
    assert cache.size_bytes == 6 * one


def test_blocks_around_active_readers_are_kept() -> None:
    one = block(1, 0, 10).size_bytes
    cache = ReadCache(one * 20)
    for ledger_id in range(2, 22):
        cache.put(ledger_id, [block(ledger_id, 0, 10)])
    for window in range(0, 1000, 40):
        cache.put(1, [block(1, window + first, 10) for first in range(0, 40, 10)])
        for first in range(max(0, window - 40), window + 40, 10):
            assert cache.get(1, first, 1, 1) is not None, (window, first)
    assert cache.size_bytes <= 20 * one


def test_near_the_end_of_the_window() -> None:
    cache = ReadCache(1 << 20)
    assert not cache.is_near_end(1, 0)
    cache.put(1, [block(1, 0, 10), block(1, 10, 10)])
    assert [cache.is_near_end(1, entry) for entry in (0, 9, 10, 20, 21)] == [
        False, False, True, True, False,
    ]  # fmt: skip


def test_adds_that_wait_for_room_are_bounded_by_number() -> None:
    """Each entry counts; the first add of any size may wait."""

    async def run() -> None:
        throttle = Throttle(1 << 20, 10.0, 5)
        is_in = False
        assert throttle.defer(10, lambda _: is_in, 8)
        assert not throttle.defer(10, lambda _: is_in, 1)
        is_in = True
        throttle.release()
        is_in = False
        assert throttle.defer(10, lambda _: is_in, 3)
        assert throttle.defer(10, lambda _: is_in, 2)
        assert not throttle.defer(10, lambda _: is_in, 1)
        assert (len(throttle), throttle.rejected) == (2, 2)
        throttle.defer_first([(10, lambda _: is_in)])
        is_in = True
        throttle.release()
        assert len(throttle) == 0
        is_in = False
        assert throttle.defer(10, lambda _: is_in, 1)
        assert throttle.defer(10, lambda _: is_in, 4)
        await trio.lowlevel.checkpoint()

    trio.run(run)
