"""The official Python and Java clients on each kind of cluster: brokers and bookies, ours and
Apache's, in each mixture.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pulsar
import pytest

from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.apache.jars import java_command
from compat_tests.missing import APACHE, skipped_without
from compat_tests.processes import ServerProcess

pytestmark = pytest.mark.java

SCENARIOS = (
    "exclusive",
    "shared",
    "key_shared",
    "batching",
    "batch_index_ack",
    "cumulative_ack",
    "properties_and_keys",
    "receipt_positions",
)
"""Of the Java program: those that go by what stands in ledgers."""
SETTINGS = {"acknowledgmentAtBatchIndexLevelEnabled": "true"}
MESSAGES = 300


class Kind(NamedTuple):
    """Whose broker, and how many of its four bookies are ours."""

    is_broker_ours: bool
    bookies_of_ours: int


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(Kind(True, 4), id="our-broker-our-bookies"),
        pytest.param(Kind(True, 0), id="our-broker-apaches-bookies"),
        pytest.param(Kind(True, 2), id="our-broker-both-kinds"),
        pytest.param(Kind(False, 4), id="apaches-broker-our-bookies"),
        pytest.param(Kind(False, 2), id="apaches-broker-both-kinds"),
    ],
)
def test_official_clients(tmp_path: Path, kind: Kind) -> None:
    with skipped_without(APACHE), running_cluster(tmp_path, 4, ours=kind.bookies_of_ours) as found:
        server = _start(found, kind)
        try:
            _python(found)
            found.bookies[-1].kill()
            failed = _java(server, SCENARIOS)
            if failed and not kind.is_broker_ours:
                # Apache's broker keeps an acknowledgement back while it replaces the dead bookie in
                # a cursor's ledger: who connects just then gets the messages once more.
                failed = _java(server, [*failed])
            assert failed == {}
        finally:
            server.stop()
        server = _start(found, kind)
        try:
            assert _read(found) == [*range(MESSAGES)]
        finally:
            server.stop()


def _start(cluster: Cluster, kind: Kind) -> ServerProcess:
    return (cluster.start_ours if kind.is_broker_ours else cluster.start_apache)(SETTINGS)


def _python(cluster: Cluster) -> None:
    """In batches; each message has its receipt."""
    failures: list[pulsar.Result] = []

    def done(result: pulsar.Result, _message_id: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            failures.append(result)

    with closing(pulsar.Client(cluster.url)) as client:
        producer = client.create_producer("python", batching_enabled=True)
        for number in range(MESSAGES):
            producer.send_async(b"%d" % number, done)
        producer.flush()
    assert failures == []


def _read(cluster: Cluster) -> list[int]:
    with closing(pulsar.Client(cluster.url)) as client:
        consumer = client.subscribe("python", "s", initial_position=pulsar.InitialPosition.Earliest)
        found = []
        for _ in range(MESSAGES):
            message = consumer.receive(timeout_millis=60_000)
            consumer.acknowledge(message)
            found.append(int(message.data()))
        return found


def _java(server: ServerProcess, scenarios: Sequence[str]) -> dict[str, str]:
    """What went wrong, by scenario; each has topics of its own."""
    command = java_command("Exerciser", [server.service_url, server.web_url, *scenarios])
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {each["name"] for each in lines} == {*scenarios}, done.stderr[-2000:]
    return {each["name"]: each["error"] for each in lines if each["error"]}
