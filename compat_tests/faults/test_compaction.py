"""kill -9 while a topic is compacted again and again: the last value of each key is still read."""

from __future__ import annotations

import contextlib
import random
import threading
import urllib.error
import urllib.request

import pytest

import geminga
import geminga.blocking
from compat_tests.faults.conftest import TOPIC, Starter
from compat_tests.processes import ServerProcess
from geminga_protocol._tests.rounds import rounds

ROUNDS = rounds(12)
KEYS = 40


@pytest.mark.slow
def test_compacted_values_survive_kills(start: Starter) -> None:
    """Nothing but the compaction holds the log: what it passed is trimmed."""
    chance = random.Random(50)
    stored: dict[str, int] = {}
    sent = 0
    for _ in range(ROUNDS):
        server = start()
        _check(server, stored, sent)
        sent = _publish_until_killed(server, chance, stored, sent)
    _check(start(), stored, sent)


def _publish_until_killed(
    server: ServerProcess, chance: random.Random, stored: dict[str, int], sent: int
) -> int:
    """Rising numbers under keys, with compactions between them; answers the last number."""
    path = TOPIC.replace("://", "/") + "/compaction"
    url = f"{server.web_url}/admin/v2/{path}"
    killer = threading.Timer(chance.uniform(0.05, 0.8), server.kill)
    with geminga.blocking.connect(server.service_url, operation_timeout_s=30) as client:
        producer = client.create_producer(TOPIC, send_timeout_s=1, batching_max_publish_delay_s=0)
        killer.start()
        with contextlib.suppress(geminga.GemingaError, OSError):
            while True:
                for _ in range(25):
                    sent += 1
                    key = f"k{chance.randrange(KEYS)}"
                    producer.send(b"%d" % sent, partition_key=key)
                    stored[key] = sent
                try:
                    urllib.request.urlopen(urllib.request.Request(url, method="PUT")).close()
                except urllib.error.HTTPError as still_running:
                    still_running.close()
    killer.join()
    return sent


def _check(server: ServerProcess, stored: dict[str, int], sent: int) -> None:
    """Of each key at least what was confirmed is read, and nothing that was not sent."""
    if not stored:
        return
    with geminga.blocking.connect(server.service_url) as client:
        reader = client.create_reader(TOPIC, geminga.EARLIEST, read_compacted=True)
        found: dict[str, int] = {}
        while reader.has_message_available():
            message = reader.read_next(timeout_s=30)
            assert message.partition_key is not None
            number = int(message.data)
            assert number > found.get(message.partition_key, 0)
            found[message.partition_key] = number
    assert all(found.get(key, 0) >= number for key, number in stored.items())
    assert max(found.values()) <= sent
