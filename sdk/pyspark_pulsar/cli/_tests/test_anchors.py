"""`geminga spark-anchor`: subscriptions of streams that ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyspark_pulsar._tests.broker import KEEPING
from pyspark_pulsar._tests.streaming import Broker, Query, full, numbers, started
from pyspark_pulsar.cli import spark_anchor


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with started(KEEPING) as found:
        yield found


def checkpoint(folder: Path, *sources: object) -> str:
    """A checkpoint in Spark's form; an older file has other contents."""
    offsets = folder / "offsets"
    offsets.mkdir()
    (offsets / "9").write_text("v1\n{}\n" + json.dumps({"old": "1:1"}))
    lines = ["v1", json.dumps({"batchWatermarkMs": 0}), *map(json.dumps, sources)]
    (offsets / "10").write_text("\n".join(lines))
    (offsets / ".10.crc").write_bytes(b"x")
    return str(folder)


def run(broker: Broker, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(spark_anchor, ["--service-url", broker.url, *arguments])
    return done.exit_code, done.output


def test_a_stream_that_ended(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic("gone", partitions=2)
    broker.send(topic, *numbers(0, 10))
    query = Query(broker.options(topic))
    query.rest()
    name = query.at["subscription"]
    parts = [f"{topic}-partition-{n}" for n in range(2)]
    folder = checkpoint(tmp_path, {"logOffset": 5}, query.at)
    code, told = run(broker, folder)
    assert (code, told) == (0, "".join(f"{full(part)} {name}\n" for part in parts))
    assert all(name in broker.cursors(part) for part in parts)
    broker.ask("DELETE", f"{parts[1]}?force=true")
    code, told = run(broker, folder, "--remove")
    assert code == 0, told
    assert told.endswith("deleted\n")
    assert broker.cursors(parts[0]) == {}


def test_a_stream_with_a_named_subscription(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic("named")
    broker.send(topic, *numbers(0, 3))
    query = Query(broker.options(topic, subscriptionName="mine"))
    query.rest()
    folder = checkpoint(tmp_path, query.at)
    code, told = run(broker, folder)
    assert code == 2
    assert "--subscription" in told
    code, told = run(broker, folder, "-s", "mine", "--remove")
    assert code == 0, told
    assert broker.cursors(topic) == {}
    broker.client.subscribe(topic, "mine").close()
    assert run(broker, "-s", "mine", "-t", topic, "--remove")[0] == 0
    assert broker.cursors(topic) == {}


def test_a_subscription_in_use_stays(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_pulsar._stream._retention.BUSY_S", 0.0)
    topic = broker.topic("used")
    with broker.client.subscribe(topic, "mine"):
        code, told = run(broker, "-s", "mine", "-t", topic, "--remove")
        assert code == 1
        assert f"not deleted: {full(topic)}: " in told
        assert "mine" in broker.cursors(topic)


def test_invalid_checkpoints(broker: Broker, tmp_path: Path) -> None:
    code, told = run(broker, str(tmp_path))
    assert code == 1
    assert "has no offsets: is" in told
    assert run(broker)[0] == 2
    assert run(broker, "-t", "x")[0] == 2
    assert run(broker, "-s", "x", "-t", "x", "-o", "no.such=1")[0] == 2
