"""Offsets as Spark keeps them, and the ranges between two."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_pulsar._positions import BEGIN, Position, TopicRange
from pyspark_pulsar._stream._offsets import Offsets, lag_of, ranges
from pyspark_pulsar.errors import OffsetOutOfRange

A = "persistent://public/default/a-partition-3"
B = "persistent://public/default/b"

positions = st.one_of(
    st.just(BEGIN),
    st.builds(Position, st.integers(0, 5), st.integers(-1, 5), st.integers(-1, 3)),
)


some = st.dictionaries(st.sampled_from([A, B]), positions)


@settings(deadline=None)
@given(some, st.none() | st.text(max_size=5), st.none() | some)
def test_offsets_round_trip(
    found: dict[str, Position], name: str | None, began: dict[str, Position] | None
) -> None:
    offsets = Offsets(found, name, began)
    assert Offsets.parse(json.loads(json.dumps(offsets.as_json()))) == offsets


def test_equal_offsets_have_equal_texts() -> None:
    one = Offsets({A: Position(1, 2), B: BEGIN}, "s").as_json()
    other = Offsets({B: BEGIN, A: Position(1, 2)}, "s").as_json()
    assert json.dumps(one) == json.dumps(other)
    assert one == {A: "1:2", B: "-1:-1", "subscription": "s"}


@pytest.mark.parametrize("name", ["subscription", "began"])
def test_odd_names_beside_topics_are_refused(name: str) -> None:
    with pytest.raises(OffsetOutOfRange, match=name):
        Offsets.parse({name: 7})


@pytest.mark.parametrize("value", [7, None, "x", "1", "1:2:3:4", {"a": 1}])
def test_invalid_offsets_are_refused(value: object) -> None:
    with pytest.raises(OffsetOutOfRange, match="b: the checkpoint"):
        Offsets.parse({B: value})


def test_a_range_begins_after_the_last_position() -> None:
    start = Offsets({A: Position(1, 2), B: Position(4, 0, 1)})
    end = Offsets({A: Position(3, 0), B: Position(4, 0, 7)})
    assert ranges(start, end) == [
        TopicRange(A, 3, Position(1, 3), Position(3, 0)),
        TopicRange(B, -1, Position(4, 0, 2), Position(4, 0, 7)),
    ]


def test_new_topics_start_at_their_beginning_and_deleted_ones_are_left_out() -> None:
    start, end = Offsets({A: Position(1, 2)}), Offsets({B: Position(5, 1)})
    assert ranges(start, end) == [TopicRange(B, -1, BEGIN, Position(5, 1))]


def test_a_topic_without_anything_new_has_no_range() -> None:
    same = Offsets({A: Position(1, 2), B: BEGIN})
    assert ranges(same, same) == []


def test_a_topic_that_ends_earlier_was_recreated() -> None:
    found = ranges(Offsets({B: Position(9, 9)}), Offsets({B: Position(2, 1)}))
    assert found == [TopicRange(B, -1, BEGIN, Position(2, 1))]


@settings(deadline=None)
@given(st.lists(positions, min_size=2, max_size=6))
def test_micro_batches_join_without_gap_or_overlap(steps: list[Position]) -> None:
    """However a stream is cut into micro-batches, each message lies in exactly one."""
    steps = sorted(steps, key=lambda each: each.reach)
    messages = [Position(a, b, c) for a in range(6) for b in range(6) for c in range(4)]
    found: list[Position] = []
    for start, end in itertools.pairwise(steps):
        for each in ranges(Offsets({B: start}), Offsets({B: end})):
            found += [m for m in messages if each.start <= m and m.reach <= each.stop.reach]
    whole = [m for m in messages if steps[0].reach < m.reach <= steps[-1].reach]
    if steps[0] == BEGIN:
        whole = [m for m in messages if m.reach <= steps[-1].reach]
    assert found == whole


def test_lag() -> None:
    ends = {"a": Position(5, 9), "b": Position(5, 9), "c": Position(7, 2), "d": BEGIN}
    read = {"a": Position(5, 9), "b": Position(5, 4), "c": Position(6, 1), "d": BEGIN}
    assert lag_of(read, ends) == {"topics": 2, "entries": 5 + 3}
    assert lag_of({"b": Position(5, 9, 1)}, {"b": Position(5, 9)}) == {"topics": 1, "entries": 1}
    assert lag_of({}, {"a": Position(3, 0)}) == {"topics": 1, "entries": 1}
