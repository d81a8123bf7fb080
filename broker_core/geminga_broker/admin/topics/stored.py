"""What is stored of a topic, read without loading it: `internal-info` and `backlog` (spec OP-04;
Apache's `ManagedLedgerFactoryImpl.asyncGetManagedLedgerInfo`, `ManagedLedgerOfflineBacklog`).
"""

from __future__ import annotations

from typing import cast

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_bookie.errors import BookkeeperError, NoSuchLedger
from geminga_broker.admin import rest
from geminga_broker.admin.answers import (
    CursorBacklog,
    Dates,
    OfflineBacklog,
    Place,
    StoredCursor,
    StoredLedger,
    StoredLog,
    StoredLogs,
)
from geminga_broker.admin.topics.property_rules import OWN_PREFIX
from geminga_broker.log.catalog import DELETED_PROPERTY, ROOT, chain_of
from geminga_broker.log.chain import LedgerChain
from geminga_broker.log.cursor_store import cursor_names
from geminga_broker.log.position_info import NO_LEDGER
from geminga_broker.log.salvage import last_state
from geminga_broker.service import BrokerService
from geminga_broker.topic.stats import iso_time
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.managed_ledger import decode_cursor_info, decode_ledger_info
from geminga_protocol.pb.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from geminga_protocol.topic_name import TopicName, url_decode
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import Node

UNREADABLE = -1
"""The backlog of a cursor whose ledger can't be read."""


async def _node_of(service: BrokerService, name: TopicName) -> tuple[Node, ManagedLedgerInfo]:
    """A topic's log in the metadata store. Raises RestError 404."""
    node = await service.store.get(f"{ROOT}/{name.persistence_naming_encoding}")
    if node is not None:
        info = decode_ledger_info(node.value)
        if all(entry.key != DELETED_PROPERTY for entry in info.properties):
            return node, info
    raise rest.RestError(404, f"Topic {name} not found")


async def _info_of(service: BrokerService, name: TopicName) -> ManagedLedgerInfo:
    """The same; an empty one of a topic that isn't there. Raises RestError 404 for a namespace that
    isn't.
    """
    if not await service.namespaces.exists(name.namespace):
        raise rest.RestError(404, "Namespace not found")
    try:
        return (await _node_of(service, name))[1]
    except rest.RestError:
        return ManagedLedgerInfo()


async def _cursors_of(
    service: BrokerService, name: TopicName
) -> list[tuple[str, Node, ManagedCursorInfo]]:
    """Its cursors by their names as stored."""
    log_name = name.persistence_naming_encoding
    found = []
    for encoded in await cursor_names(service.store, log_name):
        node = await service.store.get(f"{ROOT}/{log_name}/{encoded}")
        if node is not None:
            found.append((encoded, node, decode_cursor_info(node.value)))
    return found


def _dates(node: Node) -> Dates:
    return {
        "version": node.stat.version,
        "creationDate": iso_time(node.stat.ctime_ms),
        "modificationDate": iso_time(node.stat.mtime_ms),
    }


def _position(ledger_id: int, entry_id: int) -> Place:
    return {"ledgerId": ledger_id, "entryId": entry_id}


def _ledger_json(ledger: ManagedLedgerInfo.LedgerInfo) -> StoredLedger:
    found: dict[str, int] = {}
    for field in ("entries", "size", "timestamp"):
        if ledger.HasField(field):
            found[field] = getattr(ledger, field)
    return cast(
        StoredLedger,
        {"ledgerId": ledger.ledgerId, **found, "isOffloaded": ledger.offloadContext.complete},
    )


def _cursor_json(node: Node, cursor: ManagedCursorInfo) -> StoredCursor:
    dates = _dates(node)
    found: StoredCursor = {
        "version": dates["version"],
        "creationDate": dates["creationDate"],
        "modificationDate": dates["modificationDate"],
        "cursorsLedgerId": cursor.cursorsLedgerId,
    }
    if cursor.HasField("markDeleteLedgerId"):
        found["markDelete"] = _position(cursor.markDeleteLedgerId, cursor.markDeleteEntryId)
    if cursor.individualDeletedMessages:
        found["individualDeletedMessages"] = [
            {
                "from": _position(each.lowerEndpoint.ledgerId, each.lowerEndpoint.entryId),
                "to": _position(each.upperEndpoint.ledgerId, each.upperEndpoint.entryId),
            }
            for each in cursor.individualDeletedMessages
        ]
    if cursor.properties:
        found["properties"] = {each.name: each.value for each in cursor.properties}
    return found


async def internal_info(service: BrokerService, name: TopicName) -> StoredLog:
    """Apache's `ManagedLedgerInfo` of a topic without partitions. Raises RestError 404."""
    node, info = await _node_of(service, name)
    found: dict[str, object] = {
        **_dates(node),
        "ledgers": [_ledger_json(each) for each in info.ledgerInfo],
    }
    if info.HasField("terminatedPosition"):
        end = info.terminatedPosition
        found["terminatedPosition"] = _position(end.ledgerId, end.entryId)
    found["cursors"] = {
        encoded: _cursor_json(at, cursor)
        for encoded, at, cursor in await _cursors_of(service, name)
    }
    shown = {
        entry.key: entry.value for entry in info.properties if not entry.key.startswith(OWN_PREFIX)
    }
    return cast(StoredLog, {**found, "properties": shown} if shown else found)


class _Backlogs:
    """Reads ends and marks from ledgers without closing them to their writers."""

    def __init__(self, service: BrokerService) -> None:
        self._open = service.open_ledger

    async def chain(self, info: ManagedLedgerInfo) -> LedgerChain:
        """The stored chain, with the present end of an open ledger."""
        chain = chain_of(info)
        for ledger in list(chain):
            if ledger.closed_ms:
                continue
            try:
                reader = await self._open(ledger.ledger_id)
            except NoSuchLedger:
                continue
            try:
                entries, ledger.size_bytes = reader.last_add_confirmed + 1, reader.length
            finally:
                with trio.CancelScope(shield=True):
                    await reader.aclose()
            chain.extend(ledger, entries, 1)
        return chain

    async def mark_of(self, about: str, cursor: ManagedCursorInfo) -> Position | None:
        """A cursor's last stored mark-delete position; None if it can't be read."""
        known = Position(cursor.markDeleteLedgerId, cursor.markDeleteEntryId)
        if cursor.cursorsLedgerId == NO_LEDGER:
            return known
        try:
            reader = await self._open(cursor.cursorsLedgerId)
            try:
                found = await last_state(reader, about)
            finally:
                with trio.CancelScope(shield=True):
                    await reader.aclose()
        except (BookkeeperError, RemoteProtocolError):
            return None
        return known if found is None else found.mark_delete


async def offline_backlog(service: BrokerService, name: TopicName) -> OfflineBacklog:
    """Apache's `PersistentOfflineTopicStats`: entries between each cursor's stored place and the
    end; single acknowledgements beyond it are not counted. Without such a topic all is 0. Raises
    RestError 404 without its namespace, BookkeeperError.
    """
    info = await _info_of(service, name)
    reading = _Backlogs(service)
    chain = await reading.chain(info)
    last = chain.last_position()
    details: dict[str, CursorBacklog] = {}
    backlog = 0
    for encoded, _, cursor in await _cursors_of(service, name) if len(chain) else ():
        mark = await reading.mark_of(f"{name} {url_decode(encoded)}", cursor)
        own = UNREADABLE if mark is None else chain.entries_between(mark, last)
        backlog += max(own, 0)
        details[encoded] = {"cursorBacklog": own, "cursorLedgerId": cursor.cursorsLedgerId}
    return {
        "storageSize": chain.size_bytes,
        "totalMessages": chain.entries,
        "messageBacklog": backlog,
        "brokerName": service.addresses.broker_id.rpartition(":")[0],
        "topicName": name.persistence_naming_encoding,
        "dataLedgerDetails": [],
        "cursorDetails": details,
        "statGeneratedAt": wall_clock_ms(),
    }


def routes(service: BrokerService, domain: str) -> list[Route]:
    """All routes of the family for one domain."""

    async def info(request: Request) -> Response:
        name = rest.persistent_topic_of(request, domain)
        if not await service.namespaces.exists(name.namespace):
            raise rest.RestError(404, "Namespace not found")
        count = 0 if name.is_partition else await service.catalog.partitions(name)
        if not count:
            return rest.ok(await internal_info(service, name), StoredLog)
        parts = [name.partition(index) for index in range(count)]
        found = {str(part): await internal_info(service, part) for part in parts}
        return rest.ok({"version": 0, "partitions": found}, StoredLogs)

    async def backlog(request: Request) -> Response:
        return rest.ok(
            await offline_backlog(service, rest.topic_of(request, domain)), OfflineBacklog
        )

    one = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
    return [
        rest.route("GET", one + "/internal-info", info),
        rest.route("GET", one + "/backlog", backlog),
    ]
