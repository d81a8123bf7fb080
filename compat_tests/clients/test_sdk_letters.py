"""Retry and dead letters of our SDK beside those that the Java client writes, on both servers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
import trio

import geminga
from compat_tests.apache import jars
from compat_tests.clients.test_geminga_sdk import client_of, topic_name
from compat_tests.missing import JAVA_CLIENT, skipped_without
from compat_tests.processes import ServerProcess
from geminga import Client, ConsumerType, DeadLetterPolicy, InitialPosition, Message

OPTIONS: dict[str, Any] = {
    "consumer_name": "me",
    "consumer_type": ConsumerType.SHARED,
    "initial_position": InitialPosition.EARLIEST,
    "negative_ack_redelivery_delay_s": 0.2,
    "dead_letter_policy": DeadLetterPolicy(1, initial_subscription_name="kept"),
}

SILENT_S = 15
"""After it nothing more comes; a busy machine needs a while to make the topics of the letters."""


def run_java(server: ServerProcess, topics: list[str]) -> None:
    """The Java client's part: it writes to all topics, and letters from the first two."""
    with skipped_without(JAVA_CLIENT):
        command = jars.java_command("Letters", [server.service_url, *topics])
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert "done" in done.stdout, done.stderr[-2000:]


async def refuse(client: Client, topic: str) -> None:
    async with await client.subscribe(topic, "s", **OPTIONS) as consumer:
        try:
            while True:
                consumer.negative_acknowledge(await consumer.receive(SILENT_S))
        except geminga.OperationTimeoutError:
            return


async def reconsume(client: Client, topic: str) -> None:
    async with await client.subscribe(topic, "s", retry_enabled=True, **OPTIONS) as consumer:
        try:
            while True:
                await consumer.reconsume_later(await consumer.receive(SILENT_S), 0.5)
        except geminga.OperationTimeoutError:
            return


def told(message: Message, topic: str) -> Mapping[str, object]:
    """What a letter tells, without what is of one topic or client alone."""

    def same(text: str) -> str:
        return re.sub(r"^\d+:\d+:", "ledger:entry:", text.replace(topic, "TOPIC"))

    return {
        "data": message.data,
        "properties": {key: same(value) for key, value in message.properties.items()},
        "key": message.partition_key_bytes,
        "base64": message.has_base64_key,
        "ordering_key": message.ordering_key,
        "event_time_ms": message.event_time_ms,
        "schema_version": message.schema_version,
        "producer": re.sub(r"-\w{5}-DLQ$", "-CHANCE-DLQ", same(message.producer_name)),
    }


@pytest.mark.java
@pytest.mark.slow
async def test_letters_are_like_javas(server: ServerProcess) -> None:
    topics = [topic_name(about) for about in ("java-dead", "java-retry", "our-dead", "our-retry")]
    await trio.to_thread.run_sync(run_java, server, topics)
    async with client_of(server) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refuse, client, topics[2])
            nursery.start_soon(reconsume, client, topics[3])
        letters: dict[tuple[str, str], Mapping[str, object]] = {}
        for topic in topics:
            kinds = ["DLQ", "RETRY"] if "retry" in topic else ["DLQ"]
            for kind in kinds:
                name = f"{topic}-s-{kind}"
                async with await client.create_reader(name, geminga.EARLIEST) as reader:
                    message = await reader.read_next(60)
                    assert not await reader.has_message_available()
                    letters[topic, kind] = told(message, topic)
            # The broker made the subscription when the topic was new: it has the letter.
            kept = await client.subscribe(f"{topic}-s-DLQ", "kept")
            assert (await kept.receive(60)).data == b"payload"
    dead, retried, ours_dead, ours_retried = topics
    assert letters[dead, "DLQ"]["base64"] is True
    assert letters[dead, "DLQ"]["schema_version"] == bytes(8)
    assert letters[ours_dead, "DLQ"] == letters[dead, "DLQ"]
    assert letters[ours_retried, "DLQ"] == letters[retried, "DLQ"]
    java, ours = dict(letters[retried, "RETRY"]), dict(letters[ours_retried, "RETRY"])
    # The broker makes the names of producers of retry letters up.
    assert "DLQ" not in f"{java.pop('producer')}{ours.pop('producer')}"
    assert ours == java
