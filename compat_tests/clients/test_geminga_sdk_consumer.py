"""Consumers of our own SDK on our broker and on Apache's: letters, timeouts, patterns, views."""

from __future__ import annotations

import re

import httpx2 as httpx
import pytest
import trio

import geminga
from compat_tests.clients.conftest import PATIENCE_S, settled_active
from compat_tests.clients.test_geminga_sdk import (
    EARLIEST,
    client_of,
    partitioned,
    send_all,
    take,
    texts,
    topic_name,
)
from compat_tests.processes import ServerProcess
from geminga import ConsumerEventListener, ConsumerType, DeadLetterPolicy


def rest(server: ServerProcess, method: str, path: str, body: str = "") -> None:
    url = f"{server.web_url}/admin/v2/{path.replace('://', '/')}"
    headers = {"content-type": "application/json"}
    httpx.request(method, url, content=body, headers=headers, timeout=60).raise_for_status()


async def test_refused_too_often_is_a_dead_letter(server: ServerProcess) -> None:
    topic = topic_name("dead")
    async with client_of(server) as client:
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.SHARED,
            negative_ack_redelivery_delay_s=0.1,
            dead_letter_policy=DeadLetterPolicy(2, initial_subscription_name="kept"),
        )
        await send_all(client, topic, ["good", "bad"], batching_enabled=False)
        seen: list[tuple[bytes, int]] = []
        while len(seen) < 4:
            message = await consumer.receive(PATIENCE_S)
            seen.append((message.data, message.redelivery_count))
            if message.data == b"good":
                await consumer.acknowledge(message)
            else:
                consumer.negative_acknowledge(message)
        assert sorted(seen) == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(1)
        dead = await client.subscribe(f"{topic}-s-DLQ", "kept")
        (letter,) = await take(dead, 1)
        assert letter.data == b"bad"
        assert letter.properties["REAL_TOPIC"] == topic
        assert letter.properties["REAL_SUBSCRIPTION"] == "s"
        assert letter.properties["ORIGIN_MESSAGE_ID"].count(":") == 2


async def test_reconsume_later(server: ServerProcess) -> None:
    topic = topic_name("again")
    async with client_of(server) as client:
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.SHARED,
            retry_enabled=True,
            dead_letter_policy=DeadLetterPolicy(1),
        )
        await send_all(client, topic, ["m"])
        (first,) = await take(consumer, 1)
        began_s = trio.current_time()
        await consumer.reconsume_later(first, 1.5)
        (again,) = await take(consumer, 1)
        # Apache's broker may be early by its tick of a second.
        assert trio.current_time() - began_s >= 0.3
        assert again.topic_name == f"{topic}-s-RETRY"
        assert again.properties["RECONSUMETIMES"] == "1"
        assert again.properties["DELAY_TIME"] == "1500"
        await consumer.reconsume_later(again, 0.5)
        dead = await client.subscribe(f"{topic}-s-DLQ", "d", initial_position=EARLIEST)
        assert texts(await take(dead, 1)) == ["m"]


async def test_ack_timeout(server: ServerProcess) -> None:
    topic = topic_name("timeout")
    async with client_of(server) as client:
        consumer = await client.subscribe(
            topic, "s", consumer_type=ConsumerType.SHARED, ack_timeout_s=4
        )
        await send_all(client, topic, ["a", "b"], batching_enabled=False)
        (message, other) = await take(consumer, 2)
        await consumer.acknowledge(message)
        (again,) = await take(consumer, 1)
        assert again.data == other.data
        assert again.redelivery_count == 1


async def test_pattern_topics_appear_and_vanish(server: ServerProcess) -> None:
    first, second = topic_name("pattern"), topic_name("pattern")
    # Brokers filter and watch for patterns of up to 50 characters only.
    pattern = re.compile("persistent://public/default/sdk-pattern-.*")
    async with client_of(server) as client:
        await send_all(client, first, ["before"])
        consumer = await client.subscribe(
            pattern, "s", initial_position=EARLIEST, pattern_auto_discovery_period_s=2
        )
        assert consumer.topics == [first]
        await send_all(client, second, ["appeared"])
        messages = await take(consumer, 2)
        assert {m.topic_name: m.data for m in messages} == {first: b"before", second: b"appeared"}
        rest(server, "DELETE", f"{first}?force=true")
        with trio.fail_after(PATIENCE_S):
            while consumer.topics != [second]:  # noqa: ASYNC110
                await trio.sleep(0.1)


async def test_partitions_grow(server: ServerProcess) -> None:
    topic = partitioned(server, topic_name("grow"), 1)
    async with client_of(server) as client:
        consumer = await client.subscribe(topic, "s", auto_update_partitions_interval_s=0.5)
        rest(server, "POST", f"{topic}/partitions", "3")
        await send_all(client, f"{topic}-partition-2", ["new"])
        assert texts(await take(consumer, 1)) == ["new"]
        with trio.fail_after(30):  # each partition is opened by itself, none waits for another
            while len(consumer.topics) < 3:  # noqa: ASYNC110
                await trio.sleep(0.05)


async def test_active_in_failover_and_end_of_topic(server: ServerProcess) -> None:
    topic = topic_name("failover")
    heard: list[tuple[str, str]] = []

    class Listener(ConsumerEventListener):
        def __init__(self, name: str) -> None:
            self.name = name

        def became_active(self, topic: str) -> None:
            heard.append((self.name, "active"))

        def reached_end_of_topic(self, topic: str) -> None:
            heard.append((self.name, "end"))

    async def until(event: tuple[str, str]) -> None:
        with trio.fail_after(PATIENCE_S):
            while event not in heard:  # noqa: ASYNC110
                await trio.sleep(0.02)

    async with client_of(server) as client:
        consumers = {
            name: await client.subscribe(
                topic,
                "s",
                consumer_name=name,
                consumer_type=ConsumerType.FAILOVER,
                consumer_event_listener=Listener(name),
            )
            for name in ("a", "b")
        }
        active = await trio.to_thread.run_sync(settled_active, server, topic, "s")
        await until((active, "active"))
        heard.clear()
        await consumers.pop(active).aclose()
        (other,) = consumers
        await until((other, "active"))
        rest(server, "POST", f"{topic}/terminate")
        await until((other, "end"))
        assert consumers[other].reached_end_of_topic


async def test_table_view(server: ServerProcess) -> None:
    topic = topic_name("table")
    async with client_of(server) as client:
        producer = await client.create_producer(topic)
        for n in range(20):
            await producer.submit(b"%d" % n, partition_key=f"k{n % 5}")
        await producer.send(b"", partition_key="k0")
        view = await client.create_table_view(topic)
        assert dict(view.items()) == {f"k{n}": b"%d" % (15 + n) for n in range(1, 5)}
        changes = view.changes()
        await producer.send(b"new", partition_key="k0")
        assert await changes.next_change() == ("k0", b"new")
        await view.refresh()
        assert len(view) == 5


@pytest.mark.parametrize("how", ["another consumer", "admin"])
async def test_a_cursor_that_is_moved_back_brings_everything_again(
    server: ServerProcess, how: str
) -> None:
    """Also those messages of a batch that were acknowledged before. (With batch indexes Apache's
    broker itself leaves them out.)
    """
    topic = topic_name("replay")
    async with client_of(server) as client:
        consumer = await client.subscribe(topic, "s", consumer_type=ConsumerType.SHARED)
        numbers = [f"m{n}" for n in range(10)]
        await send_all(client, topic, numbers, batching_enabled=True)
        await consumer.acknowledge_all((await take(consumer, 10))[:4])
        await trio.sleep(1)
        if how == "admin":
            rest(server, "POST", f"{consumer.topics[0]}/subscription/s/resetcursor/1000")
        else:
            shared = ConsumerType.SHARED
            async with await client.subscribe(topic, "s", consumer_type=shared) as other:
                other.pause()
                await other.seek(geminga.EARLIEST)
        assert texts(await take(consumer, 10)) == numbers
