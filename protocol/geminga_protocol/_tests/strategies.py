"""Hypothesis strategies for any message of the wire formats, and for ways to cut a stream."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from geminga_protocol.frames import SUBMESSAGE
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

M = TypeVar("M", bound=Message)

_DEPTH_MAX = 2
_REPEATED_MAX = 3
_SCALARS: dict[int, st.SearchStrategy[object]] = {
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(allow_nan=False),
}
_TEXT = st.text("az09 /:%\0\u00e9\u65e5\U0001f600", max_size=20)
_BYTES = st.binary(max_size=20)


def _value(field: FieldDescriptor, depth: int) -> st.SearchStrategy[object]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        nested = cast(Descriptor, field.message_type)
        return cast(st.SearchStrategy[object], _message(nested, depth + 1))
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        values = cast(EnumDescriptor, field.enum_type).values
        return st.sampled_from([each.number for each in values])
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return _BYTES if field.type == FieldDescriptor.TYPE_BYTES else _TEXT
    return _SCALARS[field.cpp_type]


def _message(descriptor: Descriptor, depth: int) -> st.SearchStrategy[Message]:
    required: dict[str, st.SearchStrategy[object]] = {}
    optional: dict[str, st.SearchStrategy[object]] = {}
    for field in descriptor.fields:
        nested = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        if nested and depth >= _DEPTH_MAX and not field.is_required:
            continue
        value = _value(field, depth)
        if field.is_repeated:
            value = cast(st.SearchStrategy[object], st.lists(value, max_size=_REPEATED_MAX))
        (required if field.is_required else optional)[field.name] = value
    build = cast(Callable[..., Message], GetMessageClass(descriptor))
    return st.fixed_dictionaries(required, optional=optional).map(lambda kw: build(**kw))


def messages(kind: type[M]) -> st.SearchStrategy[M]:
    """Messages of that class: required fields always, the others sometimes."""
    return cast(st.SearchStrategy[M], _message(cast(Descriptor, kind.DESCRIPTOR), 0))


def commands(kind: int | None = None) -> st.SearchStrategy[BaseCommand]:
    """Commands of that type, or of any."""
    if kind is None:
        return st.sampled_from(sorted(SUBMESSAGE)).flatmap(commands)
    name = SUBMESSAGE[kind]
    field = BaseCommand.DESCRIPTOR.fields_by_name[name]

    def wrap(body: Message) -> BaseCommand:
        fields: dict[str, Any] = {"type": kind, name: body}
        return BaseCommand(**fields)

    return _message(cast(Descriptor, field.message_type), 0).map(wrap)


def chunkings(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """Ways to cut the bytes into chunks, none of them empty."""

    def cut(points: set[int]) -> list[bytes]:
        edges = [0, *sorted(points), len(data)]
        return [data[a:b] for a, b in pairwise(edges) if a < b]

    if len(data) < 2:
        return st.just([data] if data else [])
    return st.sets(st.integers(1, len(data) - 1), max_size=30).map(cut)
