"""Versions of topics' schemas (spec BR-51; Apache's `SchemaRegistryServiceImpl`)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

import trio
from google.protobuf.message import DecodeError

from geminga_broker.metrics.counts import SchemaMeter
from geminga_broker.schema.compatibility import check_all, check_latest
from geminga_broker.schema.model import (
    AVRO_SHAPED,
    IncompatibleSchema,
    NoSchemaToCheck,
    SchemaData,
    Strategy,
    VersionedSchema,
)
from geminga_broker.schema.storage import Locator, SchemaStorage, StoredEntry
from geminga_broker.schema.validation import validate
from geminga_protocol.avro_schema import AvroSchemaError, parse_avro
from geminga_protocol.pb.schema_storage_pb2 import SchemaInfo
from geminga_protocol.schema_type import SchemaType
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import BadVersion

_log = logging.getLogger(__name__)

T = TypeVar("T")

VERSIONS_MAX = 1000
"""Versions of one topic; above it a new schema is refused."""

VERSIONS_BYTES_MAX = 16 << 20
"""Total size of one topic's definitions: all are read for a comparison."""

INLINE_BYTES_MAX = 16 * 1024
"""Larger definitions are compared in a thread: a megabyte takes a second."""

_CONSUMER_READS_LATEST = frozenset(
    (Strategy.BACKWARD, Strategy.FORWARD, Strategy.FORWARD_TRANSITIVE, Strategy.FULL)
)


class SchemaRegistry:
    """Schemas by id (`TopicName.schema_name`), which all partitions of a topic share.

    All methods raise SchemaStorageFailed.
    """

    def __init__(self, storage: SchemaStorage, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.storage = storage
        self.meter = SchemaMeter()
        self._now_ms = now_ms
        self._threads = trio.CapacityLimiter(1)

    async def latest(self, schema_id: str) -> VersionedSchema | None:
        """The latest version; None if there is none or it was deleted."""
        versions = await self.versions(schema_id)
        return versions[-1] if versions else None

    async def get(self, schema_id: str, number: int) -> VersionedSchema | None:
        """One version; None if there is none or it was deleted."""
        versions = await self.versions(schema_id)
        return next((each for each in versions if each.number == number), None)

    async def versions(self, schema_id: str) -> list[VersionedSchema]:
        """The versions after the last deletion, in order."""
        with self.meter.of(schema_id).timed("get"):
            return await self._versions(schema_id)

    async def _versions(self, schema_id: str) -> list[VersionedSchema]:
        return (await self._load(schema_id))[1]

    async def delete(self, schema_id: str) -> bool:
        """Delete all versions permanently; False if there are none."""
        with self.meter.of(schema_id).timed("del"):
            return await self.storage.delete(schema_id)

    async def register(self, schema_id: str, schema: SchemaData, strategy: Strategy) -> int:
        """The number of a known schema, or of a new, compatible version.
        Raises IncompatibleSchema, InvalidSchemaData.
        """
        with self.meter.of(schema_id).timed("put"):
            return await self._register(schema_id, schema, strategy)

    async def _register(self, schema_id: str, schema: SchemaData, strategy: Strategy) -> int:
        known = await self.number_of(schema_id, schema)
        if known is not None:
            return known  # most producers': nothing has to be computed
        await self._compute(schema, (), partial(validate, schema))
        while True:
            locator, versions = await self._load(schema_id)
            known = await self._compute(schema, versions, partial(find, versions, schema))
            if known is not None:
                return known
            check = partial(_check, versions, schema, strategy)
            await self._compare(schema_id, schema, versions, check)
            if _bytes_of(schema, versions) > VERSIONS_BYTES_MAX:
                text = f"{schema_id}: more than {VERSIONS_BYTES_MAX} bytes of schemas"
                raise IncompatibleSchema(text)
            if locator is not None and len(locator.value.index) >= VERSIONS_MAX:
                raise IncompatibleSchema(f"{schema_id} has {VERSIONS_MAX} schema versions already")
            try:
                return await self._append(schema_id, locator, schema, _hash(schema))
            except BadVersion:
                continue  # another version came first: compare again

    async def find(self, schema_id: str, schema: SchemaData) -> int | None:
        """The number of this schema, if it is known. Raises InvalidSchemaData."""
        await self._compute(schema, (), partial(validate, schema))
        versions = await self._versions(schema_id)
        return await self._compute(schema, versions, partial(find, versions, schema))

    async def number_of(self, schema_id: str, schema: SchemaData) -> int | None:
        """The number of the schema with the same definition to the byte."""
        for each in await self._versions(schema_id):
            if _same_bytes(each.schema, schema):
                return each.number
        return None

    async def check(self, schema_id: str, schema: SchemaData, strategy: Strategy) -> None:
        """Raises IncompatibleSchema, InvalidSchemaData if the schema could not be registered."""
        await self._compute(schema, (), partial(validate, schema))
        versions = await self._versions(schema_id)
        await self._compare(
            schema_id, schema, versions, partial(_check, versions, schema, strategy)
        )

    async def check_consumer(self, schema_id: str, schema: SchemaData, strategy: Strategy) -> None:
        """Check that a consumer may read the topic with the schema. Raises IncompatibleSchema,
        NoSchemaToCheck, InvalidSchemaData.
        """
        if strategy is Strategy.ALWAYS_COMPATIBLE:
            return
        versions = await self._versions(schema_id)
        if not versions:
            raise NoSchemaToCheck
        if strategy in _CONSUMER_READS_LATEST:
            compare = partial(check_latest, versions[-1].schema, schema, Strategy.BACKWARD)
        else:
            compare = partial(check_all, [each.schema for each in versions], schema, strategy)
        await self._compare(schema_id, schema, versions, compare)

    async def _compare(
        self,
        schema_id: str,
        schema: SchemaData,
        versions: Sequence[VersionedSchema],
        check: Callable[[], None],
    ) -> None:
        """Run a check of compatibility, and count its result. Raises IncompatibleSchema."""
        counts = self.meter.of(schema_id)
        try:
            await self._compute(schema, versions, check)
        except IncompatibleSchema:
            counts.incompatible += 1
            raise
        counts.compatible += 1

    async def _compute(
        self, schema: SchemaData, versions: Sequence[VersionedSchema], work: Callable[[], T]
    ) -> T:
        """Run `work`, in a thread if these schemas are large."""
        if _bytes_of(schema, versions) <= INLINE_BYTES_MAX:
            return work()
        return await trio.to_thread.run_sync(work, limiter=self._threads, abandon_on_cancel=True)

    async def mark_deleted(self, schema_id: str, user: str) -> int:
        """Mark all versions as deleted: they are no longer served, and a new version need not be
        compatible with them. Returns the mark's number.
        """
        end = SchemaData(SchemaType.NONE, b"", user=user, deleted=True)
        with self.meter.of(schema_id).timed("del"):
            while True:
                locator = await self.storage.locate(schema_id)
                try:
                    return await self._append(schema_id, locator, end, b"")
                except BadVersion:
                    continue

    async def _load(self, schema_id: str) -> tuple[Locator | None, list[VersionedSchema]]:
        locator = await self.storage.locate(schema_id)
        found = await self.storage.read_all(schema_id, locator)
        versions: list[VersionedSchema] = []
        for entry in found:
            schema = _decode(schema_id, entry)
            if schema is None:
                if not entry.hash:
                    versions.clear()  # only an end has none
            elif schema.deleted:
                versions.clear()
            else:
                versions.append(VersionedSchema(entry.number, schema))
        return locator, versions

    async def _append(
        self, schema_id: str, locator: Locator | None, schema: SchemaData, digest: bytes
    ) -> int:
        info = SchemaInfo(
            schema_id=schema_id,
            user=schema.user,
            type=_stored_type(schema.type),
            schema=schema.data,
            timestamp=self._now_ms(),
            deleted=schema.deleted,
        )
        for key, value in schema.props.items():
            info.props.add(key=key, value=value)
        return await self.storage.append(schema_id, locator, info.SerializeToString(), digest)


def _bytes_of(schema: SchemaData, versions: Sequence[VersionedSchema]) -> int:
    return len(schema.data) + sum(len(each.schema.data) for each in versions)


def find(versions: Sequence[VersionedSchema], schema: SchemaData) -> int | None:
    """The number of an equal schema; Avro by meaning (`getSchemaVersionBySchemaData`).

    A definition that is there to the byte, as usual, is found without parsing any: no two versions
    mean the same.
    """
    for each in versions:
        if _same_bytes(each.schema, schema):
            return each.number
    shape = _shape(schema)
    if shape is not None:
        for each in versions:
            if each.schema.type is schema.type and _shape(each.schema) == shape:
                return each.number
    return None


def _shape(schema: SchemaData) -> object:
    if schema.type not in AVRO_SHAPED:
        return None
    try:
        return parse_avro(schema.data.decode()).canonical
    except (AvroSchemaError, UnicodeDecodeError):
        return None  # an old JSON schema


def _check(versions: Sequence[VersionedSchema], schema: SchemaData, strategy: Strategy) -> None:
    if not versions:
        return
    if strategy.transitive:
        check_all([each.schema for each in versions], schema, strategy)
    elif strategy is not Strategy.ALWAYS_COMPATIBLE:
        check_latest(versions[-1].schema, schema, strategy)


def _same_bytes(one: SchemaData, other: SchemaData) -> bool:
    return one.type is other.type and one.data == other.data


def _hash(schema: SchemaData) -> bytes:
    return hashlib.sha256(schema.data).digest()


def _stored_type(kind: SchemaType) -> SchemaInfo.SchemaType:
    """One more than the type's number; BYTES is stored as NONE."""
    return cast(SchemaInfo.SchemaType, max(int(kind), 0) + 1)


def _decode(schema_id: str, entry: StoredEntry) -> SchemaData | None:
    """The schema, None if it is damaged."""
    if entry.data is None:
        return None
    try:
        info = SchemaInfo.FromString(entry.data)
        kind = SchemaType(info.type - 1)
    except (DecodeError, ValueError) as error:
        _log.warning("schema=%s: version %d is damaged: %s", schema_id, entry.number, error)
        return None
    props = {pair.key: pair.value for pair in info.props}
    return SchemaData(kind, info.schema, props, info.user, info.timestamp, info.deleted)
