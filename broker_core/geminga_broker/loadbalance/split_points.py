"""Where a bundle is split (spec CL-10; Apache's NamespaceBundleSplitAlgorithm and its classes).

A bundle is the range from `low` to `high` of hashes; the highest bundle of a namespace includes
`high`. A boundary b between both makes `low`..b and b..`high`; a hash b belongs to the upper one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from geminga_broker.loadbalance.settings import (
    FLOW_OR_QPS_EQUALLY_DIVIDE,
    RANGE_EQUALLY_DIVIDE,
    SPECIFIED_POSITIONS_DIVIDE,
    TOPIC_COUNT_EQUALLY_DIVIDE,
)

GIVEN_MAX = 1000
"""Positions of one split by hand: each makes a bundle, which has an owner's node of its own."""


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """A topic of the bundle: its hash, and its messages and bytes a second, in and out."""

    hash: int
    rate: float = 0.0
    throughput: float = 0.0


class NoSplit(ValueError):
    """A split can't be made as asked; the text says why."""


def split_points(
    algorithm: str,
    low: int,
    high: int,
    topics: Sequence[TopicLoad],
    *,
    given: Sequence[int] = (),
    force: bool = False,
    rate_max: float = 0.0,
    throughput_max: float = 0.0,
    difference: float = 0.1,
) -> list[int]:
    """The boundaries between `low` and `high`, ascending; none if there is nothing to split.

    `given` are the positions of `specified_positions_divide`; with `force` they count even for a
    bundle with fewer than two topics. The other figures are those of `flow_or_qps_equally_divide`:
    what a bundle may have, and how much it must be beyond that. Raises NoSplit.
    """
    if algorithm == RANGE_EQUALLY_DIVIDE:
        points = [low + (high - low) // 2]
    elif algorithm == TOPIC_COUNT_EQUALLY_DIVIDE:
        points = _by_count(topics)
    elif algorithm == SPECIFIED_POSITIONS_DIVIDE:
        if not given:
            raise NoSplit("SplitBoundaries can't be empty")
        if len(given) > GIVEN_MAX:
            raise NoSplit(f"more than {GIVEN_MAX} SplitBoundaries")
        points = sorted(given) if force or len(topics) > 1 else []
    elif algorithm == FLOW_OR_QPS_EQUALLY_DIVIDE:
        points = _by_flow(topics, rate_max, throughput_max, difference)
    else:
        raise NoSplit(f"unknown algorithm of bundle splits: {algorithm}")
    return sorted({point for point in points if low < point < high})


def _by_count(topics: Sequence[TopicLoad]) -> list[int]:
    """In the middle between the two topics in the middle."""
    if len(topics) < 2:
        return []
    hashes = sorted(topic.hash for topic in topics)
    middle = len(hashes) // 2
    lower, upper = hashes[middle - 1], hashes[middle]
    # Never at the lower one itself, as Apache's is between neighbours: both would stay together.
    return [lower + max((upper - lower) // 2, 1)]


def _by_flow(
    topics: Sequence[TopicLoad], rate_max: float, throughput_max: float, difference: float
) -> list[int]:
    """Before each topic with which the part so far would have more than a bundle may have."""
    busy = sorted(
        (topic for topic in topics if topic.rate > 0 or topic.throughput > 0),
        key=lambda topic: topic.hash,
    )
    rate = sum(topic.rate for topic in busy)
    throughput = sum(topic.throughput for topic in busy)
    factor = 1.0 + difference
    if len(busy) < 2 or (rate < rate_max * factor and throughput < throughput_max * factor):
        return []
    points = []
    rate, throughput = busy[0].rate, busy[0].throughput
    for last, topic in pairwise(busy):
        rate += topic.rate
        throughput += topic.throughput
        # Topics of one hash can't be parted.
        if (rate > rate_max or throughput > throughput_max) and topic.hash > last.hash:
            points.append(last.hash + (topic.hash - last.hash) // 2 + 1)
            rate, throughput = topic.rate, topic.throughput
    return points
