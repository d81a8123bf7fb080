"""The decoder: modes, nulls, versions, NOT NULL."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from geminga.schema import Avro, Int32, Json, KeyValue, KeyValueEncodingType, SchemaInfo, String
from pyspark_pulsar._decode import Decoder, _decoder, check_columns, columns_of
from pyspark_pulsar._decode._decoder import VERSIONS_KEPT_MAX
from pyspark_pulsar._options import ParseMode
from pyspark_pulsar.errors import MalformedMessage, SchemaMismatch

MANY = 60
FAILFAST, PERMISSIVE, DROPMALFORMED = ParseMode


def record(*fields: tuple[str, Any] | tuple[str, Any, Any]) -> str:
    made = [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields]
    return json.dumps({"type": "record", "name": "R", "fields": made})


PLAIN = Avro(record(("id", "long"), ("name", ["null", "string"])))


def decoder_of(info: SchemaInfo | None, mode: ParseMode = FAILFAST) -> Decoder:
    return Decoder([each.arrow for each in columns_of(info)], lambda version: info, mode)


def rows(decoder: Decoder, payloads: list[bytes], version: bytes | None = None) -> list[list[Any]]:
    found = decoder.decode(payloads, [False] * len(payloads), None, version)
    assert not found.malformed
    return [each.to_pylist() for each in found.columns]


@pytest.mark.parametrize("count", [1, MANY])
def test_modes(count: int) -> None:
    good = [PLAIN.encode({"id": n, "name": str(n)}) for n in range(count)]
    payloads = [*good, b"\x02", *good]
    nulls = [False] * len(payloads)
    with pytest.raises(MalformedMessage) as raised:
        decoder_of(PLAIN.info).decode(payloads, nulls, None, None)
    assert raised.value.row == count
    for mode in (PERMISSIVE, DROPMALFORMED):
        found = decoder_of(PLAIN.info, mode).decode(payloads, nulls, None, None)
        assert found.malformed == [count]
        assert found.reasons[count]
        ids = list(range(count))
        assert found.columns[0].to_pylist() == [*ids, None, *ids]
        assert found.columns[1].to_pylist()[count] is None


def test_only_a_null_without_payload_is_null() -> None:
    good = PLAIN.encode({"id": 1, "name": None})
    found = decoder_of(PLAIN.info).decode([b"", good, good], [True, False, True], None, None)
    assert found.columns[0].to_pylist() == [None, 1, 1]
    assert not found.malformed
    with pytest.raises(MalformedMessage):
        decoder_of(PLAIN.info).decode([b""], [False], None, None)
    assert rows(decoder_of(None), [b"", b"x"]) == [[b"", b"x"]]
    assert decoder_of(None).decode([b""], [True], None, None).columns[0].to_pylist() == [None]


def versions(*schemas: Any) -> dict[bytes | None, SchemaInfo]:
    made: dict[bytes | None, SchemaInfo] = {
        bytes([number]): each.info for number, each in enumerate(schemas)
    }
    made[None] = schemas[-1].info
    return made


@pytest.mark.parametrize("kind", [Avro, Json])
@pytest.mark.parametrize("count", [1, MANY])
def test_older_versions_have_nulls_and_defaults(kind: Any, count: int) -> None:
    old = kind(record(("id", "int"), ("gone", "string")))
    new = kind(
        record(
            ("name", ["null", "string"], None),
            ("id", "long"),
            ("tags", {"type": "array", "items": "string"}, ["a"]),
            ("at", {"type": "long", "logicalType": "timestamp-millis"}, 0),
            ("data", "bytes", "\u00ff"),
        )
    )
    known = versions(old, new)
    wanted = [each.arrow for each in columns_of(new.info)]
    decoder = Decoder(wanted, known.__getitem__, FAILFAST)
    payloads = [old.encode({"id": 5, "gone": "x"})] * count
    found = decoder.decode(payloads, [False] * count, None, b"\x00")
    assert [each.type for each in found.columns] == [each.type for each in wanted]
    names, ids, tags, times, data = (each.to_pylist() for each in found.columns)
    assert (names, ids, tags) == ([None] * count, [5] * count, [["a"]] * count)
    assert times[0].year == 1970
    assert data == [b"\xff"] * count


def test_aliases_and_removed_fields() -> None:
    old = Avro(record(("a", "long"), ("gone", "string")))
    text = json.loads(record(("b", "long")))
    text["fields"][0]["aliases"] = ["a"]
    new = Avro(json.dumps(text))
    wanted = [pa.field("b", pa.int64()), pa.field("GONE", pa.string())]
    decoder = Decoder(wanted, versions(old, new).__getitem__, FAILFAST)
    payload = old.encode({"a": 1, "gone": "x"})
    assert rows(decoder, [payload], b"\x00") == [[1], ["x"]]
    assert rows(decoder, [new.encode({"b": 2})]) == [[2], [None]]


def test_nested_records_and_unions_change() -> None:
    inner_old = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    inner_new = {"type": "record", "name": "J", "fields": [
        {"name": "y", "type": "string", "default": "d"}, {"name": "x", "type": "long"},
    ]}  # fmt: skip
    old = Avro(record(("i", inner_old), ("u", "int"), ("w", ["int", "string"])))
    several = ["string", "null", "bytes", "int"]
    new = Avro(record(("i", ["null", inner_new]), ("u", ["string", "long"]), ("w", several)))
    decoder = Decoder(
        [each.arrow for each in columns_of(new.info)], versions(old, new).__getitem__, FAILFAST
    )
    some = [{"i": {"x": 1}, "u": 2, "w": 3}, {"i": {"x": 4}, "u": 5, "w": "s"}]
    payloads = [old.encode(each) for each in some]
    nothing = dict.fromkeys(("member0", "member1", "member2"))
    wanted: list[list[Any]] = [
        [{"y": "d", "x": 1}, {"y": "d", "x": 4}],
        [{"member0": None, "member1": 2}, {"member0": None, "member1": 5}],
        [{**nothing, "member2": 3}, {**nothing, "member0": "s"}],
    ]
    assert rows(decoder, payloads, b"\x00") == wanted
    assert rows(decoder, payloads * MANY, b"\x00") == [each * MANY for each in wanted]


@pytest.mark.parametrize("count", [1, MANY])
def test_unions_reduced_to_one_type(count: int) -> None:
    old, new = Avro(record(("u", ["int", "null", "string"]))), Avro(record(("u", "long")))
    wanted = [each.arrow for each in columns_of(new.info)]
    decoder = Decoder(wanted, versions(old, new).__getitem__, PERMISSIVE)
    payloads = [old.encode({"u": each}) for each in (7, None, "x")] * count
    found = decoder.decode(payloads, [False] * len(payloads), None, b"\x00")
    assert found.columns[0].to_pylist() == [7, None, None] * count
    assert found.malformed == list(range(2, 3 * count, 3))
    assert "can't hold" in found.reasons[2]


def test_a_version_that_does_not_fit_is_malformed() -> None:
    old, new = Avro(record(("id", "string"))), Avro(record(("id", "long")))
    known: dict[bytes | None, Any] = {**versions(old, new), b"\x09": None}
    wanted = [each.arrow for each in columns_of(new.info)]
    decoder = Decoder(wanted, known.__getitem__, PERMISSIVE)
    found = decoder.decode([old.encode({"id": "x"}), b""], [False, True], None, b"\x00")
    assert found.malformed == [0]
    assert "id: is string in the topic's schema" in found.reasons[0]
    found = decoder.decode([b"raw"], [False], None, b"\x09")
    assert "have no fields" in found.reasons[0]
    assert found.columns[0].to_pylist() == [None]


def test_readers_of_versions_are_bounded() -> None:
    asked: list[bytes | None] = []

    def infos(version: bytes | None) -> SchemaInfo:
        asked.append(version)
        return PLAIN.info

    decoder = Decoder([each.arrow for each in columns_of(PLAIN.info)], infos, FAILFAST)
    payload = PLAIN.encode({"id": 1, "name": None})
    for number in range(VERSIONS_KEPT_MAX + 1):
        rows(decoder, [payload], bytes([number]))
        rows(decoder, [payload], bytes([number]))
    assert len(asked) == VERSIONS_KEPT_MAX + 2
    assert len(decoder._readers) == VERSIONS_KEPT_MAX
    rows(decoder, [payload], b"\x00")
    assert asked[-1] == b"\x00"


def test_many_payload_bytes_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decoder, "BYTES_TOGETHER_MAX", 100)
    payloads = [PLAIN.encode({"id": n, "name": "x" * 30}) for n in range(50)] + [b"\x00\x02\xc8"]
    found = decoder_of(PLAIN.info, PERMISSIVE).decode(payloads, [False] * 51, None, None)
    assert found.columns[0].to_pylist() == [*range(50), None]
    assert found.malformed == [50]


def test_not_null_columns() -> None:
    wanted = [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())]
    with pytest.raises(SchemaMismatch, match="id: is NOT NULL"):
        Decoder(wanted, lambda version: PLAIN.info, PERMISSIVE)
    payload = PLAIN.encode({"id": 1, "name": None})
    decoder = Decoder(wanted, lambda version: PLAIN.info, FAILFAST)
    assert rows(decoder, [payload]) == [[1], [None]]
    with pytest.raises(MalformedMessage, match="id: null where the column is NOT NULL"):
        decoder.decode([payload, b""], [False, True], None, None)
    decoder = Decoder(wanted, lambda version: PLAIN.info, DROPMALFORMED)
    assert decoder.decode([payload, b""], [False, True], None, None).malformed == [1]


def test_keys_are_needed_for_pairs_only() -> None:
    pair = KeyValue(Int32(), String(), KeyValueEncodingType.SEPARATED)
    decoder = decoder_of(pair.info)
    assert decoder.needs_keys
    found = decoder.decode([b"v", b""], [False, True], [b"\x00\x00\x00\x01"] * 2, None)
    assert [each.to_pylist() for each in found.columns] == [[1, 1], ["v", None]]
    assert not Decoder([pa.field("value", pa.string())], lambda v: pair.info, FAILFAST).needs_keys
    assert not decoder_of(PLAIN.info).needs_keys


@pytest.mark.alone
def test_columns_cost_less_than_objects() -> None:
    payloads = [PLAIN.encode({"id": n, "name": f"name {n}"}) for n in range(3000)]
    decoder = decoder_of(PLAIN.info)

    def cpu_s(work: Callable[[], object]) -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    columns = min(cpu_s(lambda: rows_only(decoder, payloads)) for _ in range(5))
    objects = min(cpu_s(lambda: [PLAIN.decode(each) for each in payloads]) for _ in range(3))
    assert columns < objects / 2


def rows_only(decoder: Decoder, payloads: list[bytes]) -> object:
    return decoder.decode(payloads, [False] * len(payloads), None, None)


def test_columns_are_checked_against_the_topic() -> None:
    check_columns([pa.field("ID", pa.float64())], PLAIN.info)
    check_columns([pa.field("value", pa.binary())], PLAIN.info)
    for wanted, reason in (
        (
            pa.field("nope", pa.int64()),
            "nope: is not in the topic's schema, whose fields are id, name",
        ),
        (
            pa.field("id", pa.int32()),
            "id: is long in the topic's schema, which can't be read as int",
        ),
        (pa.field("name", pa.list_(pa.string())), "name: is string in the topic's schema"),
    ):
        with pytest.raises(SchemaMismatch, match=reason):
            check_columns([wanted], PLAIN.info)
    with pytest.raises(SchemaMismatch, match="id: the topic's values have no fields"):
        check_columns([pa.field("id", pa.int64())], None)
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    several = Avro(record(("u", ["int", "string"])))
    members = pa.struct([pa.field("member0", pa.int32())])
    for kind, reason in ((pa.int32(), "can be read as int"), (members, "are in struct")):
        with pytest.raises(SchemaMismatch, match=f"u: not all types of the topic's union {reason}"):
            check_columns([pa.field("u", kind)], several.info)
    nested = Avro(record(("i", inner)))
    with pytest.raises(
        SchemaMismatch, match=r"i\.z: is not in the topic's schema, whose fields are x"
    ):
        check_columns([pa.field("i", pa.struct([pa.field("z", pa.int32())]))], nested.info)
