"""How much goes into a micro-batch, by limits and triggers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_pulsar._tests.broker import KEEPING
from pyspark_pulsar._tests.streaming import Broker, Query, numbers, started


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that retains everything."""
    with started(KEEPING) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 6])
def test_limits_of_messages_are_kept_exactly(broker: Broker, batch: int) -> None:
    topic = broker.topic("limited", partitions=3)
    for n in range(3):
        broker.send(f"{topic}-partition-{n}", *numbers(n * 100, n * 100 + 20), batch=batch)
    query = Query(broker.options(topic, maxMessagesPerTrigger="9"))
    sizes = []
    found: list[bytes] = []
    while part := query.batch():
        sizes.append(len(part))
        found += part
    assert sizes == [9] * 6 + [6]
    assert sorted(found, key=int) == numbers(0, 20) + numbers(100, 120) + numbers(200, 220)
    assert query.latest(limited=False) == query.at


def test_limits_of_bytes_and_all_at_once(broker: Broker) -> None:
    topic = broker.topic("bytes")
    broker.send(topic, *[b"x" * 100] * 12)
    query = Query(broker.options(topic, maxBytesPerTrigger="350"))
    assert len(query.batch()) == 3
    end = query.latest(limited=False)
    assert len(query.read(query.at, end)) == 9


def test_too_few_messages_wait_for_more(broker: Broker) -> None:
    topic = broker.topic("least")
    broker.send(topic, b"0")
    options = broker.options(topic, minMessagesPerTrigger="4", maxTriggerDelay="3600000")
    now_s = 1000.0
    query = Query(options)
    query.planner._clock = lambda: now_s
    assert query.batch() == [b"0"], "the first one waits for nothing"
    broker.send(topic, *numbers(1, 4))
    assert query.batch() == []
    broker.send(topic, b"4")
    assert query.batch() == numbers(1, 5)
    broker.send(topic, b"5")
    assert query.batch() == []
    now_s += 3601
    assert query.batch() == [b"5"]


def test_available_now_ends_at_the_ends_of_its_start(broker: Broker) -> None:
    topic = broker.topic("now")
    broker.send(topic, *numbers(0, 10))
    query = Query(broker.options(topic, maxMessagesPerTrigger="4", minMessagesPerTrigger="3"))
    query.planner.prepare_available_now()
    assert query.batch() == numbers(0, 4)
    broker.send(topic, *numbers(10, 20))
    assert query.rest() == numbers(4, 10)
    assert query.batch() == []
