"""Writers, as far as they need no Spark."""

from __future__ import annotations

import datetime
import pickle

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSourceStreamWriter

from pyspark_pulsar._encode import Encoder, frame_of
from pyspark_pulsar._encode._tests.frames import struct
from pyspark_pulsar._options._write_options import WriteOptions, parse_write
from pyspark_pulsar._spark_api import DataSourceStreamArrowWriter
from pyspark_pulsar._write import _writer, make_stream_writer, make_writer
from pyspark_pulsar._write._writer import ROWS_MAX, batches_of
from pyspark_pulsar.errors import InvalidOption, SchemaMismatch

URL = {"service.url": "pulsar://localhost", "topic": "t"}


def options(**given: str) -> WriteOptions:
    return parse_write({**URL, **given}, streaming=True)


def test_a_topics_messages_cannot_be_replaced() -> None:
    with pytest.raises(InvalidOption, match="mode: must be append"):
        make_writer(struct("value string"), options(), overwrite=True)
    with pytest.raises(InvalidOption, match="outputMode: must be append or update"):
        make_stream_writer(struct("value string"), options(), overwrite=True)


def test_a_stream_is_planned_without_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = make_stream_writer(struct("value string"), options(), overwrite=False)
    takes_rows = isinstance(writer, _writer.PulsarRowStreamWriter)
    assert takes_rows is (DataSourceStreamArrowWriter is None)
    assert isinstance(pickle.loads(pickle.dumps(writer)), type(writer))
    with pytest.raises(SchemaMismatch, match="column a"):
        make_stream_writer(struct("a interval day to second, b int"), options(), overwrite=False)
    with pytest.raises(InvalidOption, match="schemaType: is topic, which needs the option topic"):
        given = parse_write(
            {"service.url": "pulsar://localhost", "schemaType": "topic"}, streaming=True
        )
        make_stream_writer(struct("value string, __topic string"), given, overwrite=False)
    monkeypatch.setattr(_writer, "DataSourceStreamArrowWriter", None)
    old = make_stream_writer(struct("value string"), options(), overwrite=False)
    assert isinstance(old, DataSourceStreamWriter)
    assert isinstance(old, _writer.PulsarRowStreamWriter)


def test_rows_equal_arrow_batches() -> None:
    schema = struct("a timestamp, b map<string,int>, c struct<d: array<string>>, e decimal(5,2)")
    naive = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
    row = t.Row(a=naive, b={"x": 1, "y": None}, c=t.Row(d=["p", None]), e=None)
    count = ROWS_MAX + 5
    found = list(batches_of(schema, [row] * count))
    assert [each.num_rows for each in found] == [ROWS_MAX, 5]
    frame = frame_of(schema, options(schemaType="json"))
    payload = Encoder(frame).encode(found[1]).payloads[0]
    micros = int(naive.astimezone(datetime.UTC).timestamp() * 1_000_000)
    rest = ',"b":{"x":1,"y":null},"c":{"d":["p",null]},"e":null}'
    assert payload == f'{{"a":{micros}{rest}'.encode()
    assert isinstance(found[0], pa.RecordBatch)
