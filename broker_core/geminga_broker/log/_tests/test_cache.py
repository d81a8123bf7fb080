"""The entry cache against plain dicts."""

from __future__ import annotations

from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.log._tests.test_chain import pos
from geminga_broker.log.cache import ENTRY_OVERHEAD_BYTES, EntryCache, LogCache
from geminga_broker.log.entry import LogEntry

SIZE = ENTRY_OVERHEAD_BYTES + 100


def entries(ledger_id: int, first: int, count: int) -> list[LogEntry]:
    return [LogEntry(pos(ledger_id, first + n), memoryview(bytes(100)), 1) for n in range(count)]


def add(cache: LogCache, ledger_id: int, first: int, count: int) -> None:
    cache.add(ledger_id, first, entries(ledger_id, first, count), 100 * count)


def held(cache: LogCache, ledger_id: int) -> list[int]:
    """Entry ids that can be read one by one."""
    return [n for n in range(200) if cache.get(ledger_id, n, n)]


def test_runs_are_slices() -> None:
    owner = EntryCache(1 << 20)
    cache = owner.new_log()
    add(cache, 1, 5, 3)
    add(cache, 1, 8, 2)
    assert [entry.position[1] for entry in cache.get(1, 6, 100)] == [6, 7, 8, 9]
    assert [entry.position[1] for entry in cache.get(1, 6, 7)] == [6, 7]
    assert cache.get(1, 4, 9) == []
    assert cache.get(1, 10, 12) == []
    assert cache.get(2, 0, 9) == []
    assert owner.size_bytes == 5 * SIZE


def test_entries_that_are_gone_already_are_not_counted_again() -> None:
    owner = EntryCache(1 << 20)
    cache = owner.new_log()
    add(cache, 1, 0, 5)
    cache.evict_upto(pos(1, 4))
    cache.truncate(1, 100)
    assert (owner.inserted, owner.evicted) == (5, 5)


def test_the_first_rates_are_of_the_time_since_the_start() -> None:
    owner = EntryCache(1 << 20)
    owner.hits.add(100, 1000)
    owner.misses.add(10, 100)
    later_s = perf_counter() + 2
    assert owner.hits.per_second(later_s) == pytest.approx((50, 500), rel=0.2)
    assert owner.misses.per_second(later_s) == pytest.approx((5, 50), rel=0.2)


def test_a_gap_drops_what_was_before() -> None:
    owner = EntryCache(1 << 20)
    cache = owner.new_log()
    add(cache, 1, 0, 3)
    add(cache, 1, 10, 2)
    assert held(cache, 1) == [10, 11]
    assert owner.size_bytes == 2 * SIZE


def test_unwritten_entries_are_dropped_from_the_cache() -> None:
    owner = EntryCache(1 << 20)
    cache = owner.new_log()
    add(cache, 1, 3, 5)
    cache.truncate(1, 6)
    cache.truncate(9, 0)
    assert held(cache, 1) == [3, 4, 5]
    cache.truncate(1, 0)
    assert held(cache, 1) == []
    assert owner.size_bytes == 0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 30)),
            st.tuples(st.just("roll"), st.just(0)),
            st.tuples(st.just("upto"), st.integers(0, 40)),
        ),
        max_size=30,
    )
)
@pytest.mark.slow
def test_eviction_is_from_the_front_and_bounded(steps: list[tuple[str, int]]) -> None:
    owner = EntryCache(40 * SIZE)
    cache, other = owner.new_log(), owner.new_log()
    written = [(1, 0)][:0]
    ledger_id = 1
    at = 0
    acked = 0
    for step, count in steps:
        if step == "add":
            add(cache, ledger_id, at, count)
            written += [(ledger_id, at + n) for n in range(count)]
            at += count
        elif step == "roll":
            ledger_id += 1
            at = 0
            add(other, ledger_id, 0, 1)
        elif written:
            acked = min(acked + count, len(written))
            if acked:
                cache.evict_upto(pos(*written[acked - 1]))
        left = [key for key in written if cache.get(key[0], key[1], key[1])]
        assert left == written[len(written) - len(left) :]
        assert len(left) <= len(written) - acked
        others = [n for n in range(1, 40) if other.get(n, 0, 0)]
        assert owner.size_bytes == (len(left) + len(others)) * SIZE
        assert owner.size_bytes <= owner.bytes_max or len(left) <= 1


def test_the_largest_cache_is_evicted_first() -> None:
    owner = EntryCache(20 * SIZE)
    small, large = owner.new_log(), owner.new_log()
    add(small, 1, 0, 2)
    for n in range(10):
        add(large, 2, 3 * n, 3)
    assert held(small, 1) == [0, 1]
    assert held(large, 2)[-1] == 29
    large.clear()
    assert owner.size_bytes == 2 * SIZE
