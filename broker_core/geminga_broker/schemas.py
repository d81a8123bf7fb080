"""Schemas of topics: versions in the order of their first use.

A small registry that lets typed clients work: a schema that is known keeps its version, an unknown
one becomes the next. Versions are kept in the metadata store at
`/geminga/schemas/{tenant}/{namespace}/{topic}`; compatibility rules and ledger storage are spec
BR-51.
"""

from __future__ import annotations

import base64
import struct
from typing import NamedTuple

import msgspec

from geminga_protocol.pb.pulsar_api_pb2 import Schema
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import MUST_NOT_EXIST, BadVersion, MetadataStore

_VERSION = struct.Struct(">q")
VERSIONS_MAX = 1000
"""Versions kept for one topic; above it a new schema is refused."""


class SchemaRefused(Exception):
    """The schema can't be registered; the text says why."""


class StoredSchema(NamedTuple):
    """A schema and its version as eight big-endian bytes (`LongSchemaVersion`)."""

    version: bytes
    schema: Schema


class SchemaStore:
    """Schemas by topic; all partitions of a topic share theirs."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def register(self, topic: TopicName, schema: Schema) -> bytes:
        """The schema's version, made when it is new. Raises SchemaRefused."""
        written = schema.SerializeToString(deterministic=True)
        encoded = base64.b64encode(written).decode()
        path = _path(topic)
        while True:
            node = await self._store.get(path)
            known = msgspec.json.decode(node.value, type=list[str]) if node else []
            if encoded in known:
                return _VERSION.pack(known.index(encoded))
            if len(known) >= VERSIONS_MAX:
                raise SchemaRefused(f"{topic} has {VERSIONS_MAX} schema versions already")
            expected = node.stat.version if node else MUST_NOT_EXIST
            try:
                value = msgspec.json.encode([*known, encoded])
                await self._store.put(path, value, expected)
            except BadVersion:
                continue
            return _VERSION.pack(len(known))

    async def get(self, topic: TopicName, version: bytes = b"") -> StoredSchema | None:
        """A version, or the latest; None when there is no such."""
        node = await self._store.get(_path(topic))
        known = msgspec.json.decode(node.value, type=list[str]) if node else []
        index = len(known) - 1
        if version:
            if len(version) != _VERSION.size:
                return None
            (index,) = _VERSION.unpack(version)
        if not 0 <= index < len(known):
            return None
        schema = Schema.FromString(base64.b64decode(known[index]))
        return StoredSchema(_VERSION.pack(index), schema)

    async def delete(self, topic: TopicName) -> None:
        """Forget all versions; none is no error."""
        if await self._store.exists(_path(topic)):
            await self._store.delete(_path(topic))


def _path(topic: TopicName) -> str:
    return f"/geminga/schemas/{topic.schema_name}"
