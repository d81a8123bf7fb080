"""Which schema may follow which, by type and strategy."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from geminga_broker.schema.compatibility import check_all, check_latest
from geminga_broker.schema.key_value import join_key_value, key_value_from_text, key_value_to_text
from geminga_broker.schema.model import (
    IncompatibleSchema,
    InvalidSchemaData,
    SchemaData,
    Strategy,
)
from geminga_broker.schema.validation import validate
from geminga_protocol.schema_type import SchemaType

RECORDED = json.loads((Path(__file__).parent / "apache_answers.json").read_text())["rows"]
ONE_WAY = (Strategy.BACKWARD, Strategy.FORWARD)


def record(*fields: str, kind: SchemaType = SchemaType.AVRO) -> SchemaData:
    """Fields that end in 0 have a default."""
    found = [
        {"name": name, "type": "int"} | ({"default": 0} if name.endswith("0") else {})
        for name in fields
    ]
    text = json.dumps({"type": "record", "name": "R", "fields": found})
    return SchemaData(kind, text.encode())


def pair(key: SchemaData, value: SchemaData) -> SchemaData:
    props = {"key.schema.type": key.type.name, "value.schema.type": value.type.name}
    return SchemaData(SchemaType.KEY_VALUE, join_key_value(key.data, value.data), props)


def native(message: str, asked: str = "") -> SchemaData:
    file = FileDescriptorProto(name="f", package="p")
    file.message_type.add(name=message)
    raw = FileDescriptorSet(file=[file]).SerializeToString()
    definition = {
        "fileDescriptorSet": base64.b64encode(raw).decode(),
        "rootMessageTypeName": asked or f"p.{message}",
        "rootFileDescriptorName": "f",
    }
    return SchemaData(SchemaType.PROTOBUF_NATIVE, json.dumps(definition).encode())


STRING = SchemaData(SchemaType.STRING, b"")
INT32 = SchemaData(SchemaType.INT32, b"")


def allowed(old: SchemaData, new: SchemaData, strategy: Strategy) -> bool:
    try:
        check_latest(old, new, strategy)
    except IncompatibleSchema:
        return False
    return True


def test_results_equal_apaches() -> None:
    for answers, old, new in RECORDED:
        schemas = [SchemaData(SchemaType.AVRO, json.dumps(each).encode()) for each in (old, new)]
        ours = "".join("+" if allowed(*schemas, strategy) else "-" for strategy in ONE_WAY)
        assert ours == answers, f"{old} -> {new}"
        assert allowed(*schemas, Strategy.FULL) == (answers == "++")
        assert allowed(*schemas, Strategy.ALWAYS_COMPATIBLE)


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_strategies(kind: SchemaType) -> None:
    old, more, less = (record(*each, kind=kind) for each in (("a", "b"), ("a", "b", "c"), ("a",)))
    assert not allowed(old, more, Strategy.BACKWARD)
    assert allowed(old, more, Strategy.FORWARD)
    assert allowed(old, less, Strategy.BACKWARD)
    assert not allowed(old, less, Strategy.FORWARD)
    assert not allowed(old, less, Strategy.FULL)
    assert not allowed(old, less, Strategy.ALWAYS_INCOMPATIBLE)
    assert allowed(old, old, Strategy.ALWAYS_INCOMPATIBLE)


def test_transitive_strategies_compare_all_versions() -> None:
    first, second = record("a"), record("a", "b")
    new = record("a", "b", "c0")
    check_all([second], new, Strategy.BACKWARD_TRANSITIVE)
    with pytest.raises(IncompatibleSchema):
        check_all([first, second], new, Strategy.BACKWARD_TRANSITIVE)
    check_all([first, second], new, Strategy.BACKWARD)


def test_types_don_t_mix_and_the_text_is_apaches() -> None:
    with pytest.raises(IncompatibleSchema) as told:
        check_latest(record("a"), STRING, Strategy.FULL)
    text = "Incompatible schema: exists schema type AVRO, new schema type STRING"
    assert str(told.value) == text
    assert allowed(record("a"), STRING, Strategy.ALWAYS_COMPATIBLE)
    with pytest.raises(IncompatibleSchema) as told:
        check_latest(record("a"), record("a", "b"), Strategy.BACKWARD)
    assert str(told.value).startswith(
        "Error during schema compatibility check with strategy BACKWARD: "
        "org.apache.avro.SchemaValidationException: Unable to read schema: \n"
        '{\n  "type" : "record",\n  "name" : "R",\n  "fields" : [ {\n    "name" : "a",\n'
        '    "type" : "int"\n  } ]\n}\nusing schema:\n{\n'
    )


def test_old_json_definitions() -> None:
    avro = record("a", kind=SchemaType.JSON)
    one, same, other = (
        SchemaData(SchemaType.JSON, text)
        for text in (
            b'{"type":"object","id":"x"}',
            b'{"type":"object","id":"x","a":1}',
            b'{"type":"object","id":"y"}',
        )
    )
    assert allowed(one, same, Strategy.FULL)
    assert not allowed(one, other, Strategy.FULL)
    assert allowed(one, avro, Strategy.FULL)
    assert allowed(avro, one, Strategy.FULL)
    assert not allowed(avro, SchemaData(SchemaType.JSON, b"{}"), Strategy.FULL)


def test_pairs_are_checked_in_both_parts() -> None:
    old = pair(STRING, record("a"))
    assert allowed(old, pair(STRING, record("a", "b0")), Strategy.FULL)
    assert not allowed(old, pair(STRING, record("a", "b")), Strategy.FULL)
    assert not allowed(pair(record("a"), INT32), pair(record("b"), INT32), Strategy.FULL)
    assert not allowed(old, pair(INT32, record("a", "b0")), Strategy.FULL)
    # As for Apache, the definitions are the same to the byte, whatever the properties say.
    assert allowed(old, pair(INT32, record("a")), Strategy.FULL)


def test_a_native_message_keeps_its_name() -> None:
    assert not allowed(native("M"), native("N"), Strategy.FULL)
    assert allowed(native("M"), native("N"), Strategy.ALWAYS_COMPATIBLE)
    validate(native("M"))
    with pytest.raises(InvalidSchemaData, match="descriptor is null"):
        validate(native("M", asked="p.N"))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (SchemaData(SchemaType.AVRO, b"{"), "Invalid schema definition data for AVRO schema"),
        (SchemaData(SchemaType.JSON, b"{"), "Invalid schema definition data for JSON schema"),
        (SchemaData(SchemaType.AVRO, b'["int"]'), r"typed \[UNION\] is not supported"),
        (SchemaData(SchemaType.STRING, b"x"), "data for string schema : 'x'"),
        (SchemaData(SchemaType.INT8, b"xy"), "should be zero, but 2 bytes is found"),
        (SchemaData(SchemaType.AUTO_CONSUME, b""), "is a client-side schema type"),
        (SchemaData(SchemaType.PROTOBUF_NATIVE, b"{}"), "deserialize ProtobufNative Schema failed"),
        (SchemaData(SchemaType.KEY_VALUE, b"\0\0"), "cut off"),
        (SchemaData(SchemaType.KEY_VALUE, b"\x7f\xff\xff\xff"), "exceeds the data"),
        (SchemaData(SchemaType.KEY_VALUE, b"\xff\xff\xff\xfe"), "exceeds the data"),
        (SchemaData(SchemaType.KEY_VALUE, bytes(9)), "1 bytes after"),
        (pair(STRING, SchemaData(SchemaType.STRING, b"x")), "string schema : 'x'"),
    ],
)
def test_invalid_schemas(schema: SchemaData, text: str) -> None:
    with pytest.raises(InvalidSchemaData, match=text):
        validate(schema)


@pytest.mark.parametrize(
    "schema",
    [
        SchemaData(SchemaType.STRING, b"null"),
        SchemaData(SchemaType.BYTES, b"anything"),
        SchemaData(SchemaType.LOCAL_DATE, b""),
        SchemaData(SchemaType.JSON, b'{"type":"object"}'),
        pair(STRING, record("a")),
    ],
)
def test_valid_schemas(schema: SchemaData) -> None:
    validate(schema)


def test_pairs_in_the_admin_api() -> None:
    schema = pair(STRING, record("a"))
    text = key_value_to_text(schema)
    assert json.loads(text) == {"key": "", "value": json.loads(record("a").data)}
    again = SchemaData(SchemaType.KEY_VALUE, key_value_from_text(text), schema.props)
    assert key_value_to_text(again) == text
    for bad in ("", "3", '{"key":""}'):
        with pytest.raises(InvalidSchemaData):
            key_value_from_text(bad)
