"""Limits of a micro-batch."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_pulsar._positions import Position
from pyspark_pulsar._stream._admission import Head, Limit, admit

END = Position(9, 99)


def queue(*entries: tuple[int, int]) -> tuple[Iterator[Head], Position]:
    """Entries of (messages, bytes), in ledger 1."""
    heads = [
        Head(Position(1, n), range(count) if count > 1 else (-1,), size)
        for n, (count, size) in enumerate(entries)
    ]
    return iter(heads), END


def test_shares_are_even() -> None:
    topics = {"a": queue(*[(1, 10)] * 50), "b": queue(*[(1, 10)] * 50)}
    found = admit(topics, Limit(messages=20), turn=0)
    assert found.messages == 20
    assert found.ends == {"a": Position(1, 9), "b": Position(1, 9)}


def test_unused_shares_go_to_other_topics() -> None:
    topics = {"a": queue((1, 10)), "b": queue(*[(1, 10)] * 50)}
    found = admit(topics, Limit(messages=20), turn=0)
    assert found.messages == 20
    assert found.ends == {"a": END, "b": Position(1, 18)}


def test_messages_are_counted_inside_batches() -> None:
    found = admit({"a": queue((100, 1000))}, Limit(messages=7), turn=0)
    assert found == admit({"a": queue((100, 1000))}, Limit(messages=7), turn=5)
    assert found.ends == {"a": Position(1, 0, 6)}
    assert found.messages == 7


def test_batches_with_gaps_are_cut_by_index() -> None:
    heads = iter([Head(Position(1, 0), [2, 5, 8], 30)])
    found = admit({"a": (heads, END)}, Limit(messages=2), turn=0)
    assert found.ends == {"a": Position(1, 0, 5)}


def test_one_large_entry_is_taken_and_another_topics_next() -> None:
    def topics() -> dict[str, tuple[Iterator[Head], Position]]:
        return {"a": queue((1, 500), (1, 500)), "b": queue((1, 500), (1, 500))}

    assert admit(topics(), Limit(size_bytes=10), turn=0).ends == {"a": Position(1, 0)}
    assert admit(topics(), Limit(size_bytes=10), turn=1).ends == {"b": Position(1, 0)}


def test_an_entry_larger_than_its_share_fits_into_what_is_left() -> None:
    topics = {"a": queue((1, 60), (1, 60)), "b": queue((1, 60))}
    found = admit(topics, Limit(size_bytes=100), turn=0)
    assert found.ends == {"a": Position(1, 0)}


def test_unreadable_ranges_are_skipped() -> None:
    found = admit({"a": queue()}, Limit(messages=5), turn=0)
    assert found.ends == {"a": END}
    assert found.messages == 0


entries = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 60)), max_size=8)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from("abc"), entries, max_size=3),
    st.integers(1, 40) | st.just(math.inf),
    st.integers(1, 300) | st.just(math.inf),
    st.integers(0, 5),
)
def test_limits_hold_and_all_is_read_once(
    topics: dict[str, list[tuple[int, int]]], messages: float, size_bytes: float, turn: int
) -> None:
    """Round after round, everything is taken, each message once, within the limits."""
    left = {
        name: [Head(Position(1, n), range(count), size) for n, (count, size) in enumerate(each)]
        for name, each in topics.items()
    }
    rounds = 0
    while any(left.values()):
        rounds += 1
        assert rounds < 500
        given_ = {name: (iter(heads), END) for name, heads in left.items() if heads}
        found = admit(given_, Limit(messages, size_bytes), turn=turn + rounds)
        taken_messages, taken_bytes, pieces = 0, 0.0, 0
        for name, end in found.ends.items():
            kept: list[Head] = []
            for head in left[name]:
                inside = [i for i in head.indexes if (*head.entry[:2], i) <= end.reach]
                rest = [i for i in head.indexes if (*head.entry[:2], i) > end.reach]
                share = head.size_bytes * len(inside) / len(head.indexes)
                taken_messages += len(inside)
                taken_bytes += share
                pieces += bool(inside)
                if rest:
                    kept.append(Head(head.entry, rest, round(head.size_bytes - share)))
            left[name] = kept
        assert taken_messages == found.messages >= 1
        assert taken_messages <= messages
        assert taken_bytes <= size_bytes + 1e-6 or pieces == 1
