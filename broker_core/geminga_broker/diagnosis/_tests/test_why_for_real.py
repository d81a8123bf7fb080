"""Each cause is produced by real clients on a running broker, and told over REST."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest
import trio

import geminga
import geminga.admin
import geminga.testing
from geminga.admin import DispatchRate, Finding, NotFoundError

EXCLUSIVE, SHARED, FAILOVER, KEYED = geminga.ConsumerType
PATIENCE_S = 20.0


class Rig:
    """A broker, a topic, and clients that stay until the end of the test."""

    def __init__(
        self, client: geminga.Client, admin: geminga.admin.AdminClient, stack: AsyncExitStack
    ) -> None:
        self.client = client
        self.admin = admin
        self.stack = stack
        self.topic = "persistent://public/default/t"

    async def subscribe(
        self, kind: geminga.ConsumerType = SHARED, queue: int = 100, name: str = "", **more: object
    ) -> geminga.Consumer:
        return await self.stack.enter_async_context(
            self.client.subscribe(
                self.topic,
                "s",
                consumer_type=kind,
                receiver_queue_size=queue,
                consumer_name=name or None,
                initial_position=geminga.InitialPosition.EARLIEST,
                **more,
            )
        )

    async def publish(self, count: int = 1, key: str | None = None, **more: object) -> None:
        async with self.client.create_producer(self.topic, batching_enabled=False) as producer:
            for number in range(count):
                await producer.send(b"%d" % number, partition_key=key, **more)

    async def producer(self) -> geminga.Producer:
        return await self.stack.enter_async_context(self.client.create_producer(self.topic))

    async def until(self, true: Callable[[], Awaitable[object]]) -> None:
        """Wait for the broker, which tells nobody when it is done."""
        with trio.fail_after(PATIENCE_S):
            while not await true():  # noqa: ASYNC110
                await trio.sleep(0.02)

    async def told(self, code: str) -> Finding:
        """The finding with that code, which may take a moment."""
        found: list[Finding] = []
        with trio.move_on_after(PATIENCE_S):
            while True:
                found = await self.admin.subscriptions.why(self.topic, "s")
                for each in found:
                    if each.code == code:
                        return each
                await trio.sleep(0.02)
        raise AssertionError(f"{code} is not among {found}")


@asynccontextmanager
async def rig(**settings: object) -> AsyncIterator[Rig]:
    async with (
        geminga.testing.open_broker(settings) as url,
        geminga.connect(url) as client,
        geminga.admin.connect(url.web_url) as admin,
        AsyncExitStack() as stack,
    ):
        yield Rig(client, admin, stack)


async def nobody(on: Rig) -> None:
    await (await on.subscribe()).aclose()
    await on.publish(3)


async def nobody_and_nothing(on: Rig) -> None:
    await (await on.subscribe()).aclose()


async def without_permits(on: Rig) -> None:
    await on.subscribe(EXCLUSIVE, queue=1)
    await on.publish(5)


async def without_acks(on: Rig) -> None:
    consumer = await on.subscribe(name="slow")
    await on.publish(4)
    for _ in range(4):
        await consumer.receive()


async def delayed(on: Rig) -> None:
    await on.subscribe()
    await on.publish(2, deliver_after=timedelta(hours=1))


async def draining(on: Rig) -> None:
    old = await on.subscribe(KEYED, name="old")
    for number in range(40):
        await on.publish(1, key=f"k{number}")
    for _ in range(40):
        await old.receive()
    await on.subscribe(KEYED, name="new")
    for number in range(40):
        await on.publish(1, key=f"k{number}")


async def slow_holder(on: Rig) -> None:
    await on.subscribe(KEYED, name="slow", queue=3)
    quick = await on.subscribe(KEYED, name="quick")
    for number in range(60):
        await on.publish(1, key=f"k{number % 6}")
    with trio.move_on_after(1):
        while True:
            await quick.acknowledge(await quick.receive())


async def unowned(on: Rig) -> None:
    policy = geminga.KeySharedPolicy(sticky_ranges=((0, 0), (60000, 65535)))
    await on.subscribe(KEYED, key_shared_policy=policy)
    for number in range(20):
        await on.publish(1, key=f"k{number}")


async def not_active(on: Rig) -> None:
    await on.subscribe(FAILOVER, name="a")
    await on.subscribe(FAILOVER, name="b", priority_level=1)


async def same_names(on: Rig) -> None:
    await on.subscribe(FAILOVER, name="app", queue=1)
    await on.subscribe(FAILOVER, name="app", queue=1)
    await on.publish(5)


async def lower(on: Rig) -> None:
    await on.subscribe(SHARED, name="first")
    await on.subscribe(SHARED, name="second", priority_level=2)


async def taken_over(on: Rig) -> None:
    old = await on.subscribe(FAILOVER, name="b", priority_level=1)
    await on.publish(3)
    await old.receive()
    await on.subscribe(FAILOVER, name="a")


async def terminated(on: Rig) -> None:
    await on.subscribe()
    await on.admin.topics.terminate(on.topic)


async def all_rate_used(on: Rig) -> None:
    rate = DispatchRate(
        dispatch_throttling_rate_in_msg=2,
        dispatch_throttling_rate_in_byte=-1,
        rate_period_in_second=60,
    )
    await on.subscribe()
    await on.admin.topic_policies.dispatch_rate.set(on.topic, rate)
    await on.until(lambda: on.admin.topic_policies.dispatch_rate.get(on.topic))
    for _ in range(20):
        await on.publish(1)


async def brokers_rate_used(on: Rig) -> None:
    await on.subscribe()
    await on.publish(20)


async def other_has_backlog(on: Rig) -> None:
    await on.subscribe()
    await on.admin.subscriptions.create(on.topic, "other")
    producer = await on.client.create_producer(on.topic)
    for _ in range(3):
        await producer.send(b"x" * 100)
    await on.admin.subscriptions.skip_all(on.topic, "s")


async def compacted(on: Rig) -> None:
    await on.publish(5, key="k")
    await on.admin.topics.compact(on.topic)

    async def done() -> bool:
        return (await on.admin.topics.compaction_status(on.topic)).status == "SUCCESS"

    await on.until(done)
    consumer = await on.subscribe(EXCLUSIVE, read_compacted=True)
    await consumer.receive()


async def served(on: Rig) -> None:
    await on.subscribe()
    await on.producer()


async def idle(on: Rig) -> None:
    consumer = await on.subscribe()
    await on.publish(1)
    await consumer.acknowledge(await consumer.receive())


async def dropped(on: Rig) -> None:
    on.topic = "non-persistent://public/default/t"
    await on.subscribe(EXCLUSIVE, queue=1)
    await on.publish(10)


Cause = Callable[[Rig], Awaitable[None]]

CASES: tuple[tuple[Cause, str, str, str, dict[str, object]], ...] = (
    (nobody, "NO_CONSUMERS", "fail", "the backlog of 3 entries waits", {}),
    (nobody_and_nothing, "NO_CONSUMERS", "warn", "nobody to send messages to", {}),
    (without_permits, "NO_PERMITS", "fail", "asked for no more messages", {}),
    (
        without_acks,
        "WAITS_FOR_ACKS",
        "fail",
        "What is left of the backlog, 4 entries, was sent to",
        {},
    ),
    (
        without_acks,
        "CONSUMER_UNACKED_LIMIT",
        "fail",
        "is reached by consumer slow (4 of 4)",
        {"maxUnackedMessagesPerConsumer": 4},
    ),
    (
        without_acks,
        "SUBSCRIPTION_UNACKED_LIMIT",
        "fail",
        "have 4 unacknowledged messages; its limit is 4",
        {"maxUnackedMessagesPerSubscription": 4},
    ),
    (
        without_acks,
        "BROKER_UNACKED_LIMIT",
        "fail",
        "pauses this subscription, which has 4",
        {"maxUnackedMessagesPerBroker": 3},
    ),
    (delayed, "DELAYED", "fail", "2 messages are delayed by the producer; the first is due", {}),
    (draining, "DRAINING_HASHES", "fail", "wait until old acknowledged", {}),
    (
        draining,
        "LOOK_AHEAD_FULL",
        "fail",
        "that were read wait for their keys' consumers",
        {
            "keySharedLookAheadMsgInReplayThresholdPerConsumer": 1,
            "keySharedLookAheadMsgInReplayThresholdPerSubscription": 1,
        },
    ),
    (slow_holder, "KEYS_WAIT", "fail", "belong to consumer slow, which takes no more", {}),
    (unowned, "UNOWNED_HASHES", "fail", "the hashes 1 to 59999,", {}),
    (not_active, "NOT_ACTIVE", "warn", "Only a is the active consumer; consumer b waits", {}),
    (same_names, "NO_PERMITS", "fail", "consumer app asked", {}),
    (lower, "LOWER_PRIORITY", "warn", "Because consumer second has a lower priority, it gets", {}),
    (taken_over, "FAILOVER_DELAY", "fail", "a has just become the active consumer", {}),
    (terminated, "TERMINATED", "ok", "The topic is terminated", {}),
    (all_rate_used, "DISPATCH_RATE", "fail", "topic's dispatch rate, 2 messages in 60 s", {}),
    (
        brokers_rate_used,
        "DISPATCH_RATE",
        "fail",
        "The broker's dispatch rate, 40 bytes a second, is used up",
        {"dispatchThrottlingRateInByte": 40},
    ),
    (
        brokers_rate_used,
        "DISPATCH_RATE",
        "fail",
        "The subscription's dispatch rate, 40 bytes a second, is used up",
        {"dispatchThrottlingRatePerSubscriptionInByte": 40},
    ),
    (
        other_has_backlog,
        "PRODUCERS_REFUSED",
        "fail",
        "refuses new producers",
        {"backlogQuotaDefaultLimitBytes": 10},
    ),
    (compacted, "COMPACTED", "warn", "reads the compacted topic", {}),
    (served, "FINE", "ok", "delivered and acknowledged", {}),
    (idle, "NOTHING_PUBLISHED", "ok", "no producer is connected", {}),
    (dropped, "DROPPED", "warn", "a non-persistent topic keeps nothing", {}),
    (dropped, "NO_PERMITS", "fail", "asked for no more messages", {}),
)


@pytest.mark.parametrize(
    ("cause", "code", "level", "words", "settings"),
    CASES,
    ids=[f"{cause.__name__}-{code}" for cause, code, *_ in CASES],
)
@pytest.mark.slow
async def test_a_cause_is_told(
    cause: Cause, code: str, level: str, words: str, settings: dict[str, object]
) -> None:
    async with rig(**settings) as on:
        await cause(on)
        found = await on.told(code)
        assert (found.level, found.topic) == (level, on.topic)
        assert words in found.sentence
        assert found.sentence.endswith(".")
        assert found.advice or level == "ok"


async def test_of_a_partitioned_topic_each_partition_is_told() -> None:
    async with rig() as on:
        await on.admin.topics.create_partitioned(on.topic, 3)
        await on.admin.subscriptions.create(f"{on.topic}-partition-1", "s")
        found = await on.admin.subscriptions.why(on.topic, "s")
        assert [(each.topic[-1], each.code) for each in found] == [
            ("1", "NO_CONSUMERS"),
            ("0", "NO_SUBSCRIPTION"),
            ("2", "NO_SUBSCRIPTION"),
        ]
        with pytest.raises(NotFoundError):
            await on.admin.subscriptions.why(on.topic, "no-such")


async def test_it_is_quick_for_many_consumers() -> None:
    async with rig() as on:
        for number in range(50):
            await on.subscribe(KEYED, name=f"c{number}")
        began_s = time.perf_counter()
        await on.admin.subscriptions.why(on.topic, "s")
        assert time.perf_counter() - began_s < 2
