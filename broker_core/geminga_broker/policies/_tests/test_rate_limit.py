"""Token buckets, and publishers that are held to a rate."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker._tests.fake_client import FakeConnection, item, producer_request
from geminga_broker._tests.topic_world import World
from geminga_broker._tests.wire import message, open_broker
from geminga_broker.config import BrokerConfig, PolicyConfig
from geminga_broker.policies.apply import apply_policies
from geminga_broker.policies.model import TopicPolicies
from geminga_broker.policies.rate_limit import Rate, RateLimit, limit_of, take_all
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand


@given(
    st.integers(1, 50),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(1, 200), st.floats(0, 3)), min_size=1, max_size=50),
)
def test_the_average_is_the_rate(rate: int, period_s: int, runs: list[tuple[int, float]]) -> None:
    """Who always waits as told gets no more than the rate, beside a full bucket and the last run;
    and never waits longer than that costs.
    """
    limit = RateLimit(Rate(rate, 0, period_s), 0.0)
    now_s = 0.0
    taken = 0
    for amount, pause_s in runs:
        assert taken <= rate + now_s * rate / period_s + 1e-3
        taken += amount
        wait_s = limit.take(amount, 0, now_s)
        assert wait_s <= (taken + 1) * period_s / rate + 1e-3
        now_s += max(wait_s, pause_s)


def test_a_limit_is_kept_while_its_rate_stays() -> None:
    known = limit_of((), Rate(5), 0.0)
    assert limit_of(known, Rate(5), 1.0) == known
    assert limit_of(known, Rate(6), 1.0) != known
    assert limit_of(known, Rate(0, -1), 1.0) == ()
    assert take_all((), 100, 100, 0.0) == 0
    assert known[0].messages_left == 5
    assert RateLimit(Rate(0, 5), 0.0).messages_left is None


def test_a_relative_rate_follows_what_is_published() -> None:
    published = (0.0, 0.0)
    limit = limit_of((), Rate(5, 0, 1, relative=True), 0.0, lambda _now: published)[0]
    assert limit.take(6, 0, 0.0) > 0
    published = (20.0, 0.0)
    assert limit.take(0, 0, 1.5) == 0
    taken, now_s = 0, 1.5
    while now_s < 11.5:
        now_s += limit.take(1, 0, now_s) or 0.001
        taken += 1
    assert 220 <= taken <= 280
    plain = limit_of((), Rate(5), 0.0, lambda _now: published)[0]
    assert plain.take(6, 0, 0.0) > 0.1
    assert plain.take(5, 0, 2.0) > 0.1


async def test_publishers_above_the_rate_are_throttled(world: World):
    topic = world.topic()
    connection = FakeConnection()
    pauses: list[float] = []
    producer = await topic.add_producer(producer_request(connection, throttle=pauses.append))
    producer.publish([item(n) for n in range(100)])
    assert pauses == []
    await apply_policies(topic, TopicPolicies(publish_rate=Rate(messages=10)))
    producer.publish([item(n) for n in range(5)])
    assert pauses == []
    producer.publish([item(n) for n in range(25)])
    assert len(connection.receipts) == 130, "what came is taken"
    [pause_s] = pauses
    assert pause_s == pytest.approx(2.1, abs=0.1)
    assert topic.stats().publish_rate_limited_times == 1
    await apply_policies(topic, TopicPolicies())
    producer.publish([item(1)])
    assert len(pauses) == 1


@pytest.mark.parametrize(
    ("setting", "domain"),
    [
        ("publish_rate_messages", "persistent"),
        ("publish_rate_messages", "non-persistent"),
        ("broker_publish_rate_messages", "persistent"),
        ("broker_publish_rate_messages", "non-persistent"),
    ],
)
async def test_the_socket_is_not_read_above_the_rate(setting: str, domain: str, autojump_clock):
    config = replace(BrokerConfig(), policies=PolicyConfig(**{setting: 10}))
    async with open_broker(config) as broker:
        client = broker.client()
        await client.connect()
        await client.open_producer(f"{domain}://public/default/t")
        began_s = trio.current_time()
        for number in range(60):
            await client.send(message(number))
            frame = await client.next()
            assert frame is not None
            assert frame.type == BaseCommand.Type.SEND_RECEIPT
        assert trio.current_time() - began_s == pytest.approx(5, abs=0.3)
