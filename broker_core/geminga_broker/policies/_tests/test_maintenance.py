"""Periodic work on topics."""

from __future__ import annotations

import pytest
import trio

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.config import PolicyConfig
from geminga_broker.log.api import LogReadFailed
from geminga_broker.log.reserved_cursors import DEDUPLICATION
from geminga_broker.policies.apply import (
    apply_policies,
    expire_messages,
    expire_subscriptions,
)
from geminga_broker.policies.backlog_quota_manager import keep_quotas
from geminga_broker.policies.maintenance import (
    Step,
    TopicMaintenance,
    compact_if_due,
    take_snapshot,
)
from geminga_broker.policies.model import DeduplicationOptions, TopicPolicies
from geminga_protocol.ids import EARLIEST, LATEST
from geminga_runtime.background import TURN_UNITS


async def fill(topic, times_ms):
    """Publish an entry for each publish time."""
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(n, publish_time=ms) for n, ms in enumerate(times_ms)])


async def test_old_messages_expire_for_every_subscription(
    world: World, nursery: trio.Nursery, autojump_clock
):
    topic = world.topic()
    for name, start in (("a", EARLIEST), ("b", LATEST)):
        await topic.create_subscription(name, start)
    await fill(topic, [world.now_ms - 10_000, world.now_ms - 5_000, world.now_ms])
    config = PolicyConfig(expiry_check_minutes=1)
    nursery.start_soon(TopicMaintenance({topic.name: topic}, config).run)
    await trio.sleep(61)
    assert [s.backlog_entries() for s in topic.subscriptions.values()] == [3, 3]
    await apply_policies(topic, TopicPolicies(message_ttl_s=4))
    await trio.sleep(60)
    assert [s.backlog_entries() for s in topic.subscriptions.values()] == [1, 1]
    world.now_ms += 5_000
    await trio.sleep(60)
    assert [s.backlog_entries() for s in topic.subscriptions.values()] == [0, 0]


async def test_messages_live_as_many_seconds_as_the_policy_says(world: World) -> None:
    topic = world.topic()
    await topic.create_subscription("a", EARLIEST)
    await apply_policies(topic, TopicPolicies(message_ttl_s=4))
    await fill(topic, [world.now_ms - 4_001, world.now_ms - 3_999, world.now_ms - 5])
    await expire_messages(topic)
    assert topic.subscriptions["a"].backlog_entries() == 2


async def test_replicated_subscriptions_are_kept(world: World, autojump_clock: object) -> None:
    """They are in use where they are replicated from."""
    topic = world.topic()
    await apply_policies(topic, TopicPolicies(subscription_expiration_s=600))
    for number, name in enumerate(("here", "elsewhere")):
        replicated = name == "elsewhere"
        request = subscribe_request(FakeConnection(), number, name, replicate_state=replicated)
        (await topic.subscribe(request)).close()
    await trio.sleep(601)
    await expire_subscriptions(topic)
    assert list(topic.subscriptions) == ["elsewhere"]


@pytest.mark.parametrize("error", [LogReadFailed("disk"), KeyError("defect")])
async def test_a_topic_that_fails_does_not_stop_the_others(
    world: World, nursery: trio.Nursery, autojump_clock, error: Exception
):
    broken, sound = world.topic(), world.topic("persistent://public/default/u")
    for topic in (broken, sound):
        await apply_policies(topic, TopicPolicies(message_ttl_s=4))

    async def fail(_timestamp_ms: int):
        raise error

    broken.log = type("Broken", (), {"find_by_time": staticmethod(fail)})()
    await sound.create_subscription("a", EARLIEST)
    broken.subscriptions["a"] = sound.subscriptions["a"]
    await fill(sound, [1])
    config = PolicyConfig(expiry_check_minutes=1)
    nursery.start_soon(TopicMaintenance({"broken": broken, "sound": sound}, config).run)
    await trio.sleep(61)
    assert sound.subscriptions["a"].backlog_entries() == 0


async def test_snapshots_are_taken_though_few_entries_come(
    world: World, nursery: trio.Nursery, autojump_clock
):
    topic = world.topic()
    await apply_policies(topic, TopicPolicies(deduplication=DeduplicationOptions()))
    nursery.start_soon(TopicMaintenance({topic.name: topic}, PolicyConfig()).run)
    await fill(topic, [1, 1])
    assert world.log.cursors[DEDUPLICATION].properties == {}
    await trio.sleep(121)
    assert world.log.cursors[DEDUPLICATION].properties == {"p": 1}


@pytest.mark.parametrize(("interval_s", "after_s"), [(0, None), (10, 60), (90, 120), (300, 300)])
async def test_snapshots_are_taken_when_the_last_is_old_enough(
    world: World,
    nursery: trio.Nursery,
    autojump_clock: object,
    interval_s: int,
    after_s: int | None,
) -> None:
    topic = world.topic()
    policies = TopicPolicies(
        deduplication=DeduplicationOptions(), deduplication_snapshot_s=interval_s
    )
    await apply_policies(topic, policies)
    config = PolicyConfig(deduplication_snapshot_s=60)
    nursery.start_soon(TopicMaintenance({topic.name: topic}, config).run)
    await fill(topic, [1, 1])
    await trio.sleep(400 if after_s is None else after_s - 1)
    assert world.log.cursors[DEDUPLICATION].properties == {}
    await trio.sleep(2)
    assert world.log.cursors[DEDUPLICATION].properties == ({} if after_s is None else {"p": 1})


async def test_checks_that_are_off_are_not_made(
    world: World, nursery: trio.Nursery, autojump_clock: object
) -> None:
    topic = world.topic()
    policies = TopicPolicies(deduplication=DeduplicationOptions(), subscription_expiration_s=600)
    await apply_policies(topic, policies)
    config = PolicyConfig(
        deduplication_snapshot_s=0, subscription_check_minutes=0, compaction_monitor_s=0
    )
    nursery.start_soon(TopicMaintenance({topic.name: topic}, config).run)
    await topic.create_subscription("idle", EARLIEST)
    await fill(topic, [1, 1])
    await trio.sleep(3600)
    assert world.log.cursors[DEDUPLICATION].properties == {}
    assert sorted(topic.subscriptions) == ["idle"]


async def test_inactive_subscriptions_are_deleted(
    world: World, nursery: trio.Nursery, autojump_clock
):
    topic = world.topic()
    await apply_policies(topic, TopicPolicies(subscription_expiration_s=600))
    nursery.start_soon(TopicMaintenance({topic.name: topic}, PolicyConfig()).run)
    for name in ("idle", "left", "used"):
        await topic.create_subscription(name, EARLIEST)
    connection = FakeConnection()
    await topic.subscribe(subscribe_request(connection, 1, "used"))
    leaves = await topic.subscribe(subscribe_request(connection, 2, "left"))
    await trio.sleep(590)
    assert sorted(topic.subscriptions) == ["idle", "left", "used"]
    leaves.close()
    await trio.sleep(311)
    assert sorted(topic.subscriptions) == ["left", "used"]
    await apply_policies(topic, TopicPolicies())
    await trio.sleep(3600)
    assert sorted(topic.subscriptions) == ["left", "used"]
    await apply_policies(topic, TopicPolicies(subscription_expiration_s=600))
    await trio.sleep(301)
    assert sorted(topic.subscriptions) == ["used"]


class Steps(trio.abc.Instrument):
    """Counts how often one task has its turn."""

    def __init__(self) -> None:
        self.task = trio.lowlevel.current_task()
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self.task


@pytest.mark.parametrize("step", [take_snapshot, compact_if_due, expire_messages, keep_quotas])
async def test_topics_without_work_cost_no_turn_each(
    step: Step, world: World, autojump_clock: trio.testing.MockClock
) -> None:
    topic = world.topic()
    await topic.create_subscription("a", EARLIEST)
    topics = dict.fromkeys(map(str, range(20 * TURN_UNITS)), topic)
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    await TopicMaintenance(topics, PolicyConfig())._once(step)
    trio.lowlevel.remove_instrument(steps)
    assert 20 <= steps.count <= 60
