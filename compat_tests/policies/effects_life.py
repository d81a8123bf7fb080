"""Probes of policies about what is kept, and for how long (spec BR-04, BR-21, BR-23, BR-50)."""

from __future__ import annotations

from itertools import count

import trio

from compat_tests.policies.effects import Between, Effect
from compat_tests.policies.model import JSON
from compat_tests.policies.world import PATH, TOPIC, Link, World
from geminga_broker.log.reserved_cursors import COMPACTION, DEDUPLICATION
from geminga_broker.log.topic_log import TopicLog

_NAMES = count(1)
KIB = 1 << 10


async def _fill(link: Link, ages_s: list[int], size: int = 1, key: str = "") -> None:
    """Publish messages of these ages."""
    producer = await link.produce()
    assert isinstance(producer, int)
    before = len(link.receipts)
    for number, age_s in enumerate(ages_s):
        await link.publish(producer, number, b"x" * size, age_s=age_s, key=key)
    await link.answered(before + len(ages_s))


async def _standing(world: World) -> None:
    """An idle subscription, as of a consumer that pauses."""
    await world.done("PUT", f"{PATH}/subscription/idle", {"ledgerId": -1, "entryId": -1})


async def _gone(world: World) -> None:
    await world.done("DELETE", f"{PATH}/subscription/idle?force=true")
    await world.done("DELETE", f"{PATH}/truncate")


def _backlog(world: World) -> int:
    return world.topic.subscriptions["idle"].backlog_entries()


async def expiring(world: World) -> JSON:
    """How many of ten messages stay: four are new, three 100 and three 200 seconds old."""
    await _standing(world)
    async with world.link() as link:
        await _fill(link, [200] * 3 + [100] * 3 + [1] * 4)
    await trio.sleep(61)
    found = _backlog(world)
    await _gone(world)
    return found


async def retaining(world: World) -> JSON:
    """How many of twenty acknowledged messages of 100 KB stay, of which ten are 1 MB."""
    async with world.link() as link:
        await _fill(link, [0] * 20, 100 * KIB)
    await trio.sleep(30)
    found = world.topic.log.statistics().entries
    await world.done("DELETE", f"{PATH}/truncate")
    return found


async def quota_of(world: World, ages_s: list[int]) -> JSON:
    """What a producer is told above the quota, and how much backlog stays."""
    await _standing(world)
    async with world.link() as link:
        await _fill(link, ages_s, 500)
    await trio.sleep(1.5)
    async with world.link() as link:
        told = await link.produce()
    found = ["open" if isinstance(told, int) else told, _backlog(world)]
    await _gone(world)
    return found


async def quota_by_size(world: World) -> JSON:
    """Of twenty messages with some 550 bytes."""
    return await quota_of(world, [0] * 20)


async def quota_by_age(world: World) -> JSON:
    """Of ten old and ten new messages."""
    return await quota_of(world, [200] * 10 + [1] * 10)


async def subscriptions_expiring(world: World) -> JSON:
    """Whether an idle subscription is still there after half an hour."""
    await _standing(world)
    await trio.sleep(1800)
    found = "idle" in world.topic.subscriptions
    if found:
        await _gone(world)
    return found


async def idling(world: World) -> JSON:
    """Whether a topic without clients is still there after some minutes."""
    await trio.sleep(150)
    found = TOPIC in world.service.topics.loaded
    await world.load()
    return found


async def compacting(world: World) -> JSON:
    """Whether the topic is compacted by itself."""
    async with world.link() as link:
        await _fill(link, [0] * 20, 500, "k")
    last = world.topic.log.last_position
    await trio.sleep(70)
    cursor = world.topic.log.cursors.get(COMPACTION)
    return cursor is not None and cursor.mark_delete == last


async def storing(world: World) -> JSON:
    """How often cursors are written, in seconds."""
    log = world.topic.log
    assert isinstance(log, TopicLog)
    return log.context.flush_interval_s


async def deduplicating(world: World) -> JSON:
    """How many of two equal messages are stored."""
    async with world.link() as link:
        producer = await link.produce(name=f"once-{next(_NAMES)}")
        assert isinstance(producer, int)
        for _ in range(2):
            await link.publish(producer, 7)
        await link.answered(2)
        return sum(entry < 1 << 63 for _, entry in link.receipts)


async def _until_written(world: World, link: Link) -> int:
    """In how many seconds what a new producer has published is written; ten minutes at most."""
    name = f"written-{next(_NAMES)}"
    producer = await link.produce(name=name)
    assert isinstance(producer, int)
    await link.publish(producer, 7)
    for waited_s in range(600):
        if name in world.topic.log.cursors[DEDUPLICATION].properties:
            return waited_s
        await trio.sleep(1)
    raise AssertionError("never written")


async def snapshots(world: World) -> JSON:
    """In how many seconds the second of two snapshots is taken."""
    async with world.link() as link:
        await _until_written(world, link)
        return await _until_written(world, link)


EXCEPTION = "ProducerBlockedQuotaExceededException"
EFFECTS = {
    "messageTTL": Effect(
        expiring, 10, 4, 7, {"ttlDurationDefaultInSeconds": "150"}, 7,
        {"messageExpiryCheckIntervalInMinutes": "1"},
    ),
    "retention": Effect(
        retaining, Between(0, 5), 20, Between(10, 15),
        {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "1"}, Between(10, 15),
        {"managedLedgerMaxEntriesPerLedger": "5", "managedLedgerMinLedgerRolloverTimeMinutes": "0",
         "retentionCheckIntervalInSeconds": "10"},
    ),
    "backlogQuota by size": Effect(
        quota_by_size, ["open", 20], [EXCEPTION, 20], ["open", Between(5, 7)],
        {"backlogQuotaDefaultLimitBytes": "6000"}, ["ProducerBlockedQuotaExceededError", 20],
        {"backlogQuotaCheckIntervalInSeconds": "1"},
    ),
    "backlogQuota by age": Effect(
        quota_by_age, ["open", 20], [EXCEPTION, 20], ["open", 10],
        {"backlogQuotaDefaultLimitSecond": "60"}, ["ProducerBlockedQuotaExceededError", 20],
        {"backlogQuotaCheckIntervalInSeconds": "1", "preciseTimeBasedBacklogQuotaCheck": "true"},
    ),
    "subscriptionExpirationTime": Effect(
        subscriptions_expiring, True, False,
        keys={"subscriptionExpirationTimeMinutes": "20"}, broker=False,
    ),
    "inactiveTopicPolicies": Effect(
        idling, True, False, True,
        {"brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "20"}, False,
        {"brokerDeleteInactiveTopicsEnabled": "true",
                  "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "3600"},
    ),
    "compactionThreshold": Effect(
        compacting, False, True, False, {"brokerServiceCompactionThresholdInBytes": "1000"}, True
    ),
    "persistence": Effect(
        storing, 1.0, 0.05, 0.2, {"managedLedgerDefaultMarkDeleteRateLimit": "10"}, 0.1
    ),
    "deduplication": Effect(
        deduplicating, 2, 1, 2, {"brokerDeduplicationEnabled": "true"}, 1
    ),
    "deduplicationSnapshotInterval": Effect(
        snapshots, Between(100, 130), Between(15, 30), Between(50, 70),
        {"brokerDeduplicationSnapshotIntervalSeconds": "300"}, Between(280, 310),
        {"brokerDeduplicationEnabled": "true", "brokerDeduplicationSnapshotFrequencyInSeconds":
         "5"},
    ),
}  # fmt: skip
