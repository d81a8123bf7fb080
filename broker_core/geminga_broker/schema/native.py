"""PROTOBUF_NATIVE definitions: files and a message's name (`ProtobufNativeSchemaUtils`)."""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache

import msgspec
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from geminga_broker.schema.model import InvalidSchemaData
from geminga_runtime.json_text import BadJson, read_json

_READ_MAX = 256
"""Definitions whose message's name is cached."""
_FAILED = "deserialize ProtobufNative Schema failed"
_NO_MESSAGE = (
    "protobuf root message descriptor is null , please recheck rootMessageTypeName or "
    "rootFileDescriptorName conf. "
)


_UNREADABLE = (
    BadJson,
    binascii.Error,
    DecodeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)


class _Definition(msgspec.Struct, rename="camel"):
    file_descriptor_set: str
    root_message_type_name: str
    root_file_descriptor_name: str


_KEPT_BYTES_MAX = 64 * 1024
"""Larger definitions are not cached."""


def root_message(data: bytes) -> str:
    """Full name of the definition's message. Raises InvalidSchemaData."""
    return _kept(data) if len(data) <= _KEPT_BYTES_MAX else _read(data)


@lru_cache(_READ_MAX)
def _kept(data: bytes) -> str:
    return _read(data)


def _read(data: bytes) -> str:
    try:
        definition = read_json(data, _Definition)
        raw = base64.b64decode(definition.file_descriptor_set, validate=True)
        files = {each.name: each for each in FileDescriptorSet.FromString(raw).file}
        pool = DescriptorPool()
        _add(pool, files, definition.root_file_descriptor_name, set())
    except _UNREADABLE:
        raise InvalidSchemaData(_FAILED) from None
    try:
        found = pool.FindMessageTypeByName(definition.root_message_type_name)
    except KeyError:
        raise InvalidSchemaData(_NO_MESSAGE) from None
    return str(found.full_name)


def _add(
    pool: DescriptorPool, files: dict[str, FileDescriptorProto], name: str, added: set[str]
) -> None:
    """Add a file after its dependencies. Raises KeyError for a missing one."""
    if name in added:
        return
    added.add(name)
    for needed in files[name].dependency:
        _add(pool, files, needed, added)
    pool.Add(files[name])
