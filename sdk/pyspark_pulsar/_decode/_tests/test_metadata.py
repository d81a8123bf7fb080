"""Metadata columns against each message's values."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from geminga import MessageId
from pyspark_pulsar._decode._metadata import (
    METADATA,
    EntrySlice,
    EntrySlices,
    arrow_schema,
    check_columns,
    default_fields,
    is_metadata,
)
from pyspark_pulsar._tests.entries import TOPIC, Entry
from pyspark_pulsar.errors import SchemaMismatch

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def column(name: str, *slices: tuple[Entry, int, int]) -> list[object]:
    made = METADATA[name].make(EntrySlices([EntrySlice(e.received, a, b) for e, a, b in slices]))
    assert made.type == METADATA[name].arrow
    found: list[object] = made.to_pylist()
    return found


SINGLE = Entry(1, 2)
BATCH = Entry(3, 4, [b"a", b"b", b"c"], indexes=[0, 2, 300], message_count=301, version=b"\x01")


def test_arrow_types_are_those_expected_by_spark() -> None:
    schema = arrow_schema(StructType([each.field for each in METADATA.values()]))
    assert list(schema.types) == [each.arrow for each in METADATA.values()]


def test_values_of_an_entry_are_repeated_for_its_messages() -> None:
    rows = (SINGLE, 0, 1), (BATCH, 1, 3)
    assert column("__topic", *rows) == [TOPIC] * 3
    assert column("__ledgerId", *rows) == [1, 3, 3]
    assert column("__entryId", *rows) == [2, 4, 4]
    assert column("__batchIndex", *rows) == [-1, 2, 300]
    assert column("__partition", *rows) == [2] * 3
    assert column("__producerName", *rows) == ["producer-1", "producer-3", "producer-3"]
    assert column("__schemaVersion", *rows) == [None, b"\x01", b"\x01"]
    assert column("__sequenceId", *rows) == [7, 9, 307]
    when = EPOCH + datetime.timedelta(milliseconds=1_700_000_000_123)
    assert column("__publishTime", *rows) == [when] * 3


def test_values_of_messages_are_sliced_with_them() -> None:
    entry = Entry(
        1,
        0,
        [b""] * 4,
        indexes=range(4),
        properties=[{}, {"a": "1", "b": "2"}, {}, {"c": "3"}],
        event_times=[None, 1500, None, None],
        keys=["k", None, "l", "m"],
    )
    assert column("__messageProperties", (entry, 1, 4)) == [
        [("a", "1"), ("b", "2")], [], [("c", "3")]
    ]  # fmt: skip
    assert column("__eventTime", (entry, 0, 2)) == [
        None, EPOCH + datetime.timedelta(milliseconds=1500)
    ]  # fmt: skip
    assert column("__key", (entry, 1, 3)) == [None, "l"]
    assert column("__keyBytes", (entry, 2, 4)) == [b"l", b"m"]
    assert column("__messageProperties", (SINGLE, 0, 1)) == [[]]


indexes = st.lists(st.integers(0, 40_000), min_size=1, max_size=5, unique=True).map(sorted)
entries = st.lists(
    st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 62), st.none() | indexes, st.booleans()),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)
@given(entries)
@pytest.mark.slow
def test_ids_equal_the_messages_ids(
    shapes: list[tuple[int, int, list[int] | None, bool]],
) -> None:
    made = [
        Entry(
            ledger,
            entry,
            [b""] * len(of_batch or [0]),
            indexes=of_batch,
            message_count=None if of_batch is None else of_batch[-1] + 1,
            first_chunk=MessageId(1, 2, 2) if in_chunks and of_batch is None else None,
        )
        for ledger, entry, of_batch, in_chunks in shapes
    ]
    rows = [(each, 0, len(each.indexes)) for each in made]
    ids = [one for each in made for one in each.message_ids()]
    assert column("__messageIdBytes", *rows) == [each.serialize() for each in ids]
    texts = []
    for one in ids:
        tail = f":{one.batch_index}" if one.batch_index >= 0 else ""
        texts.append(f"{one.ledger_id}:{one.entry_id}{tail}")
    assert column("__messageId", *rows) == texts


def test_numbers_beyond_their_columns_are_bounded() -> None:
    wild = Entry(1, 0, event_times=[(1 << 64) - 1], publish_time_ms=1 << 62)
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=datetime.UTC)
    assert column("__eventTime", (wild, 0, 1)) == [last]
    assert column("__publishTime", (wild, 0, 1)) == [last]
    wild.sequence_ids = lambda: [(1 << 64) - 1]
    assert column("__sequenceId", (wild, 0, 1)) == [-1]


def test_the_default_columns_are_those_of_the_specification() -> None:
    assert [each.name for each in default_fields()] == [
        "__key", "__topic", "__partition", "__messageId", "__publishTime", "__eventTime",
        "__messageProperties", "__orderingKey", "__sequenceId", "__producerName",
        "__redeliveryCount",
    ]  # fmt: skip
    names = [each.name for each in default_fields(include_properties=False)]
    assert "__messageProperties" not in names
    assert is_metadata("__entryId")
    assert not is_metadata("value")


def test_a_column_of_another_type_is_refused() -> None:
    check_columns(StructType([StructField("__partition", IntegerType()), *default_fields()]))
    with pytest.raises(SchemaMismatch, match="__partition: is of type int, not bigint"):
        check_columns(StructType([StructField("__partition", LongType())]))
    with pytest.raises(SchemaMismatch, match="__key: may be null"):
        check_columns(StructType([StructField("__key", StringType(), nullable=False)]))


def test_no_rows() -> None:
    assert pa.array([], pa.int32()) == METADATA["__batchIndex"].make(EntrySlices([]))
