"""Pairs of keys and values, inline and separated."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.schema import Avro, Bytes, Int32, Json, KeyValue, KeyValueEncodingType, Schema, String
from pyspark_pulsar._decode._pairs import pair_info, split
from pyspark_pulsar._decode._readers import PairReader, fields_of
from pyspark_pulsar.errors import SchemaMismatch

INLINE, SEPARATED = KeyValueEncodingType


@dataclass
class Order:
    id: int
    name: str | None = None


ORDER = pa.struct([pa.field("id", pa.int64()), pa.field("name", pa.string())])


@pytest.mark.parametrize("half", [Avro(Order), Json(Order)])
@pytest.mark.parametrize("encoding", [INLINE, SEPARATED])
def test_records_are_structs(half: Schema[Order], encoding: KeyValueEncodingType) -> None:
    schema = KeyValue(String(), half, encoding)
    fields = fields_of(schema.info)
    assert fields == [pa.field("key", pa.string()), pa.field("value", ORDER)]
    outgoing = [schema._outgoing(("k", Order(1, "a"))), schema._outgoing(("l", Order(2)))]
    reader = PairReader(schema.info, fields, strict=True)
    assert reader.is_separated == (encoding is SEPARATED)
    found = reader.columns([each.data for each in outgoing], [each.key for each in outgoing])
    assert not found.notes
    assert [each.to_pylist() for each in found.arrays] == [
        ["k", "l"],
        [{"id": 1, "name": "a"}, {"id": 2, "name": None}],
    ]


def test_missing_halves_are_null() -> None:
    inline = KeyValue(Int32(), String(), INLINE)
    reader = PairReader(inline.info, fields_of(inline.info))
    payloads = [inline.encode((None, "v")), inline.encode((1, None)), None]
    found = reader.columns(payloads, None)
    assert [each.to_pylist() for each in found.arrays] == [[None, 1, None], ["v", None, None]]
    separated = KeyValue(Int32(), String(), SEPARATED)
    reader = PairReader(separated.info, fields_of(separated.info))
    found = reader.columns([None, b"v"], [b"\x00\x00\x00\x05", None])
    assert [each.to_pylist() for each in found.arrays] == [[5, None], [None, "v"]]
    assert not found.notes


def test_one_half_only() -> None:
    schema = KeyValue(Int32(), Avro(Order), INLINE)
    reader = PairReader(schema.info, [pa.field("value", pa.struct([pa.field("id", pa.int64())]))])
    # The key's bytes are no number, but the key isn't wanted.
    payload = KeyValue(Bytes(), Avro(Order), INLINE).encode((b"xyz", Order(7)))
    found = reader.columns([payload], None)
    assert not found.notes
    assert found.arrays[0].to_pylist() == [{"id": 7}]


def test_errors_name_the_half() -> None:
    schema = KeyValue(Int32(), String(), INLINE)
    reader = PairReader(schema.info, fields_of(schema.info))
    lying = b"\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00\x09v"
    wrong_key = b"\x00\x00\x00\x01\x01\x00\x00\x00\x01v"
    good = schema.encode((1, "v"))
    found = reader.columns([good, lying, wrong_key, good + b"x", b"", good], None)
    assert found.notes == {
        1: "the pair's value has 9 bytes by its size, but 1 are left",
        2: "key: INT32: 1 bytes instead of 4",
        3: "1 bytes follow the pair",
        4: "the pair ends before the size of its key",
    }
    assert [each.to_pylist()[::5] for each in found.arrays] == [[1, 1], ["v", "v"]]


@settings(deadline=None)
@given(st.binary(max_size=24))
def test_any_bytes_are_a_pair_or_malformed(data: bytes) -> None:
    try:
        key, value = split(data)
    except ValueError:
        return
    halves = [
        b"\xff\xff\xff\xff" if h is None else len(h).to_bytes(4, "big") + h for h in (key, value)
    ]
    assert b"".join(halves) == data


def test_other_columns_are_refused() -> None:
    info = KeyValue(Int32(), String()).info
    with pytest.raises(SchemaMismatch, match="id: the topic's values are pairs"):
        PairReader(info, [pa.field("id", pa.int64())])
    with pytest.raises(SchemaMismatch, match="key: INT32 can't be"):
        PairReader(info, [pa.field("key", pa.string())])


def test_invalid_pair_schemas() -> None:
    info = KeyValue(Int32(), String()).info
    for changed in (
        type(info)(info.name, info.type, b"\x00\x00", info.properties),
        type(info)(info.name, info.type, info.schema, {}),
    ):
        with pytest.raises(SchemaMismatch, match="the topic's key-value schema is invalid"):
            pair_info(changed)
