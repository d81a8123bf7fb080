"""Streams when drivers, tasks and brokers die, topics are deleted and retention takes messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from compat_tests.processes import start_geminga
from compat_tests.spark.programs import run_program, start_program
from compat_tests.spark.stream_program import BATCH
from compat_tests.spark.streams import drain, numbers, running, texts, written
from compat_tests.spark.topics import SETTINGS, Pulsar, path

PROGRAM = "compat_tests.spark.stream_program"
EARLIEST = {"startingOffsets": "earliest"}
COUNT = 1000
RATE = 75
"""Messages a second of a task: with two tasks a micro-batch takes two seconds."""


def children(pid: int) -> dict[int, list[int]]:
    """The processes below one, each with those that it started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found: dict[int, list[int]] = {}
    left = [pid]
    while left:
        at = left.pop()
        found[at] = parents.get(at, [])
        left += found[at]
    return found


def workers_of(engine: int) -> list[int]:
    """The processes in which tasks run Python: started by Spark's daemon."""
    tree = children(engine)
    daemons = [pid for pid in tree[engine] if tree[pid]]
    return [pid for daemon in daemons for pid in tree[daemon]]


def start(pulsar: Pulsar, topic: str, folder: Path) -> tuple[subprocess.Popen[str], int]:
    """The program on its way, and Spark's engine."""
    process = start_program(PROGRAM, pulsar.url, topic, str(folder), str(RATE))
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1][-4000:]
    return process, json.loads(line)["engine"]


def wait_for(folder: Path, files: str, count: int, process: subprocess.Popen[str]) -> None:
    """Until the folder has so many such files. Raises AssertionError if they don't come."""
    until_s = time.monotonic() + 200
    while len(list(folder.glob(files))) < count:
        assert process.poll() is None, process.communicate()[1][-4000:]
        assert time.monotonic() < until_s, f"{files} do not come"
        # Spark tells nobody outside when it is done with one.
        time.sleep(0.05)


def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(
    spark: SparkSession, pulsar: Pulsar, tmp_path: Path
) -> None:
    topic = pulsar.topic("killed", partitions=2)
    pulsar.publish(topic, numbers(0, COUNT), per_batch=7)
    process, engine = start(pulsar, topic, tmp_path)
    try:
        wait_for(tmp_path, "checkpoint/commits/0", 1, process)
    finally:
        os.kill(engine, signal.SIGKILL)
        process.kill()
        process.communicate()
    assert BATCH <= len(written(spark, tmp_path)) < COUNT
    pulsar.publish(topic, numbers(COUNT, COUNT + 50), per_batch=7)
    run_program(PROGRAM, pulsar.url, topic, str(tmp_path), "0")
    assert written(spark, tmp_path) == texts(0, COUNT + 50)


def test_a_task_that_is_killed_in_the_middle_is_tried_again(
    spark: SparkSession, pulsar: Pulsar, tmp_path: Path
) -> None:
    # On a busy machine the kill may come between two tasks, when nothing is lost by it.
    assert any("Lost task" in killed_once(spark, pulsar, tmp_path / str(n)) for n in range(3))


def killed_once(spark: SparkSession, pulsar: Pulsar, folder: Path) -> str:
    """What the program says that loses all Python processes of its tasks once. It has to end well,
    with each message once.
    """
    folder.mkdir()
    topic = pulsar.topic("task", partitions=2)
    pulsar.publish(topic, numbers(0, COUNT), per_batch=7)
    process, engine = start(pulsar, topic, folder)
    try:
        # Those of the first micro-batch, and one that begins with the second's first rows.
        wait_for(folder, "out/*.parquet", 3, process)
        victims = workers_of(engine)
        for pid in victims:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        assert victims, "no task was running"
        _, said = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, said[-4000:]
    assert written(spark, folder) == texts(0, COUNT)
    return said


def test_a_broker_that_is_killed_and_started_again(spark: SparkSession, tmp_path: Path) -> None:
    server = start_geminga(tmp_path / "own", settings=SETTINGS)
    pulsar = Pulsar(server)
    topic = pulsar.topic("broker", partitions=2)
    try:
        pulsar.publish(topic, numbers(0, 100))
        frame = pulsar.read_stream(spark, topic, **EARLIEST, maxMessagesPerTrigger="60")
        with running(frame, tmp_path / "checkpoint") as seen:
            seen.wait_for(60)
            server.kill()
            server = start_geminga(
                tmp_path / "own",
                broker_port=server.address[1],
                web_port=int(server.web_url.rpartition(":")[2]),
                settings=SETTINGS,
            )
            pulsar.publish(topic, numbers(100, 200))
            assert seen.wait_for(200) == texts(0, 200)
    finally:
        pulsar.close()
        server.kill()


@pytest.mark.parametrize("fails", [True, False])
def test_retention_that_passes_the_offset(
    spark: SparkSession, pulsar: Pulsar, tmp_path: Path, fails: bool
) -> None:
    namespace = pulsar.namespace("short")
    none = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    pulsar.admin("POST", f"namespaces/{namespace}/retention", none)
    topic = pulsar.topic("short", namespace=namespace)
    pulsar.publish(topic, numbers(0, 5))
    options = {**EARLIEST, "anchor": "false", "failOnDataLoss": str(fails).lower()}
    frame = pulsar.read_stream(spark, topic, **options)
    drain(frame, tmp_path)
    pulsar.publish(topic, numbers(5, 10))
    # New ledgers, and the old ones, which nobody holds, are gone.
    for n in (10, 11):
        pulsar.unload(topic)
        pulsar.publish(topic, numbers(n, n + 1))
    if fails:
        with pytest.raises(StreamingQueryException, match=f"{topic}: messages from .* are gone"):
            drain(frame, tmp_path)
    else:
        drain(frame, tmp_path)
        found = written(spark, tmp_path)
        assert found[:5] == texts(0, 5)
        assert found[-1] == "11"
        assert len(found) < 12


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_deleted_under_the_query(
    spark: SparkSession, pulsar: Pulsar, tmp_path: Path, fails: bool
) -> None:
    kept, gone = pulsar.topic("kept"), pulsar.topic("gone")
    pulsar.publish(kept, numbers(0, 3))
    pulsar.publish(gone, numbers(3, 6))
    reader = spark.readStream.format("pulsar").option("service.url", pulsar.url)
    reader = reader.options(**EARLIEST, topics=f"{kept},{gone}")
    frame = reader.option("failOnDataLoss", str(fails).lower()).load()
    with running(frame, tmp_path) as seen:
        seen.wait_for(6)
        pulsar.admin("DELETE", path(gone) + "?force=true")
        pulsar.publish(kept, numbers(6, 9))
        if fails:
            assert seen.query is not None
            # It may go between two looks at it.
            why = f"{gone}: it (no longer exists|ends at -1:-1)"
            with pytest.raises(StreamingQueryException, match=why):
                seen.query.awaitTermination(200)
        else:
            assert seen.wait_for(9) == texts(0, 9)
