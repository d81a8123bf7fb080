"""A log's ManagedLedgerInfo in the metadata store, changed by compare-and-set only (spec BR-01).

If a change conflicts with another writer's, another broker owns the log: LogFenced. If a change's
outcome is unknown, the node is read before the next change. Each node that is written here names
its writer, so that no two brokers write the same bytes (decision 36).
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.errors import BookkeeperError, NoSuchLedger
from geminga_broker.log.api import LogFenced
from geminga_broker.log.chain import LedgerChain, LedgerInfo
from geminga_broker.log.options import COMPONENT, LOG_NAME
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.managed_ledger import decode_ledger_info, encode_ledger_info
from geminga_protocol.pb.managed_ledger_pb2 import ManagedLedgerInfo
from geminga_protocol.topic_name import TopicName, url_decode, url_encode
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataStore,
    NoNode,
    SessionPhase,
    Write,
)

_log = logging.getLogger(__name__)

ROOT = "/managed-ledgers"

INDEX_PROPERTY = "index"
"""Index of the last message before the last ledger (as ManagedLedgerInterceptorImpl's)."""

DELETING_PROPERTY = "geminga.deleting"
"""Ledgers that may still exist, to be deleted unless the chain or a cursor of the log names them.
The write that takes a ledger out of the chain puts it here.
"""

OWNER_PROPERTY = "geminga.owner"
"""Who wrote the node: a random text of each loading. Apache's broker keeps it as it is."""

DELETING_MAX = 4096
"""Trimming waits while so many ledgers are still to be deleted: 80 KiB of the node."""

DELETED_PROPERTY = "geminga.deleted"
"""The log's deletion has begun and can't be undone; the next open continues it. The chain is empty:
a ledger there was added later, by a broker that doesn't know this property and used the log.
"""

DELETIONS = "/geminga/log-deletions"
"""Logs whose deletion has begun, by encoded name: the next start finds those that a crash
interrupted. Only a log's own node decides whether it is deleted.
"""

COMPACTED = b"compacted-ledger"
"""Component of compacted ledgers, whose topic is in `COMPACTED_TOPIC`."""
COMPACTED_TOPIC = "pulsar/compactedTopic"
_LOGS = b"managed-ledger"


CreateNamed = Callable[
    [Callable[[int], Sequence[Write]]], Awaitable[tuple[LedgerWriter, Sequence[int]]]
]
"""Makes a ledger together with the writes that name it (`BookkeeperClient.create_named`)."""


class _Attempt(NamedTuple):
    """A value whose write has an unknown outcome."""

    value: bytes
    info: ManagedLedgerInfo
    new_ledger: int | None = None
    """What is made by the same write."""


class LogCatalog:
    """The stored metadata of one log."""

    def __init__(self, store: MetadataStore, name: str) -> None:
        self.path = f"{ROOT}/{name}"
        self.owner = os.urandom(16).hex()
        """As `OWNER_PROPERTY`."""
        self.properties: dict[str, str] = {}
        self.terminated: Position | None = None
        self.deleting: dict[int, None] = {}
        """As `DELETING_PROPERTY`; changes are stored by the next save."""
        self.is_new = False
        """Whether no node was there at the load: so nothing beneath it either."""
        self._recorded: frozenset[int] = frozenset()
        """Ledgers that the stored node lists there: it can't name them in its chain."""
        self.store = store
        self._version = MUST_NOT_EXIST
        self._uncertain: list[_Attempt] | None = None
        self._saves = 0
        """Begun and ended saves: odd while one is under way."""
        self._info = ManagedLedgerInfo()

    @property
    def is_reachable(self) -> bool:
        """Whether the metadata store answers now, as far as is known."""
        return self.store.session.phase is SessionPhase.CONNECTED

    async def load(self) -> ManagedLedgerInfo | None:
        """Read the node; None if there is no such log."""
        node = await self.store.get(self.path)
        self.is_new = node is None
        if node is None or (not node.value and await self.store.children(self.path)):
            return None
        self._version = node.stat.version
        self._info = decode_ledger_info(node.value)
        self.properties.update((entry.key, entry.value) for entry in self._info.properties)
        self.properties.pop(OWNER_PROPERTY, None)
        listed = self.properties.pop(DELETING_PROPERTY, "")
        self.deleting = {int(text): None for text in listed.split(",") if text.isdecimal()}
        self._recorded = frozenset(self.deleting)
        if self._info.ledgerInfo and self.properties.pop(DELETED_PROPERTY, None) is not None:
            _log.warning("%s: another broker used it after its deletion had begun", self.path)
        if self._info.HasField("terminatedPosition"):
            at = self._info.terminatedPosition
            self.terminated = Position(at.ledgerId, at.entryId)
        return self._info

    async def claim(self) -> None:
        """Write the loaded node again, so that a former owner's next change conflicts. Raises
        LogFenced, MetadataError.
        """
        await self.save(chain_of(self._info))

    async def verify(self) -> None:
        """Raises LogFenced if another broker has changed the node since our last change, and
        MetadataError. No save may be under way.

        The store may answer with an older state: not with one before our own last change, nor
        before a change or a reading that was made here earlier.
        """
        if self._uncertain is not None:
            await self._settle(self._uncertain)
        node = await self.store.get(self.path)
        version = MUST_NOT_EXIST if node is None else node.stat.version
        if version != self._version:
            raise LogFenced(f"{self.path} was changed by another broker")

    async def verify_beside_saves(self) -> None:
        """As `verify`, at any time. If a save is under way, or one's outcome is unknown, that one
        finds out instead.
        """
        saves = self._saves
        node = await self.store.get(self.path)
        if saves % 2 or saves != self._saves or self._uncertain is not None:
            return
        if (MUST_NOT_EXIST if node is None else node.stat.version) != self._version:
            raise LogFenced(f"{self.path} was changed by another broker")

    async def note_deletion(self) -> None:
        """Make a later start continue the deletion, should it be interrupted."""
        await self.store.put(self._deletion, b"")

    async def keep_deletion_noted(self) -> None:
        """After the deletion was marked: another broker that saw no mark may have removed the note
        meanwhile. If it removes it later, it sees the mark then (`ManagedLedgerFactory`).
        """
        if not await self.store.exists(self._deletion):
            await self.note_deletion()

    async def forget_deletion(self) -> None:
        """The deletion is complete."""
        try:
            await self.store.delete(self._deletion)
        except NoNode:
            pass

    @property
    def _deletion(self) -> str:
        return f"{DELETIONS}/{url_encode(self.path.removeprefix(ROOT))}"

    async def save(self, ledgers: Iterable[LedgerInfo]) -> None:
        """Write these ledgers and the other fields to the node. Raises LogFenced if another broker
        wrote meanwhile, StoreUnavailable if the outcome is unknown.
        """
        self._saves += 1
        try:
            await self._save(ledgers)
        finally:
            self._saves += 1

    async def save_with_new(
        self, ledgers: Iterable[LedgerInfo], create: CreateNamed
    ) -> LedgerWriter:
        """As `save`, with a new ledger behind these, which is made by the same write, or not at
        all. Raises also what `create` raises.
        """
        self._saves += 1
        try:
            return await self._save_with_new(ledgers, create)
        finally:
            self._saves += 1

    async def _save_with_new(
        self, ledgers: Iterable[LedgerInfo], create: CreateNamed
    ) -> LedgerWriter:
        if self._uncertain is not None:
            await self._settle(self._uncertain)
        base, version = self._build(ledgers), self._version
        listed = frozenset(self.deleting)
        attempts: list[_Attempt] = []

        def naming(ledger_id: int) -> list[Write]:
            info = ManagedLedgerInfo()
            info.CopyFrom(base)
            info.ledgerInfo.add(ledgerId=ledger_id, timestamp=0)
            attempts.append(_Attempt(encode_ledger_info(info), info, ledger_id))
            return [Write(self.path, attempts[-1].value, version)]

        try:
            writer, (made,) = await create(naming)
        except BadVersion:
            raise LogFenced(f"{self.path} was changed by another broker") from None
        except BookkeeperError:  # nothing was written
            raise
        except BaseException:
            self._uncertain = attempts
            raise
        self._version, self._info = made, attempts[-1].info
        self._recorded = listed
        return writer

    async def _save(self, ledgers: Iterable[LedgerInfo]) -> None:
        if self._uncertain is not None:
            await self._settle(self._uncertain)
        info = self._build(ledgers)
        listed = frozenset(self.deleting)
        value = encode_ledger_info(info)
        try:
            _, stat = await self.store.put(self.path, value, self._version)
        except (BadVersion, NoNode):
            raise LogFenced(f"{self.path} was changed by another broker") from None
        except BaseException:
            # Cancelled or disconnected: the write may have succeeded.
            self._uncertain = [_Attempt(value, info)]
            raise
        self._version, self._info = stat.version, info
        self._recorded = listed

    def is_recorded(self, ledger_ids: Iterable[int]) -> bool:
        """Whether the stored node certainly lists these ledgers as to be deleted."""
        return self._uncertain is None and self._recorded.issuperset(ledger_ids)

    @property
    def is_deleted(self) -> bool:
        """Whether the log's deletion has begun."""
        return DELETED_PROPERTY in self.properties

    async def remove(self) -> None:
        """Delete the node. Raises LogFenced if another broker wrote meanwhile."""
        if self._uncertain is not None:
            await self._settle(self._uncertain)
        try:
            await self.store.delete(self.path, self._version)
        except NoNode:
            pass
        except BadVersion:
            raise LogFenced(f"{self.path} was changed by another broker") from None

    def cleared(self, ledger_ids: Iterable[int]) -> None:
        """These ledgers are deleted; the next save removes them from the list."""
        for ledger_id in ledger_ids:
            self.deleting.pop(ledger_id, None)

    async def _settle(self, attempts: Sequence[_Attempt]) -> None:
        node = await self.store.get(self.path)
        version = MUST_NOT_EXIST if node is None else node.stat.version
        written = [each for each in attempts if node is not None and node.value == each.value]
        if written and version == self._version + 1:
            self._version = version
            if written[0].new_ledger is not None:  # nobody has learnt of it
                self.deleting[written[0].new_ledger] = None
        elif version != self._version:
            raise LogFenced(f"{self.path} was changed by another broker")
        self._uncertain = None

    def _build(self, ledgers: Iterable[LedgerInfo]) -> ManagedLedgerInfo:
        info = ManagedLedgerInfo()
        before = {entry.ledgerId: entry for entry in self._info.ledgerInfo}
        for ledger in ledgers:
            added = info.ledgerInfo.add(ledgerId=ledger.ledger_id)
            known = before.get(ledger.ledger_id)
            if known is not None and known.HasField("offloadContext"):
                added.offloadContext.CopyFrom(known.offloadContext)
            if ledger.closed_ms:
                added.entries = ledger.entries
                added.size = ledger.size_bytes
            added.timestamp = ledger.closed_ms
        if self.terminated is not None:
            info.terminatedPosition.ledgerId = self.terminated.ledger_id
            info.terminatedPosition.entryId = self.terminated.entry_id
        properties = {**self.properties, OWNER_PROPERTY: self.owner}
        if self.deleting:
            properties[DELETING_PROPERTY] = ",".join(map(str, self.deleting))
        for key, value in sorted(properties.items()):
            info.properties.add(key=key, value=value)
        return info


def chain_of(info: ManagedLedgerInfo) -> LedgerChain:
    """The stored chain. A ledger without entries was left open."""
    chain = LedgerChain()
    for ledger in sorted(info.ledgerInfo, key=lambda ledger: ledger.ledgerId):
        closed_ms = max(ledger.timestamp, 1) if ledger.entries else 0
        chain.add(LedgerInfo(ledger.ledgerId, ledger.entries, ledger.size, closed_ms))
    return chain


async def log_names(store: MetadataStore, prefix: str) -> list[str]:
    """Names of the logs directly under `prefix` (`tenant/ns/persistent`)."""
    return [f"{prefix}/{child}" for child in await store.children(f"{ROOT}/{prefix}")]


async def begun_deletions(store: MetadataStore, before_ms: float = math.inf) -> list[str]:
    """Names of the logs whose deletion began before then, which a crash may have interrupted."""
    found: list[str] = []
    for child in await store.children(DELETIONS):
        node = None if before_ms == math.inf else await store.get(f"{DELETIONS}/{child}")
        if node is None or node.stat.mtime_ms < before_ms:
            found.append(url_decode(child).removeprefix("/"))
    return found


async def delete_own(client: BookkeeperClient, log_name: str, ledger_id: int) -> None:
    """Delete a ledger of the log, of its cursors or of its compaction; another one stays, with a
    warning, and so does one whose metadata can't be decoded. Idempotent. Raises MetadataError.

    Apache's broker, which serves the same topics before or after ours, keeps the properties of a
    topic beside `DELETING_PROPERTY`, and lets clients choose their names: without a look at the
    ledger, who may make a topic could have any ledger of the cluster deleted.
    """
    try:
        about = (await client.metadata(ledger_id)).custom_metadata
    except NoSuchLedger:
        return
    except RemoteProtocolError as error:
        # Whose it is can't be told. One that stays costs room, another one's is lost for good.
        _log.warning(
            "log=%s: ledger %d has no valid metadata, and stays: %s", log_name, ledger_id, error
        )
        return
    if is_own(about, log_name):
        await client.delete(ledger_id)
    else:
        _log.warning("log=%s: ledger %d is not its own, and stays", log_name, ledger_id)


def is_own(about: Mapping[str, bytes], log_name: str) -> bool:
    """Whether a ledger's custom metadata say so. Those of old brokers say nothing."""
    if LOG_NAME in about:
        return about[LOG_NAME] == log_name.encode()
    if COMPACTED_TOPIC not in about:
        return about.get(COMPONENT, _LOGS) == _LOGS
    try:
        topic = TopicName.parse(about[COMPACTED_TOPIC].decode())
    except (LocalProtocolError, UnicodeDecodeError):
        return False
    return topic.persistence_naming_encoding == log_name
