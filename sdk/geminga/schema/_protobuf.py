"""Protobuf messages (spec SDK-41; ProtobufSchema, ProtobufNativeSchema and
ProtobufNativeSchemaUtils of the Java client, ProtobufData of Avro's).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from geminga._options.checks import one
from geminga.errors import InvalidSchemaError, InvalidValueError
from geminga.schema._avro import ALWAYS_ALLOW_NULL, JSR310_CONVERSION_ENABLED
from geminga.schema._base import Schema, undecodable
from geminga.schema._info import SchemaInfo
from geminga_protocol.schema_type import SchemaType

M = TypeVar("M", bound=Message)

PARSING_INFO = "__PARSING_INFO__"
_LABELS = {1: "LABEL_OPTIONAL", 2: "LABEL_REQUIRED", 3: "LABEL_REPEATED"}
_KINDS: dict[int, str] = {
    number: name.removeprefix("TYPE_")
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}
_TEXT = {"type": "string", "avro.java.string": "String"}
_AVRO_KINDS: dict[int, tuple[object, object]] = {
    FieldDescriptor.CPPTYPE_BOOL: ("boolean", False),
    FieldDescriptor.CPPTYPE_INT32: ("int", 0),
    FieldDescriptor.CPPTYPE_UINT32: ("int", 0),
    FieldDescriptor.CPPTYPE_INT64: ("long", 0),
    FieldDescriptor.CPPTYPE_UINT64: ("long", 0),
    FieldDescriptor.CPPTYPE_FLOAT: ("float", 0.0),
    FieldDescriptor.CPPTYPE_DOUBLE: ("double", 0.0),
    FieldDescriptor.CPPTYPE_STRING: (_TEXT, ""),
}
"""Avro types of field types, with their default values."""


class _Messages(Schema[M]):
    """Messages of one generated class."""

    def __init__(self, message: type[M], kind: SchemaType, definition: object) -> None:
        self._kind = message
        text = json.dumps(definition, separators=(",", ":"), ensure_ascii=False)
        super().__init__(SchemaInfo("", kind, text.encode(), _properties(_descriptor_of(message))))

    def encode(self, value: M) -> bytes:
        """The message's bytes. Raises InvalidValueError."""
        if not isinstance(value, self._kind):
            raise InvalidValueError(f"the value must be {one(self._kind.__name__)}, not {value!r}")
        try:
            return value.SerializeToString()
        except EncodeError as error:
            raise InvalidValueError(f"{self._kind.__name__}: {error}") from error

    def decode(self, data: bytes) -> M:
        """The message. Raises UndecodableValueError."""
        try:
            return self._kind.FromString(data)
        except DecodeError as error:
            raise undecodable(self._kind.__name__, error) from error


class Protobuf(_Messages[M]):
    """Messages of a generated class; the topic gets an equivalent Avro schema."""

    def __init__(self, message: type[M]) -> None:
        descriptor = _descriptor_of(message)
        super().__init__(message, SchemaType.PROTOBUF, _Describing().record(descriptor, ""))


class ProtobufNative(_Messages[M]):
    """Messages of a generated class; the topic gets their descriptors."""

    def __init__(self, message: type[M]) -> None:
        descriptor = _descriptor_of(message)
        files = descriptor_pb2.FileDescriptorSet(
            file=[
                descriptor_pb2.FileDescriptorProto.FromString(each.serialized_pb)
                for each in _files(descriptor.file, set())
            ]
        )
        definition = {
            "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
            "rootMessageTypeName": descriptor.full_name,
            "rootFileDescriptorName": descriptor.file.name,
        }
        super().__init__(message, SchemaType.PROTOBUF_NATIVE, definition)


def _descriptor_of(message: type[Message]) -> Descriptor:
    if not isinstance(message, type) or not issubclass(message, Message):
        raise InvalidSchemaError(f"a generated protobuf class is needed, not {message!r}")
    found: Any = message.DESCRIPTOR
    descriptor: Descriptor = found
    return descriptor


def _files(file: FileDescriptor, seen: set[str]) -> Iterator[FileDescriptor]:
    """The file and all its imports, these first."""
    if file.name in seen:
        return
    seen.add(file.name)
    for each in file.dependencies:
        yield from _files(each, seen)
    yield file


def _properties(descriptor: Descriptor) -> dict[str, str]:
    fields = [
        {
            "number": field.number,
            "name": field.name,
            "type": _KINDS[field.type],
            "label": _LABELS[_label(field)],
            "definition": None,
        }
        for field in descriptor.fields
    ]
    return {
        PARSING_INFO: json.dumps(fields, separators=(",", ":")),
        ALWAYS_ALLOW_NULL: "true",
        JSR310_CONVERSION_ENABLED: "false",
    }


def _label(field: FieldDescriptor) -> int:
    if field.is_repeated:
        return 3
    return 2 if field.is_required else 1


class _Describing:
    """Converts descriptors to Avro schemas."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def record(self, descriptor: Descriptor, space: str) -> Any:
        """A message's record; the name only if it was described before."""
        name, own = _place(descriptor)
        full = f"{own}.{name}" if own else name
        if full in self._known:
            return name if own == space else full
        self._known.add(full)
        head = {"type": "record", "name": name}
        if own != space:
            head["namespace"] = own
        return {**head, "fields": [self._field(each, own) for each in descriptor.fields]}

    def _field(self, field: FieldDescriptor, space: str) -> dict[str, object]:
        kind, default = self._type(field, space)
        if field.is_repeated:
            return {"name": field.name, "type": {"type": "array", "items": kind}, "default": []}
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            return {"name": field.name, "type": ["null", kind], "default": None}
        return {"name": field.name, "type": kind, "default": default}

    def _type(self, field: FieldDescriptor, space: str) -> tuple[Any, object]:
        if field.message_type is not None:
            return self.record(field.message_type, space), None
        if field.enum_type is not None:
            return self._enum(field.enum_type, space), field.enum_type.values[0].name
        if field.type == FieldDescriptor.TYPE_BYTES:
            return "bytes", ""
        kind, default = _AVRO_KINDS[field.cpp_type]
        return kind, field.default_value if field.has_default_value else default

    def _enum(self, descriptor: EnumDescriptor, space: str) -> Any:
        name, own = _place(descriptor)
        full = f"{own}.{name}" if own else name
        if full in self._known:
            return name if own == space else full
        self._known.add(full)
        head = {"type": "enum", "name": name}
        if own != space:
            head["namespace"] = own
        return {**head, "symbols": [each.name for each in descriptor.values]}


def _place(descriptor: Descriptor | EnumDescriptor) -> tuple[str, str]:
    """Name and name space: the Java package, and the outer classes of nested ones."""
    file = descriptor.file
    options = file.GetOptions()
    space = options.java_package or file.package
    outer: list[str] = []
    parent = descriptor.containing_type
    while parent is not None:
        outer.insert(0, parent.name)
        parent = parent.containing_type
    if not options.java_multiple_files:
        outer.insert(0, options.java_outer_classname or _outer_class(file.name))
    inner = "$".join(outer)
    return descriptor.name, ".".join(filter(None, (space, inner)))


def _outer_class(file_name: str) -> str:
    stem = file_name.rpartition("/")[2].removesuffix(".proto")
    return "".join(part[:1].upper() + part[1:] for part in stem.replace("-", "_").split("_"))


def message_class(info: SchemaInfo) -> type[Message]:
    """The message class of a PROTOBUF_NATIVE schema, created from its descriptors. Raises
    InvalidSchemaError.
    """
    try:
        definition = json.loads(info.schema)
        files = descriptor_pb2.FileDescriptorSet.FromString(
            base64.b64decode(definition["fileDescriptorSet"])
        )
        pool = descriptor_pool.DescriptorPool()
        for file in _in_order({each.name: each for each in files.file}):
            pool.Add(file)
        found = pool.FindMessageTypeByName(definition["rootMessageTypeName"])
        return message_factory.GetMessageClass(found)
    except Exception as error:
        raise InvalidSchemaError(f"the descriptors can't be read: {error}") from error


def generic_message(info: SchemaInfo) -> Callable[[bytes], dict[str, object]]:
    """A reader of messages as dicts, without their class. Raises InvalidSchemaError."""
    kind = message_class(info)

    def read(data: bytes) -> dict[str, object]:
        try:
            message = kind.FromString(data)
        except DecodeError as error:
            raise undecodable(kind.DESCRIPTOR.full_name, error) from error
        return _as_dict(message)

    return read


def _in_order(
    files: dict[str, descriptor_pb2.FileDescriptorProto],
) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    """The files, each after its imports: Java's order differs."""
    left = dict(files)

    def of(name: str) -> Iterator[descriptor_pb2.FileDescriptorProto]:
        file = left.pop(name, None)
        if file is not None:
            for each in file.dependency:
                yield from of(each)
            yield file

    for name in files:
        yield from of(name)


def _as_dict(message: Message) -> dict[str, object]:
    """All fields by name; messages as dicts (None if unset), enums by name."""
    found: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        value: Any = getattr(message, field.name)
        kind: Any = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            change = _change_of(kind.fields_by_name["value"])
            found[field.name] = {key: change(each) for key, each in value.items()}
        elif field.is_repeated:
            found[field.name] = [_change_of(field)(each) for each in value]
        elif kind is not None and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _change_of(field)(value)
    return found


def _change_of(field: Any) -> Callable[[Any], object]:
    if field.message_type is not None:
        return _as_dict
    if field.enum_type is not None:
        names = {each.number: each.name for each in field.enum_type.values}
        return lambda number: names.get(number, number)
    return lambda value: value
