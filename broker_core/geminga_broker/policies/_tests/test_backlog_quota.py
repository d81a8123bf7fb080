"""Backlog quotas: arithmetic by itself, and topics that keep them."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker._tests.fake_client import FakeConnection, item, producer_request
from geminga_broker._tests.topic_world import World
from geminga_broker.config import PolicyConfig
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LedgerStatistics
from geminga_broker.policies.apply import apply_policies
from geminga_broker.policies.backlog_quota_manager import age_exceeded, keep_quotas, slowest_cursor
from geminga_broker.policies.maintenance import TopicMaintenance
from geminga_broker.policies.model import DeduplicationOptions, TopicPolicies
from geminga_broker.policies.quota import (
    BacklogQuota,
    QuotaPolicy,
    Quotas,
    QuotaType,
    backlog_bytes,
    closed_ms_of_oldest,
    entries_to_evict,
)
from geminga_protocol.ids import EARLIEST, Position
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

REFUSED = {
    QuotaPolicy.HOLD: ServerError.ProducerBlockedQuotaExceededError,
    QuotaPolicy.EXCEPTION: ServerError.ProducerBlockedQuotaExceededException,
}
LEDGERS = (
    LedgerStatistics(3, 10, 1000, 5_000),
    LedgerStatistics(5, 4, 800, 9_000),
    LedgerStatistics(6, 0, 0, 0),
)


def at(ledger: int, entry: int) -> Position:
    return Position(ledger, entry)


@pytest.mark.parametrize(
    ("mark_delete", "size"),
    [
        (at(3, -1), 1800),
        (at(2, 7), 1800),
        (at(3, 3), 1400),
        (at(3, 9), 800),
        (at(4, 0), 800),
        (at(5, 0), 600),
        (at(5, 3), 0),
        (at(6, -1), 0),
    ],
)
def test_bytes_behind_a_position(mark_delete: Position, size: int) -> None:
    assert backlog_bytes(LEDGERS, mark_delete) == size


@pytest.mark.parametrize(
    ("mark_delete", "closed_ms"),
    [(at(3, -1), 5_000), (at(3, 9), 9_000), (at(5, 2), 9_000), (at(5, 3), 0), (at(1, 1), 5_000)],
)
def test_when_the_oldest_ledger_was_closed(mark_delete: Position, closed_ms: int) -> None:
    assert closed_ms_of_oldest(LEDGERS, mark_delete) == closed_ms


@given(st.integers(1, 10**12), st.integers(0, 10**12), st.integers(1, 10**6))
def test_eviction_leaves_about_nine_tenths(backlog: int, limit: int, entries: int) -> None:
    evicted = entries_to_evict(backlog, limit, entries)
    assert 0 <= evicted <= entries
    left = backlog * (entries - evicted) / entries
    assert left <= max(0.9 * limit + backlog / entries + 1, 0) or backlog <= 0.9 * limit


async def topic_with(world: World, quotas: Quotas, count: int = 10):
    topic = world.topic()
    await topic.create_subscription("a", EARLIEST)
    await topic.create_subscription("b", EARLIEST)
    await apply_policies(topic, TopicPolicies(quotas=quotas))
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(n, publish_time=world.now_ms) for n in range(count)])
    await world.settle()
    return topic


def size_of(topic) -> int:
    return topic.log.statistics().size_bytes


@pytest.mark.parametrize("policy", [QuotaPolicy.HOLD, QuotaPolicy.EXCEPTION])
async def test_producers_are_closed_and_refused_until_there_is_room(world: World, policy):
    topic = await topic_with(world, Quotas())
    assert len(topic.producers) == 1
    await apply_policies(
        topic, TopicPolicies(quotas=Quotas(BacklogQuota(size_of(topic), -1, policy)))
    )
    await keep_quotas(topic)
    assert not topic.producers
    with pytest.raises(BrokerError) as refused:
        await topic.add_producer(producer_request(FakeConnection()))
    assert refused.value.code == REFUSED[policy]
    await topic.skip("a", None)
    with pytest.raises(BrokerError):
        await topic.add_producer(producer_request(FakeConnection()))
    await topic.skip("b", 5)
    await topic.add_producer(producer_request(FakeConnection()))
    await keep_quotas(topic)
    assert len(topic.producers) == 1


async def test_eviction_refuses_no_producer(world: World) -> None:
    """Old messages make room for new ones."""
    topic = await topic_with(world, Quotas())
    quota = BacklogQuota(size_of(topic), 1, QuotaPolicy.EVICTION)
    await apply_policies(topic, TopicPolicies(quotas=Quotas(quota, quota, precise_age=True)))
    world.now_ms += 60_000
    await topic.add_producer(producer_request(FakeConnection(), "another"))
    assert len(topic.producers) == 2


async def test_below_the_limit_nothing_happens(world: World):
    topic = await topic_with(world, Quotas())
    quota = BacklogQuota(size_of(topic) + 1, -1, QuotaPolicy.EVICTION)
    await apply_policies(topic, TopicPolicies(quotas=Quotas(quota)))
    await keep_quotas(topic)
    assert [s.backlog_entries() for s in topic.subscriptions.values()] == [10, 10]
    assert topic.evictions[QuotaType.SIZE] == 0


async def test_the_oldest_are_evicted_for_the_slowest(world: World):
    topic = await topic_with(world, Quotas())
    await topic.skip("a", 8)
    quota = BacklogQuota(size_of(topic) // 2, -1, QuotaPolicy.EVICTION)
    await apply_policies(topic, TopicPolicies(quotas=Quotas(quota)))
    await keep_quotas(topic)
    assert topic.subscriptions["a"].backlog_entries() == 2
    assert topic.subscriptions["b"].backlog_entries() == 5
    assert topic.evictions[QuotaType.SIZE] == 1
    stats = topic.stats()
    assert stats.backlog_quota_limit_size == size_of(topic) // 2
    assert stats.backlog_size == stats.subscriptions["b"].backlog_size == size_of(topic) // 2


async def test_messages_may_get_too_old(world: World):
    quotas = Quotas(age=BacklogQuota(0, 10, QuotaPolicy.EXCEPTION), precise_age=True)
    topic = await topic_with(world, quotas)
    world.now_ms += 10_000
    assert not await age_exceeded(topic)
    world.now_ms += 1_000
    await keep_quotas(topic)
    assert not topic.producers
    assert topic.stats().oldest_backlog_message_age_seconds == 11
    with pytest.raises(BrokerError) as refused:
        await topic.add_producer(producer_request(FakeConnection()))
    assert refused.value.code == ServerError.ProducerBlockedQuotaExceededException
    for name in "ab":
        await topic.skip(name, None)
    await topic.add_producer(producer_request(FakeConnection()))
    assert topic.stats().oldest_backlog_message_age_seconds == -1


async def test_too_old_messages_are_evicted_for_all_subscriptions(world: World):
    quotas = Quotas(age=BacklogQuota(0, 10, QuotaPolicy.EVICTION), precise_age=True)
    topic = await topic_with(world, quotas, 4)
    world.now_ms += 5_000
    producer = next(iter(topic.producers.values()))
    producer.publish([item(9, publish_time=world.now_ms)])
    world.now_ms += 6_000
    await keep_quotas(topic)
    assert [s.backlog_entries() for s in topic.subscriptions.values()] == [1, 1]
    assert topic.evictions[QuotaType.AGE] == 1


async def test_the_brokers_own_cursors_close_no_producers(world: World):
    topic = await topic_with(world, Quotas())
    for name in "ab":
        await topic.delete_subscription(name)
    quota = Quotas(BacklogQuota(1, -1, QuotaPolicy.HOLD))
    await apply_policies(topic, TopicPolicies(deduplication=DeduplicationOptions(), quotas=quota))
    producer = next(iter(topic.producers.values()))
    producer.publish([item(n) for n in range(20, 25)])
    await world.settle()
    before = slowest_cursor(topic).mark_delete
    await keep_quotas(topic)
    assert len(topic.producers) == 1
    assert slowest_cursor(topic).mark_delete > before


async def test_quotas_are_enforced_periodically(
    world: World, nursery: trio.Nursery, autojump_clock
):
    topic = await topic_with(world, Quotas())
    await apply_policies(topic, TopicPolicies(quotas=Quotas(BacklogQuota(1, -1, QuotaPolicy.HOLD))))
    nursery.start_soon(TopicMaintenance({topic.name: topic}, PolicyConfig(quota_check_s=7)).run)
    await trio.sleep(6)
    assert topic.producers
    await trio.sleep(2)
    assert not topic.producers
