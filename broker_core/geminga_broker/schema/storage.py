"""Versions of schemas in ledgers, in the form of Apache's `BookkeeperSchemaStorage` (spec BR-51).

A node at `/schemas/{tenant}/{namespace}/{encoded topic}` names the ledger of every version; each
ledger has one entry. A new ledger is unnamed (`client.unnamed`) until the node names it; those of a
schema that is deleted are listed at `/geminga/schema-deletions` before the node goes.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import trio
from google.protobuf.message import DecodeError

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.api import LedgerMetadata, LedgerOptions
from geminga_bookie.client.append import append_durably
from geminga_bookie.errors import BookkeeperError, NoSuchLedger
from geminga_broker.log.options import COMPONENT, LedgerDurability
from geminga_broker.log.salvage import DAMAGE
from geminga_broker.log.unnamed import UNNAMED_S_MAX, clean
from geminga_broker.schema.model import SchemaStorageFailed
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.pb.schema_storage_pb2 import (
    IndexEntry,
    PositionInfo,
    SchemaEntry,
    SchemaLocator,
)
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataError,
    MetadataStore,
    NoNode,
)

_log = logging.getLogger(__name__)

ENTRIES_CACHED_MAX = 1024
"""Cached schemas of all topics; they never change."""
WORK_S_MAX = 30.0
"""Timeout of creating or deleting a version."""
_ROOT = "/schemas"
_DELETIONS = "/geminga/schema-deletions"
_PASSWORD = b""
_COMPONENT = {"application": b"pulsar", COMPONENT: b"schema"}
_SCHEMA_ID = "pulsar/schemaId"
_DAMAGE = (*DAMAGE, DecodeError)
"""Errors of a read that a retry can't solve."""


class StoredEntry(NamedTuple):
    """A version's number, content (None: damaged or lost) and hash."""

    number: int
    data: bytes | None
    hash: bytes


class Locator(NamedTuple):
    """A topic's node and its version in the metadata store."""

    value: SchemaLocator
    stat_version: int


class SchemaStorage:
    """Versions by schema id (`tenant/namespace/encoded topic`). Raises SchemaStorageFailed."""

    def __init__(
        self,
        store: MetadataStore,
        ledgers: BookkeeperClient,
        durability: LedgerDurability,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._store = store
        self._ledgers = ledgers
        self._durability = durability
        self._now_ms = now_ms
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    async def locate(self, schema_id: str) -> Locator | None:
        """The topic's node, None if it has no schema."""
        with _failures(schema_id):
            return await self._locator(schema_id)

    async def _locator(self, schema_id: str) -> Locator | None:
        """Raises MetadataError, DecodeError."""
        node = await self._store.get(f"{_ROOT}/{schema_id}")
        if node is None or not node.value:
            return None
        return Locator(SchemaLocator.FromString(node.value), node.stat.version)

    async def read_all(self, schema_id: str, locator: Locator | None) -> list[StoredEntry]:
        """All versions in order."""
        if locator is None:
            return []
        found = []
        for entry in locator.value.index:
            data = None
            try:
                data = await self._read(schema_id, entry.position)
            except _DAMAGE as error:
                text = "schema=%s: version %d is damaged or lost: %s"
                _log.warning(text, schema_id, entry.version, error)
            found.append(StoredEntry(entry.version, data, entry.hash))
        return found

    async def append(
        self, schema_id: str, locator: Locator | None, data: bytes, digest: bytes
    ) -> int:
        """Write the next version after those of `locator`; durable on return. Raises BadVersion,
        without leftovers, if there is a newer version.
        """
        with _failures(schema_id), trio.fail_after(WORK_S_MAX):
            return await self._append(schema_id, locator, data, digest)

    async def delete(self, schema_id: str) -> bool:
        """Delete all versions permanently; False if there are none."""
        with _failures(schema_id), trio.fail_after(WORK_S_MAX):
            while True:
                locator = await self.locate(schema_id)
                if locator is None:
                    return False
                ids = {entry.position.ledgerId for entry in locator.value.index}
                record = f"{schema_id}\n{','.join(map(str, sorted(ids)))}".encode()
                path, _ = await self._store.put(f"{_DELETIONS}/d-", record, sequential=True)
                try:
                    await self._store.delete(f"{_ROOT}/{schema_id}", locator.stat_version)
                    is_deleted = True
                except (BadVersion, NoNode):
                    is_deleted = False
                await self._finish_deletion(path, record)
                if is_deleted:
                    return True

    async def ids(self, namespace: str) -> list[str]:
        """Schema ids of a namespace (`tenant/namespace`)."""
        with _failures(namespace):
            names = await self._store.children(f"{_ROOT}/{namespace}")
            return [f"{namespace}/{name}" for name in names]

    async def ledgers_of(self, schema_id: str) -> list[LedgerMetadata]:
        """The ledgers of all versions, without lost ones."""
        with _failures(schema_id):
            locator = await self.locate(schema_id)
            found = []
            for entry in locator.value.index if locator else ():
                try:
                    found.append(await self._ledgers.metadata(entry.position.ledgerId))
                except NoSuchLedger:
                    continue
            return found

    async def collect(self, older_than_s: float = UNNAMED_S_MAX) -> int:
        """Delete the leftover ledgers of dead brokers; returns their number."""
        before_ms = self._now_ms() - int(older_than_s * 1000)
        with _failures(_DELETIONS):
            owners = {_COMPONENT[COMPONENT]: self._is_named}
            deleted = len(await clean(self._ledgers, self._store, owners, before_ms))
            for name in await self._store.children(_DELETIONS):
                path = f"{_DELETIONS}/{name}"
                node = await self._store.get(path)
                if node is None or node.stat.ctime_ms > before_ms:
                    continue
                try:
                    deleted += await self._finish_deletion(path, node.value)
                except DecodeError as error:
                    _log.warning("%s can't be finished: %s", path, error)
            return deleted

    async def _append(
        self, schema_id: str, locator: Locator | None, data: bytes, digest: bytes
    ) -> int:
        known = list(locator.value.index) if locator else []
        number = locator.value.info.version + 1 if locator else 0
        # As in Apache, the first entry's index has an invalid position.
        nowhere = PositionInfo(ledgerId=-1, entryId=-1)
        index = known or [IndexEntry(version=0, position=nowhere, hash=digest)]
        entry = SchemaEntry(schema_data=data, index=index)
        writer = await self._ledgers.create(self._options(schema_id), unnamed=True)
        try:
            entry_id = await append_durably(writer, [(entry.SerializeToString(),)])
            position = PositionInfo(ledgerId=writer.ledger_id, entryId=entry_id)
            await writer.close()
            info = IndexEntry(version=number, position=position, hash=digest)
            value = SchemaLocator(info=info, index=[*known, info]).SerializeToString()
            expected = locator.stat_version if locator else MUST_NOT_EXIST
            await self._store.put(f"{_ROOT}/{schema_id}", value, expected)
        except (BookkeeperError, BadVersion):
            await self._ledgers.unnamed.abandon(writer.ledger_id)  # noqa: ASYNC120
            raise
        await self._ledgers.unnamed.name(writer.ledger_id)
        self._keep((position.ledgerId, position.entryId), data)
        return number

    async def _read(self, schema_id: str, position: PositionInfo) -> bytes:
        """The content at a position. Also raises the errors of `_DAMAGE`."""
        key = position.ledgerId, position.entryId
        if (known := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return known
        with _failures(schema_id, *_DAMAGE):
            reader = await self._ledgers.open(key[0], _PASSWORD, recover=True)
            try:
                [view] = await reader.read(key[1], key[1])
                data = SchemaEntry.FromString(bytes(view)).schema_data
            finally:
                await reader.aclose()  # noqa: ASYNC102
        self._keep(key, data)
        return data

    def _keep(self, key: tuple[int, int], data: bytes) -> None:
        self._cache[key] = data
        while len(self._cache) > ENTRIES_CACHED_MAX:
            self._cache.popitem(last=False)

    def _options(self, schema_id: str) -> LedgerOptions:
        """Options with the owner's metadata of `LedgerMetadataUtils.buildMetadataForSchema`."""
        durability = self._durability
        return LedgerOptions(
            durability.ensemble_size,
            durability.write_quorum,
            durability.ack_quorum,
            durability.digest_type,
            _PASSWORD,
            {**_COMPONENT, _SCHEMA_ID: schema_id.encode()},
        )

    async def _named(self, schema_id: str) -> set[int]:
        """Ledgers that the schema's node names. Raises MetadataError, DecodeError."""
        locator = await self._locator(schema_id)
        return {each.position.ledgerId for each in locator.value.index} if locator else set()

    async def _is_named(self, ledger_id: int, about: Mapping[str, bytes]) -> bool:
        schema_id = about[_SCHEMA_ID].decode()
        try:
            return ledger_id in await self._named(schema_id)
        except DecodeError as error:
            raise RemoteProtocolError(f"schema {schema_id}: {error}") from error

    async def _finish_deletion(self, path: str, record: bytes) -> int:
        """Delete the ledgers of a record that the schema's node doesn't name (again)."""
        schema_id, _, listed = record.decode().partition("\n")
        named = await self._named(schema_id)
        gone = [int(text) for text in listed.split(",") if text and int(text) not in named]
        for ledger_id in gone:
            await self._ledgers.delete(ledger_id)
        try:
            await self._store.delete(path)
        except NoNode:
            pass
        return len(gone)


class _failures:
    """Maps storage errors to SchemaStorageFailed, except BadVersion and `passed`."""

    def __init__(self, about: str, *passed: type[Exception]) -> None:
        self._about = about
        self._passed: tuple[type[Exception], ...] = (BadVersion, *passed)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        wrapped = (BookkeeperError, MetadataError, DecodeError, trio.TooSlowError)
        if isinstance(error, wrapped) and not isinstance(error, self._passed):
            text = str(error) or type(error).__name__
            raise SchemaStorageFailed(f"schema {self._about}: {text}") from error
