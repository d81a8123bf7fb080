"""Definitions, and pairs of them, that random ones would hardly be."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf.descriptor_pb2 import (
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

Case = tuple[str, str, dict[str, str]]
"""Type, definition and properties of a schema."""


def record(*fields: Any, name: str = "R", **more: Any) -> str:
    """An Avro record of these fields; a text is the name of an int field."""
    found = [{"name": each, "type": "int"} if isinstance(each, str) else each for each in fields]
    return json.dumps({"type": "record", "name": name, "fields": found, **more})


def _field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def _enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


_TEXTS = {
    "empty": "",
    "null": "null",
    "no json": "{",
    "primitive": '"int"',
    "bare word": "int",
    "dangling": '{"type":"record","name":"R","fields":[]} x',
    "union": '["int","null"]',
    "empty union": record(_field("a", [])),
    "nested union": record(_field("a", ["int", ["null"]])),
    "duplicate branch": record(_field("a", ["int", "int"])),
    "no name": '{"type":"record","fields":[]}',
    "no fields": '{"type":"record","name":"R"}',
    "null field type": '{"type":"record","name":"R","fields":[{"name":"a"}]}',
    "bad name": record("a-b"),
    "digit first": record("1a"),
    "letters of elsewhere": record("añ"),
    "bad record name": record("a", name="R-1"),
    "bad namespace": record("a", namespace="a-b"),
    "empty namespace": record("a", namespace=""),
    "dotted name": record("a", name="x.y.R"),
    "duplicate field": record("a", "a"),
    "undefined name": record(_field("a", "Other")),
    "own name": record(_field("a", ["null", "R"])),
    "full own name": record(_field("a", ["null", "n.R"]), namespace="n"),
    "wrong namespace": record(_field("a", ["null", "m.R"]), namespace="n"),
    "redefined": record(_field("a", _enum("A")), _field("b", _enum("B"))),
    "named as a primitive": record("a", name="int"),
    "enum without symbols": record(_field("a", {"type": "enum", "name": "E"})),
    "enum of nothing": record(_field("a", _enum())),
    "enum twice the same": record(_field("a", _enum("A", "A"))),
    "enum bad symbol": record(_field("a", _enum("A-B"))),
    "enum default": record(_field("a", _enum("A", default="A"))),
    "enum wrong default": record(_field("a", _enum("A", default="Z"))),
    "fixed without size": record(_field("a", {"type": "fixed", "name": "F"})),
    "fixed of text": record(_field("a", {"type": "fixed", "name": "F", "size": "3"})),
    "fixed negative": record(_field("a", {"type": "fixed", "name": "F", "size": -1})),
    "array of nothing": record(_field("a", {"type": "array"})),
    "map of nothing": record(_field("a", {"type": "map"})),
    "wrong default": record(_field("a", "int", default="x")),
    "text for a double": record(_field("a", "double", default="1.5")),
    "no number for a double": record(_field("a", "double", default="x")),
    "wrong order": record(_field("a", "int", order="up")),
    "order in capitals": record(_field("a", "int", order="IGNORE")),
    "aliases no list": record("a", aliases="b"),
    "field aliases no list": record(_field("a", "int", aliases="b")),
    "logical type": record(_field("a", {"type": "long", "logicalType": "timestamp-millis"})),
    "unknown logical type": record(_field("a", {"type": "long", "logicalType": "x"})),
    "decimal without precision": record(_field("a", {"type": "bytes", "logicalType": "decimal"})),
    "type in a type": record(_field("a", {"type": {"type": "int"}})),
    "unknown type": '{"type":"what"}',
    "error": '{"type":"error","name":"R","fields":[]}',
    "number": "3",
    "type is a number": '{"type":3}',
    "JSON schema": '{"type":"object","id":"urn:x","properties":{"a":{"type":"integer"}}}',
    "JSON schema without type": '{"id":"urn:x"}',
}

DEFINITIONS: dict[str, Case] = {
    **{
        f"{kind} {name}": (kind, text, {})
        for kind in ("AVRO", "JSON")
        for name, text in _TEXTS.items()
    },
    "STRING none": ("STRING", "", {}),
    "STRING null": ("STRING", "null", {}),
    "STRING some": ("STRING", "x", {}),
    "INT8 some": ("INT8", "x", {}),
    "BOOLEAN": ("BOOLEAN", "", {}),
    "LOCAL_DATE_TIME": ("LOCAL_DATE_TIME", "", {}),
    "BYTES": ("BYTES", "", {}),
    "NONE": ("NONE", "", {}),
    "AUTO": ("AUTO", "", {}),
    "AUTO_CONSUME": ("AUTO_CONSUME", "", {}),
    "AUTO_PUBLISH": ("AUTO_PUBLISH", "", {}),
    "PROTOBUF": ("PROTOBUF", record("a"), {}),
    "PROTOBUF wrong": ("PROTOBUF", "x", {}),
    "PROTOBUF union": ("PROTOBUF", '["int"]', {}),
    "PROTOBUF_NATIVE wrong": ("PROTOBUF_NATIVE", "{}", {}),
    "PROTOBUF_NATIVE no json": ("PROTOBUF_NATIVE", "x", {}),
}


def native(message: str = "M", *, asked: str = "", package: str = "p") -> Case:
    """A PROTOBUF_NATIVE schema with two messages, one in the other."""
    file = FileDescriptorProto(name="f.proto", package=package, syntax="proto3")
    kind = file.message_type.add(name=message)
    kind.field.add(name="a", number=1, type=FieldDescriptorProto.TYPE_INT32, label=1)
    kind.nested_type.add(name="Inner")
    definition = {
        "fileDescriptorSet": base64.b64encode(
            FileDescriptorSet(file=[file]).SerializeToString()
        ).decode(),
        "rootMessageTypeName": asked or f"{package}.{message}".lstrip("."),
        "rootFileDescriptorName": "f.proto",
    }
    return "PROTOBUF_NATIVE", json.dumps(definition), {}


def pair(key: Case, value: Case, encoding: str = "INLINE") -> Case:
    """A KEY_VALUE schema as the admin API takes it."""
    parts = {
        name: json.loads(part[1]) if part[1].startswith("{") else part[1]
        for name, part in (("key", key), ("value", value))
    }
    props = {
        "key.schema.name": "",
        "key.schema.type": key[0],
        "key.schema.properties": "{}",
        "value.schema.name": "",
        "value.schema.type": value[0],
        "value.schema.properties": "{}",
        "kv.encoding.type": encoding,
    }
    return "KEY_VALUE", json.dumps(parts), props


_A: Case = ("AVRO", record("a"), {})
_STRING: Case = ("STRING", "", {})
_INT: Case = ("INT32", "", {})
_AB: Case = ("AVRO", record("a", "b"), {})
_AB0: Case = ("AVRO", record("a", _field("b", "int", default=0)), {})
_OLD_JSON: Case = ("JSON", '{"type":"object","id":"urn:x"}', {})

DEFINITIONS |= {
    "PROTOBUF_NATIVE": native(),
    "PROTOBUF_NATIVE inner": native(asked="p.M.Inner"),
    "PROTOBUF_NATIVE no such": native(asked="p.N"),
    "PROTOBUF_NATIVE without package": native(package=""),
    "KEY_VALUE": pair(_STRING, _A),
    "KEY_VALUE of primitives": pair(_STRING, _INT),
    "KEY_VALUE wrong value": pair(_STRING, ("AVRO", '{"type":"x"}', {})),
    "KEY_VALUE of nothing known": ("KEY_VALUE", '{"key":"","value":""}', {}),
    "KEY_VALUE unknown part": pair(("WHAT", "", {}), _INT),
    "KEY_VALUE native": pair(_STRING, native()),
}

STEPS: dict[str, tuple[Case, Case]] = {
    "same": (_A, _A),
    "other type": (_A, _STRING),
    "primitive to another": (_STRING, _INT),
    "avro to JSON": (_A, ("JSON", _A[1], {})),
    "bytes to avro": (("BYTES", "", {}), _A),
    "native same message": (native(), native(package="p", message="M")),
    "native other message": (native(), native(message="N")),
    "native inner message": (native(), native(asked="p.M.Inner")),
    "pair same": (pair(_STRING, _A), pair(_STRING, _A)),
    "pair value grows": (pair(_STRING, _A), pair(_STRING, _AB)),
    "pair value grows well": (pair(_STRING, _A), pair(_STRING, _AB0)),
    "pair key changes type": (pair(_STRING, _A), pair(_INT, _A)),
    "pair key shrinks": (pair(_AB, _A), pair(_A, _A)),
    "pair other encoding": (pair(_STRING, _A), pair(_STRING, _A, "SEPARATED")),
    "pair native message": (pair(_STRING, native()), pair(_STRING, native("N"))),
    "pair JSON": (pair(("JSON", _A[1], {}), _INT), pair(("JSON", _AB[1], {}), _INT)),
    "old JSON same id": (_OLD_JSON, ("JSON", '{"type":"object","id":"urn:x","a":1}', {})),
    "old JSON other id": (_OLD_JSON, ("JSON", '{"type":"object","id":"urn:y"}', {})),
    "old JSON to avro": (_OLD_JSON, ("JSON", _A[1], {})),
    "avro to old JSON": (("JSON", _A[1], {}), _OLD_JSON),
    "default that doesn't fit": (_A, ("AVRO", record("a", _field("b", "int", default="x")), {})),
    "default of a union": (
        _A,
        ("AVRO", record("a", _field("b", ["null", "int"], default=None)), {}),
    ),
    "default of the second branch": (
        _A,
        ("AVRO", record("a", _field("b", ["null", "int"], default=3)), {}),
    ),
    "default of a record": (
        _A,
        (
            "AVRO",
            record("a", _field("b", json.loads(record("x", name="X")), default={"x": 1})),
            {},
        ),
    ),
    "default of a record lacks a field": (
        _A,
        ("AVRO", record("a", _field("b", json.loads(record("x", name="X")), default={})), {}),
    ),
    "enum loses a symbol": (
        ("AVRO", record(_field("a", _enum("A", "B"))), {}),
        ("AVRO", record(_field("a", _enum("A"))), {}),
    ),
    "record renamed": (_A, ("AVRO", record("a", name="S"), {})),
    "only the doc": (_A, ("AVRO", record("a", doc="d"), {})),
    "a property": (_A, ("AVRO", record("a", foo="d"), {})),
    "int to long": (_A, ("AVRO", record(_field("a", "long")), {})),
    "string to bytes": (
        ("AVRO", record(_field("a", "string")), {}),
        ("AVRO", record(_field("a", "bytes")), {}),
    ),
    "protobuf anything": (("PROTOBUF", record("a"), {}), ("PROTOBUF", record("b"), {})),
}
