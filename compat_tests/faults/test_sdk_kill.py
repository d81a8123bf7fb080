"""kill -9 of the broker and cut connections under producers of our SDK: nothing that was handed
over is lost, the order of each key is kept, and with deduplication nothing is there twice.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import geminga
import geminga.blocking
from compat_tests.faults.conftest import TOPIC
from compat_tests.processes import ServerProcess, free_port, start_geminga
from geminga import EARLIEST, BatchingType, CompressionType
from geminga_protocol._tests.rounds import rounds

KILLS = rounds(4)
KEYS = 5
PRODUCERS: dict[str, dict[str, Any]] = {
    "batched": {"compression_type": CompressionType.LZ4},
    "by-key": {"batching_type": BatchingType.KEY_BASED, "batching_max_publish_delay_s": 0.01},
    "unbatched": {"batching_enabled": False},
    "chunked": {
        "batching_enabled": False,
        "chunking_enabled": True,
        "chunk_max_message_size_bytes": 200,
    },
}
CLIENT: dict[str, Any] = {"initial_backoff_s": 0.02, "max_backoff_s": 0.2}


class Mortal:
    """A server on one port that is killed and started again."""

    def __init__(self, data_dir: Path, deduplicates: bool) -> None:
        self._data_dir = data_dir
        self._port = free_port()
        self._settings = {
            "brokerDeduplicationEnabled": str(deduplicates).lower(),
            "brokerDeduplicationEntriesInterval": "100",
        }
        self._running: ServerProcess | None = None
        self.url = f"pulsar://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Until it serves."""
        self._running = start_geminga(
            self._data_dir, broker_port=self._port, settings=self._settings
        )

    def kill(self) -> None:
        """kill -9."""
        if self._running is not None:
            self._running.kill()
            self._running = None


@contextlib.contextmanager
def mortal(data_dir: Path, deduplicates: bool = True) -> Iterator[Mortal]:
    """A running one, dead at the end."""
    server = Mortal(data_dir, deduplicates)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def payload(name: str, number: int) -> bytes:
    """Of several chunks for the one that cuts."""
    return f"{name}:{number}:".encode() + (b"x" * 500 if name == "chunked" else b"")


async def read_all(url: str) -> dict[str, list[int]]:
    """By producer the numbers of all messages of the topic, in its order."""
    found: dict[str, list[int]] = {name: [] for name in PRODUCERS}
    async with geminga.connect(url) as client:
        reader = await client.create_reader(TOPIC, EARLIEST)
        while await reader.has_message_available():
            name, number, _ = (await reader.read_next(60)).data.split(b":")
            found[name.decode()].append(int(number))
    return found


def check(found: list[int], count: int, *, once: bool) -> None:
    """All are there; those of each key in order, the first of each number counts."""
    assert set(found) == set(range(count)), "a message is lost"
    assert not once or len(found) == count, "a message is there twice"
    firsts = list(dict.fromkeys(found))
    for key in range(KEYS):
        of_key = [number for number in firsts if number % KEYS == key]
        assert of_key == sorted(of_key), f"key {key} is out of order"


@pytest.mark.slow
@pytest.mark.parametrize("deduplicates", [True, False])
async def test_killed_under_the_trio_face(data_dir: Path, deduplicates: bool) -> None:
    chance = random.Random(5)
    counts: dict[str, int] = {}
    over = False

    async def produce(client: geminga.Client, name: str) -> None:
        producer = await client.create_producer(
            TOPIC, producer_name=name, send_timeout_s=0, **PRODUCERS[name]
        )
        receipts: list[geminga.Receipt] = []
        while not over:
            for number in range(len(receipts), len(receipts) + 8):
                data, key = payload(name, number), f"k{number % KEYS}"
                receipts.append(await producer.submit(data, partition_key=key))
            await trio.sleep(0.01)
        await producer.flush()
        assert all(each.is_done and each.error is None for each in receipts)
        assert producer.pending_messages == 0
        counts[name] = len(receipts)

    with mortal(data_dir, deduplicates) as server:
        async with geminga.connect(server.url, **CLIENT) as client:
            await (await client.subscribe(TOPIC, "holder")).aclose()
            async with trio.open_nursery() as nursery:
                for name in PRODUCERS:
                    nursery.start_soon(produce, client, name)
                for _ in range(KILLS):
                    await trio.sleep(0.2 + chance.random() * 0.3)
                    client._core.pool.drop_all("cut by the test")
                    await trio.sleep(0.2 + chance.random() * 0.3)
                    await trio.to_thread.run_sync(server.kill)
                    await trio.to_thread.run_sync(server.start)
                await trio.sleep(0.3)
                over = True
        found = await read_all(server.url)
    for name, count in counts.items():
        check(found[name], count, once=deduplicates)


@pytest.mark.slow
def test_killed_under_the_blocking_face(data_dir: Path) -> None:
    chance = random.Random(6)
    counts: dict[str, int] = {}
    over = False

    def produce(client: geminga.blocking.Client, name: str) -> None:
        """Half of them pipelined, every hundredth waits for its receipt."""
        producer = client.create_producer(
            TOPIC, producer_name=name, send_timeout_s=0, **PRODUCERS[name]
        )
        number = 0
        while not over:
            for _ in range(8):
                key = f"k{number % KEYS}"
                if number % 100:
                    producer.submit(payload(name, number), partition_key=key)
                else:
                    producer.send(payload(name, number), partition_key=key)
                number += 1
            time.sleep(0.01)
        producer.flush()
        assert producer.pending_messages == 0
        assert producer.statistics().total_send_failed == 0
        counts[name] = number

    with mortal(data_dir) as server:
        with geminga.blocking.connect(server.url, **CLIENT) as client:
            client.subscribe(TOPIC, "holder").close()
            threads = [threading.Thread(target=produce, args=(client, name)) for name in PRODUCERS]
            for thread in threads:
                thread.start()
            for _ in range(KILLS):
                time.sleep(0.3 + chance.random() * 0.5)
                server.kill()
                server.start()
            time.sleep(0.3)
            over = True
            for thread in threads:
                thread.join()
        found = trio.run(read_all, server.url)
    assert counts.keys() == PRODUCERS.keys()
    for name, count in counts.items():
        check(found[name], count, once=True)
