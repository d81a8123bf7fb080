"""The tracker of delayed entries against a plain set."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_broker.subscription import delayed_tracker as delayed
from geminga_broker.subscription.delayed_tracker import BadSnapshot, DelayedTracker, decode
from geminga_protocol.ids import Position


@contextmanager
def small_runs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delayed, "RUN_ENTRIES", 8)
        patch.setattr(delayed, "WINDOW_ENTRIES", 3)
        yield


def at(number: int) -> Position:
    return Position(3 + number // 50, number % 50)


class Disk:
    """Snapshots, and a tracker that is saved to them."""

    def __init__(self) -> None:
        self.tracker = DelayedTracker()
        self.snapshots: dict[tuple[int, int], bytes] = {}

    def save(self) -> None:
        while self.tracker.unsaved:
            run = self.tracker.unsaved.pop(0)
            place = (9, len(self.snapshots))
            self.snapshots[place] = run.columns.encode(1)
            run.saved(place)

    def pop(self, now_ms: int, entries_max: int) -> list[tuple[Position, int]]:
        found: list[tuple[Position, int]] = []
        while True:
            while (run := self.tracker.missing) is not None:
                assert run.place is not None
                self.tracker.loaded(run, decode(self.snapshots[run.place])[1])
            more = self.tracker.pop_due(now_ms, entries_max - len(found))
            found += more
            if self.tracker.missing is None:
                return found

    def restart(self, oracle: dict[Position, tuple[int, int]]) -> None:
        """A new tracker from the snapshots; other entries are reread from the log."""
        needed = self.tracker.places()
        self.tracker = DelayedTracker()
        for place in needed:
            kind, columns = decode(self.snapshots[place])
            assert kind == 1
            self.tracker.restore(place, columns, lambda position: position not in oracle)
        for position, (due_ms, key_hash) in sorted(oracle.items()):
            self.tracker.add(due_ms, position, key_hash)


step = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 299), st.integers(0, 60)),
    st.tuples(st.just("fill"), st.integers(0, 299), st.integers(0, 60)),
    st.tuples(st.just("pop"), st.integers(1, 30), st.integers(0, 60)),
    st.tuples(st.sampled_from(["ack", "pass"]), st.integers(0, 299), st.just(0)),
    st.tuples(st.sampled_from(["save", "restart"]), st.just(0), st.just(0)),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(step, max_size=40))
@small_runs()
def test_it_is_a_set_of_times_and_positions(steps: list[tuple[str, int, int]]) -> None:
    disk = Disk()
    oracle: dict[Position, tuple[int, int]] = {}
    for what, number, time_ms in steps:
        if what in ("add", "fill"):
            for n in range(number, number + (1 if what == "add" else 20)):
                due_ms = n * 7 % 60
                disk.tracker.add(due_ms, at(n), n)
                oracle.setdefault(at(n), (due_ms, n))
        elif what == "pop":
            found = disk.pop(time_ms, number)
            dues = [oracle[position][0] for position, _ in found]
            due = sorted(value[0] for value in oracle.values() if value[0] <= time_ms)
            assert dues == due[:number]
            assert all(oracle.pop(position)[1] == key_hash for position, key_hash in found)
        elif what == "ack":
            disk.tracker.discard(at(number))
            oracle.pop(at(number), None)
        elif what == "pass":
            disk.tracker.discard_upto(at(number))
            oracle = {p: value for p, value in oracle.items() if p > at(number)}
        elif what == "save":
            disk.save()
        else:
            disk.restart(oracle)
        tracker = disk.tracker
        assert len(tracker) == len(oracle)
        assert all((at(n) in tracker) == (at(n) in oracle) for n in range(0, 330, 17))
        ledger_id = at(number)[0]
        members = tracker.tracked_in(ledger_id) or ()
        assert sorted(members) == sorted(p[1] for p in oracle if p[0] == ledger_id)
        if not oracle:
            assert not tracker.resident
        if oracle and tracker.missing is None:
            assert tracker.next_due_ms is not None
            assert tracker.next_due_ms <= min(value[0] for value in oracle.values())


@small_runs()
def test_the_next_time_is_the_earliest() -> None:
    tracker = DelayedTracker()
    for n in range(20):
        tracker.add(1000 - n, at(n), -1)
    assert tracker.next_due_ms == 981
    assert tracker.pop_due(980, 9) == []
    assert tracker.pop_due(981, 9) == [(at(19), -1)]


@pytest.mark.parametrize("data", [b"", b"GDLY" + bytes(8), b"GDLX\1\0" + bytes(30)])
def test_invalid_snapshots_are_refused(data: bytes) -> None:
    with pytest.raises(BadSnapshot):
        decode(data)


@pytest.mark.alone
def test_many_take_little_memory() -> None:
    tracemalloc.start()
    disk = Disk()
    for n in range(30_000):
        disk.tracker.add(n * 7919 % 100_003, Position(3, n), -1)
    whole, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert whole < 2_500_000
    assert whole / 2 < disk.tracker.size_bytes < whole * 1.5
    disk.save()
    assert disk.tracker.resident < 30_000 // 2
