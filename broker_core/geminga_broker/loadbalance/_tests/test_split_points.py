"""Where bundles are split."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.loadbalance.settings import (
    FLOW_OR_QPS_EQUALLY_DIVIDE,
    RANGE_EQUALLY_DIVIDE,
    SPECIFIED_POSITIONS_DIVIDE,
    TOPIC_COUNT_EQUALLY_DIVIDE,
)
from geminga_broker.loadbalance.split_points import NoSplit, TopicLoad, split_points

HASHES = st.integers(0, 0xFFFFFFFE)


def topics(*hashes: int) -> list[TopicLoad]:
    return [TopicLoad(each) for each in hashes]


@pytest.mark.parametrize(
    ("low", "high", "points"),
    [
        (0, 0xFFFFFFFF, [0x7FFFFFFF]),
        (0x40000000, 0x80000000, [0x60000000]),
        (10, 12, [11]),
        (10, 11, []),
    ],
)
def test_middle_of_the_range(low: int, high: int, points: list[int]) -> None:
    assert split_points(RANGE_EQUALLY_DIVIDE, low, high, []) == points


@pytest.mark.parametrize(
    ("hashes", "points"),
    [
        ([], []),
        ([5], []),
        ([10, 20], [15]),
        ([20, 10, 30], [15]),
        ([10, 20, 30, 50], [25]),
        ([10, 13], [11]),
        ([10, 11], [11]),
    ],
)
def test_middle_of_the_topics(hashes: list[int], points: list[int]) -> None:
    assert split_points(TOPIC_COUNT_EQUALLY_DIVIDE, 0, 100, topics(*hashes)) == points


@given(st.sets(HASHES, min_size=2, max_size=50))
def test_topics_are_halved(hashes: set[int]) -> None:
    (point,) = split_points(TOPIC_COUNT_EQUALLY_DIVIDE, -1, 1 << 32, topics(*hashes))
    below = sum(1 for each in hashes if each < point)
    assert below == len(hashes) // 2


@pytest.mark.parametrize(
    ("positions", "count", "force", "points"),
    [
        ([50, 20], 2, False, [20, 50]),
        ([20, 20, 10, 90, 5, 120], 2, False, [20]),
        ([10, 90], 2, False, []),
        ([50], 1, False, []),
        ([50], 0, True, [50]),
    ],
)
def test_given_positions(positions: list[int], count: int, force: bool, points: list[int]) -> None:
    found = split_points(
        SPECIFIED_POSITIONS_DIVIDE,
        10,
        90,
        topics(*range(20, 20 + count)),
        given=positions,
        force=force,
    )
    assert found == points


def test_positions_must_be_given_and_algorithms_known() -> None:
    with pytest.raises(NoSplit, match="can't be empty"):
        split_points(SPECIFIED_POSITIONS_DIVIDE, 0, 9, topics(1, 2))
    with pytest.raises(NoSplit, match="more than 1000"):
        split_points(SPECIFIED_POSITIONS_DIVIDE, 0, 9999, topics(1, 2), given=range(1, 1002))
    with pytest.raises(NoSplit, match="unknown algorithm of bundle splits: other"):
        split_points("other", 0, 9, topics(1, 2))


def by_flow(loads: list[TopicLoad], rate: float = 100, throughput: float = 1000) -> list[int]:
    return split_points(
        FLOW_OR_QPS_EQUALLY_DIVIDE, 0, 1000, loads, rate_max=rate, throughput_max=throughput
    )


@pytest.mark.parametrize(
    ("loads", "points"),
    [
        ([], []),
        ([TopicLoad(10, 500)], []),
        ([TopicLoad(10, 500), TopicLoad(20)], []),
        # 109 is not a tenth beyond 100.
        ([TopicLoad(10, 60), TopicLoad(20, 49)], []),
        ([TopicLoad(10, 60), TopicLoad(20, 51)], [16]),
        ([TopicLoad(20, 51), TopicLoad(10, 60), TopicLoad(15)], [16]),
        ([TopicLoad(10, 0, 600), TopicLoad(20, 0, 500)], [16]),
        ([TopicLoad(at, 50) for at in (10, 20, 30, 40, 50)], [26, 46]),
        ([TopicLoad(10, 500), TopicLoad(11, 1)], [11]),
        ([TopicLoad(10, 80), TopicLoad(10, 80), TopicLoad(30, 10)], [21]),
    ],
)
def test_parts_hold_what_a_bundle_may_have(loads: list[TopicLoad], points: list[int]) -> None:
    assert by_flow(loads) == points


@given(
    st.lists(
        st.builds(TopicLoad, st.integers(1, 998), st.floats(0, 120), st.floats(0, 1200)),
        min_size=2,
        max_size=40,
        unique_by=lambda topic: topic.hash,
    )
)
def test_each_part_has_one_topic_or_no_more_than_a_bundle_may_have(loads: list[TopicLoad]) -> None:
    points = by_flow(loads)
    assert points == sorted(set(points))
    busy = [topic for topic in loads if topic.rate > 0 or topic.throughput > 0]
    if not points:
        rate, data = sum(t.rate for t in busy), sum(t.throughput for t in busy)
        assert len(busy) < 2 or (rate < 110 + 1e-6 and data < 1100 + 1e-6)
        return
    parts: dict[int, list[TopicLoad]] = {}
    for topic in busy:
        parts.setdefault(bisect_right(points, topic.hash), []).append(topic)
    for part in parts.values():
        assert len(part) == 1 or (
            sum(t.rate for t in part) <= 100 + 1e-6
            and sum(t.throughput for t in part) <= 1000 + 1e-6
        )
    # No part could have taken the first topic of the next one.
    for one, other in pairwise(sorted(parts)):
        first = min(parts[other], key=lambda topic: topic.hash)
        assert (
            sum(t.rate for t in parts[one]) + first.rate > 100 - 1e-6
            or sum(t.throughput for t in parts[one]) + first.throughput > 1000 - 1e-6
        )
