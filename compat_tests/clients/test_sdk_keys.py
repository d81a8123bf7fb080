"""Keys given as bytes: the same partition, the same bytes, as with the Java client."""

from __future__ import annotations

import subprocess

import pytest
import trio

import geminga
from compat_tests.apache import jars
from compat_tests.clients.conftest import Peer
from compat_tests.missing import JAVA_CLIENT, skipped_without
from geminga import InitialPosition

KEYS = [bytes([n, 255 - n, n * n % 251, 128]) for n in range(12)]


def run_java(peer: Peer, to_read: str, to_write: str) -> list[list[str]]:
    """What the Java client says of our messages."""
    keys = [key.hex() for key in KEYS]
    with skipped_without(JAVA_CLIENT):
        command = jars.java_command("Keys", [peer.server.service_url, to_read, to_write, *keys])
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert "done" in done.stdout, done.stderr[-2000:]
    return [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("got ")]


@pytest.mark.java
@pytest.mark.slow
async def test_keys_of_bytes_are_like_javas(peer: Peer) -> None:
    topics = [peer.topic("our-keys"), peer.topic("java-keys")]
    for topic in topics:
        path = topic.replace("://", "/") + "/partitions"
        await trio.to_thread.run_sync(peer.admin, "PUT", path, 4)
    async with geminga.connect(peer.server.service_url) as ours:
        async with await ours.create_producer(topics[0]) as producer:
            for key in KEYS:
                await producer.send(key, partition_key=key)
        told = await trio.to_thread.run_sync(run_java, peer, *topics)
        consumer = await ours.subscribe(topics[1], "s", initial_position=InitialPosition.EARLIEST)
        seen = []
        for _ in KEYS:
            message = await consumer.receive(60)
            assert message.partition_key_bytes == message.data
            partition = message.message_id.partition
            seen.append([str(partition), message.data.hex(), str(message.has_base64_key).lower()])
        assert sorted(seen) == sorted(told)
        assert {partition for partition, _, _ in seen} == {"0", "1", "2", "3"}
        assert {key for _, key, _ in seen} == {key.hex() for key in KEYS}
