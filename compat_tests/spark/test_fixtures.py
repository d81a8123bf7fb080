"""The fixtures themselves: Spark is ours and in UTC, the broker keeps batches as they were sent."""

from __future__ import annotations

import datetime
import logging
import sys

import pytest
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession, functions

from compat_tests.spark.topics import Pulsar


def test_spark_runs_this_python_in_utc(spark: SparkSession) -> None:
    executables = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert executables == [sys.executable]
    (row,) = spark.sql(
        "select timestamp'2026-01-02 03:04:05' as t, current_timezone() as z"
    ).collect()
    assert row.z == "UTC"
    assert row.t == datetime.datetime(2026, 1, 2, 3, 4, 5)
    assert spark.range(10).select(functions.sum("id")).collect()[0][0] == 45


def test_batches_are_as_asked(either: Pulsar) -> None:
    topic = either.topic("batches")
    ids = either.publish(topic, [b"%d" % n for n in range(7)], per_batch=3)
    assert [id_.batch_index for id_ in ids] == [0, 1, 2, 0, 1, 2, -1]
    single = either.publish(topic, [b"x"], each=lambda n: {"partition_key": "k"})
    either.unload(topic)
    last = either.publish(topic, [b"y"])
    assert single[0].batch_index == -1
    assert last[0].ledger_id > single[0].ledger_id
    found = either.messages(topic)
    assert [m.data for m in found] == [b"%d" % n for n in range(7)] + [b"x", b"y"]


def test_namespaces_and_partitions(pulsar: Pulsar) -> None:
    namespace = pulsar.namespace("fixtures", deduplication=True)
    topic = pulsar.topic("parts", partitions=3, namespace=namespace)
    pulsar.publish(topic, [b"a"] * 6, initial_sequence_id=0, producer_name="p")
    assert len(pulsar.client.list_partitions(topic)) == 3
    assert len(pulsar.messages(topic)) == 6


def test_an_error_of_spark_s_leaves_later_tests_their_log(
    spark: SparkSession, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    def later() -> None:
        """Runs after this test's call, with the handlers of its end."""
        logging.getLogger("tests").warning("said %d", 1)
        assert "said 1\n" in caplog.text
        assert "{" not in caplog.text

    request.addfinalizer(later)
    with pytest.raises(PySparkException):
        spark.sql("select nowhere").collect()
    loggers = logging.Logger.manager.loggerDict.values()
    assert any(isinstance(each, PySparkLogger) for each in loggers)
