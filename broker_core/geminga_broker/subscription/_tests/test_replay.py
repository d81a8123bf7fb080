"""Queues of entries to be sent again (BR-31, BR-33) against lists that are searched whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker._tests.fake_client import position
from geminga_broker.subscription.replay import NO_HASH, KeyedReplayQueue, ReplayQueue

NAMES = ("a", "b", "c")

steps = st.lists(st.tuples(st.sampled_from(("add", "drop")), st.integers(0, 20)))


@given(steps)
def test_replays_come_by_position(script: list[tuple[str, int]]) -> None:
    queue = ReplayQueue()
    model: set[int] = set()
    for what, entry in script:
        if what == "add":
            queue.add(position(entry), NO_HASH)
            model.add(entry)
        else:
            queue.discard(position(entry))
            model.discard(entry)
        assert len(queue) == len(model)
        assert [p.entry_id for p in queue.first(5)] == sorted(model)[:5]
        assert all((position(entry) in queue) == (entry in model) for entry in range(21))
    queue.clear()
    assert not queue


class Owners:
    """The owner of a hash: one of three, or none."""

    def __init__(self) -> None:
        self.by_hash: dict[int, str | None] = {}

    def __call__(self, key_hash: int) -> str | None:
        return self.by_hash.get(key_hash, NAMES[key_hash % 3])


keyed_steps = st.lists(
    st.tuples(
        st.sampled_from(("add", "add", "drop", "offer", "change", "take")),
        st.integers(0, 30),
        st.integers(0, 7),
    ),
    max_size=80,
)


@given(keyed_steps)
def test_each_claimant_gets_its_entries_in_order(script: list[tuple[str, int, int]]) -> None:
    owners = Owners()
    queue: KeyedReplayQueue[str] = KeyedReplayQueue(owners)
    model: dict[int, int] = {}
    for what, entry, key_hash in script:
        if what == "add":
            queue.add(position(entry), key_hash)
            model.setdefault(entry, key_hash)
        elif what == "drop":
            queue.discard(position(entry))
            model.pop(entry, None)
        elif what == "offer":
            owners.by_hash[key_hash] = (None, *NAMES)[entry % 4]
            queue.offer(key_hash)
        elif what == "change":
            owners.by_hash = {each: NAMES[(each + entry) % 3] for each in range(key_hash)}
            queue.claims_changed()
        else:
            for each, _ in queue.first_for(NAMES[key_hash % 3], entry % 5):
                queue.discard(each)
                del model[each.entry_id]
        check(queue, model, owners)
    queue.clear()
    assert not queue
    assert queue.claimants() == []


def check(queue: KeyedReplayQueue[str], model: dict[int, int], owners: Owners) -> None:
    assert len(queue) == len(model)
    assert all((h in queue.hashes) == (h in model.values()) for h in range(8))
    # It may name some for whom nothing is left, but must not miss one.
    claimants = queue.claimants()
    for name in NAMES:
        lines: dict[int, list[int]] = {}
        for entry, key_hash in sorted(model.items()):
            if owners(key_hash) == name:
                lines.setdefault(key_hash, []).append(entry)
        for entries_max in (1, 3, 100):
            expected = [(e, h) for h, line in lines.items() for e in line][:entries_max]
            found = queue.first_for(name, entries_max)
            assert [(p.entry_id, h) for p, h in found] == expected
        assert name in claimants or not lines


def test_the_last_served_claimant_is_last() -> None:
    queue: KeyedReplayQueue[str] = KeyedReplayQueue(Owners())
    for entry in range(6):
        queue.add(position(entry), entry)
    assert queue.claimants() == ["a", "b", "c"]
    queue.first_for(NAMES[0], 1)
    assert queue.claimants() == ["b", "c", "a"]


def test_no_claimant_is_kept_after_it_left() -> None:
    owners = Owners()
    queue: KeyedReplayQueue[str] = KeyedReplayQueue(owners)
    queue.add(position(1), 0)
    owners.by_hash[0] = None
    queue.claims_changed()
    assert not queue._heaps
    assert queue.claimants() == []


def test_outdated_items_do_not_accumulate() -> None:
    queue: KeyedReplayQueue[str] = KeyedReplayQueue(Owners())
    queue.add(position(10_000), 3)
    for entry in range(10_000, 0, -1):
        queue.add(position(entry), 0)
        queue.discard(position(entry))
    queue.claimants()
    assert sum(map(len, queue._heaps.values())) < 100
