"""Topics of a bundle that a query names."""

from __future__ import annotations

import time

from geminga_broker.admin.namespaces.bundles import _asked_among

PLACE = "persistent://public/default"


async def test_topics_partitions_and_all_partitions_of_a_topic() -> None:
    names = [f"{PLACE}/{name}" for name in ("a", "a-partition-0", "a-partition-x", "b-partition-1")]
    assert await _asked_among(["a"], names) == names[:2]
    assert await _asked_among([names[1], "c"], names) == [names[1]]
    assert await _asked_among(["b", "a-partition-x"], names) == names[2:]


async def test_many_of_many_do_not_hold_up_the_broker() -> None:
    """Each with each would take minutes."""
    names = [f"{PLACE}/{number}-partition-1" for number in range(20_000)]
    asked = [f"{PLACE}/{number}" for number in range(2000)]
    began = time.perf_counter()
    assert await _asked_among([*asked, names[-1], "other"], names) == [*names[:2000], names[-1]]
    assert time.perf_counter() - began < 5
