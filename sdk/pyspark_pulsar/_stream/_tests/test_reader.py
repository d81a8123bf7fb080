"""The stream reader's face to Spark, of 4.0 to 4.3."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest
from pyspark.cloudpickle import cloudpickle
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_pulsar import _spark_api
from pyspark_pulsar._options import parse_read
from pyspark_pulsar._positions import BEGIN, Position, TopicRange
from pyspark_pulsar._spark_api import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark_pulsar._stream import _reader
from pyspark_pulsar._stream._offsets import Offsets
from pyspark_pulsar._stream._reader import PulsarStreamReader

SCHEMA = StructType([StructField("__messageId", StringType())])
TOPIC = "persistent://public/default/t"
BEGAN, END = Offsets({TOPIC: BEGIN}, "s"), Offsets({TOPIC: Position(1, 2)}, "s")


class Planner:
    """Records its calls."""

    told: dict[str, object] | None = None

    def __init__(self) -> None:
        self.asked: list[object] = []

    def report(self) -> dict[str, object] | None:
        return self.told

    def close(self) -> None:
        self.asked.append("close")

    def latest(self, start: Offsets | None, *, limited: bool) -> Offsets:
        self.asked.append((start, limited))
        return END

    def ranges(self, start: Offsets, end: Offsets) -> list[TopicRange]:
        self.asked.append((start, end))
        return [TopicRange(TOPIC, -1, BEGIN, Position(1, 2))]

    def committed(self, end: Offsets) -> None:
        self.asked.append(end)


def reader_of(**options: str) -> PulsarStreamReader:
    given = {"service.url": "pulsar://localhost:1", "topic": "t", **options}
    return PulsarStreamReader(parse_read(given, streaming=True), SCHEMA)


@pytest.fixture
def planned() -> tuple[PulsarStreamReader, Planner]:
    reader, planner = reader_of(), Planner()
    reader._planner = planner
    return reader, planner


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxMessagesPerTrigger": "7", "maxBytesPerTrigger": "9"}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": "9", "minMessagesPerTrigger": "2"}, ReadMaxBytes(9)),
        ({"minOffsetsPerTrigger": "2"}, ReadMinRows(2)),
    ],
)
def test_spark_gets_one_limit(options: dict[str, str], limit: object) -> None:
    assert reader_of(**options).getDefaultReadLimit() == limit


def test_limits_apply_unless_a_trigger_reads_all(
    planned: tuple[PulsarStreamReader, Planner],
) -> None:
    reader, planner = planned
    assert isinstance(reader, SupportsTriggerAvailableNow)
    assert reader.latestOffset() == END.as_json()
    reader.latestOffset(BEGAN.as_json(), ReadMaxRows(3))
    reader.latestOffset(BEGAN.as_json(), ReadAllAvailable())
    assert planner.asked == [(None, True), (BEGAN, True), (BEGAN, False)]


@pytest.mark.parametrize(
    "limits", [{}, {"maxMessagesPerTrigger": "7"}, {"maxBytesPerTrigger": "1k"}]
)
def test_one_micro_batch_is_warned_about(
    limits: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where available-now ends at the limits."""
    for has_limits in (True, False):
        monkeypatch.setattr(_reader, "HAS_READ_LIMITS", has_limits)
        caplog.clear()
        assert reader_of(**limits)._planning is not None
        told = [each for each in caplog.messages if "ends after one micro-batch" in each]
        assert len(told) == (1 if limits and not has_limits else 0)


def test_micro_batches_pass_as_offsets(planned: tuple[PulsarStreamReader, Planner]) -> None:
    reader, planner = planned
    (part,) = reader.partitions(BEGAN.as_json(), END.as_json())
    reader.commit(END.as_json())
    assert part.value == TopicRange(TOPIC, -1, BEGIN, Position(1, 2))
    assert planner.asked == [(BEGAN, END), END]
    assert reader.reportLatestOffset() is None
    planner.told = {TOPIC: "4:5", "lag": {"topics": 1, "entries": 5}}
    assert reader.reportLatestOffset() == planner.told
    reader.stop()
    assert planner.asked[-1] == "close"
    reader_of().stop()


def test_tasks_get_a_copy_that_does_not_connect() -> None:
    copy = cloudpickle.loads(cloudpickle.dumps(reader_of(maxMessagesPerTrigger="7")))
    assert copy.getDefaultReadLimit() == ReadMaxRows(7)
    assert copy._planner is None


def test_an_older_spark_has_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    assert _spark_api.__file__ is not None
    spec = importlib.util.spec_from_file_location("older", _spark_api.__file__)
    assert spec is not None
    assert spec.loader is not None
    older: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "older", older)
    spec.loader.exec_module(older)
    assert older.SupportsTriggerAvailableNow is object
    assert isinstance(older.ReadMaxRows(7), older.ReadLimit)
    assert not isinstance(older.ReadMaxRows(7), older.ReadAllAvailable)
