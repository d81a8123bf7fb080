"""Writing when tasks, drivers and brokers fail: with deduplication each row is there once."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions

import geminga
import geminga.blocking
from compat_tests.processes import ServerProcess, start_geminga
from compat_tests.spark.programs import run_program, start_program
from compat_tests.spark.topics import SETTINGS, Pulsar
from compat_tests.spark.write_program import FILES, FILL, ROWS, ROWS_PER_FILE

PROGRAM = "compat_tests.spark.write_program"


def numbers(pulsar: Pulsar, topic: str) -> Counter[int]:
    """How often each row is in the topic."""
    return Counter(int(each.data.split()[0]) for each in pulsar.messages(topic))


@pytest.mark.parametrize("deduplication", ["true", "false"])
def test_a_task_that_fails_in_the_middle_is_tried_again(
    pulsar: Pulsar, tmp_path: Path, deduplication: str
) -> None:
    namespace = pulsar.namespace("retry", deduplication=True)
    topic = pulsar.topic("retry", partitions=2, namespace=namespace)
    run_program(PROGRAM, "retry", pulsar.url, topic, str(tmp_path), deduplication)
    found = numbers(pulsar, topic)
    assert sorted(found) == list(range(ROWS))
    twice = [number for number, count in found.items() if count > 1]
    assert bool(twice) is (deduplication == "false")


def test_a_stream_whose_driver_is_killed_goes_on_from_its_checkpoint(
    pulsar: Pulsar, tmp_path: Path
) -> None:
    namespace = pulsar.namespace("killed", deduplication=True)
    topic = pulsar.topic("killed", partitions=2, namespace=namespace)
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(FILES):
        rows = range(part * ROWS_PER_FILE, (part + 1) * ROWS_PER_FILE)
        (folder / f"{part}.txt").write_text("".join(f"{row} {FILL}\n" for row in rows))
    arguments = ("stream", pulsar.url, topic, str(tmp_path))
    process = start_program(PROGRAM, *arguments, "yes")
    try:
        wait_for(pulsar, topic, ROWS_PER_FILE + 500, process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    found = numbers(pulsar, topic)
    assert ROWS_PER_FILE < len(found) < 2 * ROWS_PER_FILE
    run_program(PROGRAM, *arguments, "no")
    assert numbers(pulsar, topic) == Counter(range(FILES * ROWS_PER_FILE))


def wait_for(pulsar: Pulsar, topic: str, messages: int, process: subprocess.Popen[str]) -> None:
    """Until the topic has so many messages. Raises AssertionError if the program ends before."""
    until_s = time.monotonic() + 200
    earliest = geminga.InitialPosition.EARLIEST
    with pulsar.client.subscribe(topic, "watch", initial_position=earliest) as consumer:
        while messages > 0:
            messages -= len(consumer.receive_batch(wait_s=1.0))
            assert process.poll() is None, process.communicate()[1][-4000:]
            assert time.monotonic() < until_s, f"{messages} messages are missing"


def test_a_broker_that_is_killed_in_the_middle_of_a_write(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "brokerDeduplicationEnabled": "true"}
    server = start_geminga(tmp_path / "own", settings=settings)
    pulsar = Pulsar(server)
    topic = pulsar.topic("killed", partitions=2)
    rows = 60_000
    frame = spark.range(0, rows, 1, 2).select(
        functions.concat_ws(" ", "id", functions.lit(FILL)).alias("value")
    )
    writer = frame.write.format("pulsar").mode("append").option("service.url", pulsar.url)
    # Small batches make it last.
    writer = writer.option("pulsar.producer.batchingMaxMessages", "5")
    writer = writer.option("topic", topic).option("deduplication", "true")

    def kill_and_start(watching: geminga.blocking.Consumer) -> ServerProcess:
        got = 0
        while got < 1000:
            got += len(watching.receive_batch(wait_s=60.0))
        server.kill()
        return start_geminga(
            tmp_path / "own",
            broker_port=server.address[1],
            web_port=int(server.web_url.rpartition(":")[2]),
            settings=settings,
        )

    # Spark finds sources in Python in the thread of the session only, so that is where it writes.
    # The new broker dies with the thread that started it, so that has to wait.
    with ThreadPoolExecutor(1) as threads:
        with pulsar.client.subscribe(topic, "watch") as watching:
            restarting = threads.submit(kill_and_start, watching)
            writer.save()
            assert restarting.done()
        assert numbers(pulsar, topic) == Counter(range(rows))
        pulsar.close()
        restarting.result().kill()


def test_a_quota_that_is_used_up_is_told(spark: SparkSession, pulsar: Pulsar) -> None:
    namespace = pulsar.namespace("full")
    quota = {"limitSize": 1000, "policy": "producer_exception"}
    pulsar.admin("POST", f"namespaces/{namespace}/backlogQuota", quota)
    topic = pulsar.topic("full", namespace=namespace)
    pulsar.client.subscribe(topic, "slow").close()
    pulsar.publish(topic, [bytes(5000)])
    frame = spark.sql("select x'00' as value")
    writer = frame.write.format("pulsar").mode("append").option("service.url", pulsar.url)
    with pytest.raises(PySparkException, match=f"topic {topic}: .*backlog quota of its namespace"):
        writer.option("topic", topic).save()
