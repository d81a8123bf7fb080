"""Deduplication through kill -9: a producer that sends all again stores nothing twice."""

from __future__ import annotations

from pathlib import Path

import pulsar

from compat_tests.faults.conftest import TOPIC
from compat_tests.processes import start_geminga
from compat_tests.wire.raw import read_all

SETTINGS = {"brokerDeduplicationEnabled": "true", "brokerDeduplicationEntriesInterval": "50"}
LIVES = 3
MORE = 120


def test_what_is_sent_again_after_kills_is_stored_once(data_dir: Path) -> None:
    results: list[pulsar.Result] = []
    for life in range(LIVES):
        server = start_geminga(data_dir, settings=SETTINGS)
        client = pulsar.Client(
            server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        try:
            client.subscribe(TOPIC, "holder")  # keeps every message from being trimmed
            producer = client.create_producer(TOPIC, "same", batching_enabled=False)
            assert producer.last_sequence_id() == (life * MORE or -1)
            results.clear()
            for number in range(1, (life + 1) * MORE + 1):
                body = b"%d" % number
                producer.send_async(body, lambda r, _: results.append(r), sequence_id=number)
            producer.flush()
            assert set(results) == {pulsar.Result.Ok}
        finally:
            server.kill()
            client.shutdown()
    server = start_geminga(data_dir, settings=SETTINGS)
    try:
        found = read_all(server.address, TOPIC)
    finally:
        server.kill()
    assert [body for _, body in found] == [b"%d" % n for n in range(1, LIVES * MORE + 1)]
