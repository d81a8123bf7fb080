from __future__ import annotations

import random

from geminga._producing.routing import Router
from geminga.options import HashingScheme, ProducerOptions, RoutingMode


def router(partitions: int = 5, **options: object) -> Router:
    return Router(ProducerOptions(**options), partitions, random.Random(3))


def test_round_robin_visits_all() -> None:
    routed = router()
    seen = []
    for _ in range(10):
        seen.append(routed.current)
        routed.rotate()
    assert sorted(seen[:5]) == list(range(5))
    assert seen[:5] == seen[5:]


def test_partial_round_robin_and_single_partition() -> None:
    for limit, options in ((2, {"round_robin_partitions_max": 2}),
                           (1, {"routing_mode": RoutingMode.SINGLE_PARTITION})):  # fmt: skip
        routed = router(**options)
        seen = set()
        for _ in range(10):
            seen.add(routed.current)
            routed.rotate()
        assert len(seen) == limit


def test_keys_go_where_the_java_client_sends_them() -> None:
    # "hello".hashCode() is 99162322; Murmur3_32 of it, without sign bit, 613153351 (seed 0).
    assert router(10).by_key("hello") == 2
    assert router(10, hashing_scheme=HashingScheme.MURMUR3_32).by_key("hello") == 613153351 % 10
    # A negative hashCode loses its sign bit: "polygenelubricants" has the least of all.
    assert router(10).by_key("polygenelubricants") == 0


def test_keys_go_where_the_cpp_client_sends_them() -> None:
    """Partitions of a topic with 1000, as pulsar-client 3.13 chose them: the hash is Boost's."""
    chosen = {
        "a": 748,
        "ab": 382,
        "abc": 565,
        "key-0": 226,
        "hello world": 204,
        "x" * 40: 691,
        "a rather long key which has seventy-two characters, or so it was planned": 712,
    }
    by_boost = router(1000, hashing_scheme=HashingScheme.BOOST_HASH)
    assert {key: by_boost.by_key(key) for key in chosen} == chosen


def test_growing() -> None:
    for options, expected in (({}, 7), ({"round_robin_partitions_max": 6}, 6),
                              ({"routing_mode": RoutingMode.SINGLE_PARTITION}, 1)):  # fmt: skip
        routed = router(**options)
        before = routed.current
        routed.grow(7)
        assert routed.current == before
        seen = set()
        for _ in range(14):
            seen.add(routed.current)
            routed.rotate()
        assert len(seen) == expected
        assert routed.by_key("hello") == 99162322 % 7
