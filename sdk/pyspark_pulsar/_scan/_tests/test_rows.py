"""Record batches of entries: bounded, decoded by version, whatever doesn't fit by its mode."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from geminga.schema import SchemaInfo, SchemaType
from pyspark_pulsar._decode._metadata import EntrySlice
from pyspark_pulsar._options import ParseMode, ReadOptions, parse_read
from pyspark_pulsar._scan._rows import Rows
from pyspark_pulsar._tests.entries import TOPIC, Entry
from pyspark_pulsar.errors import MalformedMessage

OPTIONS = parse_read({"service.url": "pulsar://localhost:6650", "topic": "t"}, streaming=False)


def info(*names: str) -> SchemaInfo:
    fields = [{"name": name, "type": ["null", "int"], "default": None} for name in names]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    return SchemaInfo("R", SchemaType.JSON, text.encode())


VERSIONS = {None: info("a", "b"), b"1": info("a"), b"2": info("a", "b")}


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


SCHEMA = columns(a=IntegerType(), __entryId=LongType(), b=IntegerType())


def read(
    entries: list[Entry], schema: StructType = SCHEMA, options: ReadOptions = OPTIONS
) -> list[pa.RecordBatch]:
    rows = Rows(schema, options, VERSIONS.get)
    found: list[pa.RecordBatch] = []
    for entry in entries:
        found += rows.add(EntrySlice(entry.received, 0, len(entry.indexes)))
    return found + list(rows.flush())


def lines(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def value(a: int) -> bytes:
    return json.dumps({"a": a, "b": -a}).encode()


def test_rows_are_in_order_with_the_columns_in_order() -> None:
    batch = Entry(1, 1, [value(1), value(2)], indexes=range(2))
    (made,) = read([Entry(1, 0, [value(0)]), batch])
    assert made.schema.names == ["a", "__entryId", "b"]
    assert lines([made]) == [
        {"a": 0, "__entryId": 0, "b": 0},
        {"a": 1, "__entryId": 1, "b": -1},
        {"a": 2, "__entryId": 1, "b": -2},
    ]


@settings(deadline=None)
@given(st.lists(st.sampled_from([None, b"1", b"2"]), min_size=1, max_size=12))
def test_versions_may_change_with_every_entry(versions: list[bytes | None]) -> None:
    entries = [
        Entry(1, n, [b'{"a":%d}' % n] * 2, indexes=range(2), version=version)
        for n, version in enumerate(versions)
    ]
    found = lines(read(entries))
    assert [row["a"] for row in found] == [n for n in range(len(versions)) for _ in range(2)]
    assert [row["__entryId"] for row in found] == [row["a"] for row in found]


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 7))
def test_no_batch_has_more_rows_than_allowed(sizes: list[int], rows_max: int) -> None:
    entries = [Entry(1, n, [value(n)] * size, indexes=range(size)) for n, size in enumerate(sizes)]
    made = read(entries, options=replace(OPTIONS, batch_rows_max=rows_max))
    assert all(1 <= each.num_rows <= rows_max for each in made)
    assert [row["a"] for row in lines(made)] == [n for n, s in enumerate(sizes) for _ in range(s)]
    assert len(made) == -(-sum(sizes) // rows_max)


def test_batches_are_bounded_by_bytes_but_have_a_row() -> None:
    large = [Entry(1, n, [b"x" * 700]) for n in range(4)] + [Entry(1, 9, [b"x" * 3000])]
    made = read(large, columns(__entryId=LongType()), replace(OPTIONS, batch_bytes_max=1500))
    assert [each.num_rows for each in made] == [2, 2, 1]


def test_payloads_are_not_decoded_for_metadata() -> None:
    entry = Entry(1, 0, [b"not json"])
    assert lines(read([entry], columns(__entryId=LongType()))) == [{"__entryId": 0}]
    assert entry.reads == 0


BAD = [Entry(1, 0, [value(0)]), Entry(1, 1, [b"{", value(2)], indexes=range(2))]


def test_fail_fast_names_the_message() -> None:
    with pytest.raises(MalformedMessage, match=f"1:1:0 of {TOPIC}"):
        read(BAD)


def test_permissive_gives_nulls_and_the_malformed_payload() -> None:
    options = replace(
        OPTIONS, parse_mode=ParseMode.PERMISSIVE, corrupt_record_column="_corrupt_record"
    )
    found = lines(read(BAD, columns(a=IntegerType(), _corrupt_record=StringType()), options))
    assert found == [
        {"a": 0, "_corrupt_record": None},
        {"a": None, "_corrupt_record": "{"},
        {"a": 2, "_corrupt_record": None},
    ]
    raw = lines(read(BAD, columns(a=IntegerType(), _corrupt_record=BinaryType()), options))
    assert raw[1] == {"a": None, "_corrupt_record": b"{"}


def test_drop_malformed_drops_rows() -> None:
    options = replace(OPTIONS, parse_mode=ParseMode.DROPMALFORMED)
    assert [row["a"] for row in lines(read(BAD, options=options))] == [0, 2]
    assert read([Entry(1, 0, [b"{"])], options=options) == []
