"""Messages of PROTOBUF_NATIVE schemas, described by their descriptors only."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.api_pb2 import Api
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from geminga.schema import ProtobufNative, SchemaInfo, SchemaType
from pyspark_pulsar._decode._readers import fields_of, reader_of
from pyspark_pulsar._decode._tests.test_avro import rows_of

TYPES = descriptor_pb2.FieldDescriptorProto


def everything() -> type[Message]:
    """A class with a field of every sort."""
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="t", syntax="proto3")
    message = file.message_type.add(name="All")
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="GREEN", number=7)
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=TYPES.TYPE_INT32, label=1)
    entry.field.add(name="value", number=2, type=TYPES.TYPE_MESSAGE, type_name=".t.Sub", label=1)
    sub = file.message_type.add(name="Sub")
    sub.field.add(name="x", number=1, type=TYPES.TYPE_SINT64, label=1)
    for number, name in enumerate(
        ["bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes"], 1
    ):
        kind = getattr(TYPES, f"TYPE_{name.upper()}")
        message.field.add(name=f"a_{name}", number=number, type=kind, label=1)
    message.field.add(name="color", number=20, type=TYPES.TYPE_ENUM, type_name=".t.Color", label=1)
    message.field.add(name="sub", number=21, type=TYPES.TYPE_MESSAGE, type_name=".t.Sub", label=1)
    message.field.add(name="many", number=22, type=TYPES.TYPE_STRING, label=3)
    message.field.add(
        name="counts", number=23, type=TYPES.TYPE_MESSAGE, type_name=".t.All.CountsEntry", label=3
    )
    message.oneof_decl.add(name="_maybe")
    message.field.add(
        name="maybe", number=24, type=TYPES.TYPE_INT32, label=1, oneof_index=0, proto3_optional=True
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.All"))


def test_every_type_of_field() -> None:
    kind = everything()
    info = ProtobufNative(kind).info
    fields = fields_of(info)
    assert {each.name: each.type for each in fields} == {
        "a_bool": pa.bool_(),
        "a_int32": pa.int32(),
        "a_int64": pa.int64(),
        "a_uint32": pa.int64(),
        "a_uint64": pa.decimal128(20, 0),
        "a_float": pa.float32(),
        "a_double": pa.float64(),
        "a_string": pa.string(),
        "a_bytes": pa.binary(),
        "color": pa.string(),
        "sub": pa.struct([pa.field("x", pa.int64())]),
        "many": pa.list_(pa.field("element", pa.string())),
        "counts": pa.map_(pa.string(), pa.struct([pa.field("x", pa.int64())])),
        "maybe": pa.int32(),
    }
    full = kind(
        a_bool=True, a_int32=-1, a_int64=-(1 << 63), a_uint32=(1 << 32) - 1, a_uint64=(1 << 64) - 1,
        a_float=1.5, a_double=2.5, a_string="Zoë", a_bytes=b"\xff", color=7, sub={"x": -5},
        many=["a", ""], counts={3: {"x": 4}}, maybe=0,
    )  # fmt: skip
    reader = reader_of(info, fields, strict=True)
    found = reader.columns(
        [full.SerializeToString(), b"", b"\xff", kind(color=9).SerializeToString()]
    )
    assert list(found.notes) == [2]
    rows = rows_of(found, [each.name for each in fields])
    assert rows[0] == {
        "a_bool": True, "a_int32": -1, "a_int64": -(1 << 63), "a_uint32": (1 << 32) - 1,
        "a_uint64": (1 << 64) - 1, "a_float": 1.5, "a_double": 2.5, "a_string": "Zoë",
        "a_bytes": b"\xff", "color": "GREEN", "sub": {"x": -5}, "many": ["a", ""],
        "counts": [("3", {"x": 4})], "maybe": 0,
    }  # fmt: skip
    assert rows[1] == {
        "a_bool": False, "a_int32": 0, "a_int64": 0, "a_uint32": 0, "a_uint64": 0, "a_float": 0.0,
        "a_double": 0.0, "a_string": "", "a_bytes": b"", "color": "RED", "sub": None, "many": [],
        "counts": [], "maybe": None,
    }  # fmt: skip
    assert rows[2]["color"] == "9"


def test_files_that_import_others() -> None:
    info = ProtobufNative(Api).info
    fields = [
        each for each in fields_of(info) if each.name in ("name", "methods", "source_context")
    ]
    api = Api(name="n", source_context={"file_name": "f"})
    api.methods.add(name="m")
    found = reader_of(info, fields, strict=True).columns([api.SerializeToString()])
    row = rows_of(found, [each.name for each in fields])[0]
    assert row["source_context"] == {"file_name": "f"}
    assert row["methods"][0]["name"] == "m"


def test_recursive_messages_are_bytes() -> None:
    info = ProtobufNative(Struct).info
    assert fields_of(info) == [pa.field("value", pa.binary())]
    found = reader_of(info, fields_of(info), strict=True).columns([b"\x01\x02"])
    assert found.arrays[0].to_pylist() == [b"\x01\x02"]


def test_invalid_descriptors_are_bytes() -> None:
    junk = json.dumps({"fileDescriptorSet": base64.b64encode(b"\xff\xff").decode()}).encode()
    info = SchemaInfo("", SchemaType.PROTOBUF_NATIVE, junk)
    assert fields_of(info) == [pa.field("value", pa.binary())]
    assert reader_of(info, fields_of(info)).columns([b"x"]).arrays[0].to_pylist() == [b"x"]


def test_some_fields_only() -> None:
    info = ProtobufNative(Timestamp).info
    payload = Timestamp(seconds=5, nanos=7).SerializeToString()
    found = reader_of(info, [pa.field("nanos", pa.int64())], strict=True).columns([payload])
    assert found.arrays[0].to_pylist() == [7]
    assert found.arrays[0].type == pa.int64()
