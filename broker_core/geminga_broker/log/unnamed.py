"""Naming ledgers, and cleaning up after crashes between making one and naming it (spec BR-04).

A ledger's custom metadata say whose it is, and the owner's node says whether it names the ledger.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.errors import NoSuchLedger
from geminga_broker.log.catalog import COMPACTED, COMPACTED_TOPIC, ROOT
from geminga_broker.log.chain import LedgerInfo
from geminga_broker.log.context import LogContext
from geminga_broker.log.cursor_store import CursorKey, ledgers_of_cursor
from geminga_broker.log.options import COMPONENT, CURSOR_NAME, LOG_NAME
from geminga_broker.log.reserved_cursors import COMPACTION
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.managed_ledger import decode_ledger_info
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import MUST_NOT_EXIST, BadVersion, MetadataStore

_log = logging.getLogger(__name__)

UNNAMED_S_MAX = 300.0
"""A ledger that is still unnamed after this time has no maker any more; making takes seconds."""

LINES_MAX = 20
"""Ledgers that one cleaning names in the log because of records that can't be decoded."""

_CURRENT = "/geminga/ledger-cleaning"
"""Written before owners' nodes are read, so that ZooKeeper answers with their newest values."""

_OWNER = "/geminga/ledger-owner"

IsNamed = Callable[[int, Mapping[str, bytes]], Awaitable[bool]]
"""Gets a ledger's id and custom metadata; returns whether its owner's metadata name it."""


async def ledger_owner(store: MetadataStore) -> str:
    """The id of the metadata that name ledgers here, made when it is first asked for.

    Several clusters may share their bookies, each with metadata of its own: what one doesn't name
    another one may. Raises MetadataError.
    """
    node = await store.get(_OWNER)
    if node is None:
        made = uuid.uuid4().hex
        try:
            await store.put(_OWNER, made.encode(), MUST_NOT_EXIST)
        except BadVersion:
            return await ledger_owner(store)
        return made
    return node.value.decode("ascii", "replace")


async def clean(
    client: BookkeeperClient,
    store: MetadataStore,
    owners: Mapping[bytes, IsNamed],
    made_before_ms: int,
) -> list[int]:
    """Delete ledgers of these components that crashes left unnamed; returns their ids. One whose
    own or whose owner's record can't be decoded stays. Idempotent. Raises MetadataError, and what
    else `owners` raise.
    """
    deleted: list[int] = []
    invalid = 0
    for ledger_id, version in await client.unnamed.old(made_before_ms):
        try:
            if await _clean_one(client, store, owners, ledger_id, version):
                deleted.append(ledger_id)
        except RemoteProtocolError as error:
            invalid += 1
            if invalid <= LINES_MAX:
                _log.warning("unnamed ledger %d can't be deleted: %s", ledger_id, error)
    return deleted


async def _clean_one(
    client: BookkeeperClient,
    store: MetadataStore,
    owners: Mapping[bytes, IsNamed],
    ledger_id: int,
    version: int,
) -> bool:
    """Whether it was deleted."""
    try:
        about = (await client.metadata(ledger_id)).custom_metadata
    except NoSuchLedger:
        await client.unnamed.forget(ledger_id)  # noqa: ASYNC120
        return False
    is_named = owners.get(about.get(COMPONENT, b""))
    if is_named is None or not await client.unnamed.claim(ledger_id, version):
        return False
    await store.put(_CURRENT, b"")
    if await is_named(ledger_id, about):
        await client.unnamed.forget(ledger_id)
        return False
    await client.unnamed.abandon(ledger_id)
    _log.info("unnamed ledger %d deleted: %s", ledger_id, _text(about))
    return True


def log_ledgers(store: MetadataStore) -> dict[bytes, IsNamed]:
    """What names ledgers of logs, of their cursors, and of compaction."""

    async def of_log(ledger_id: int, about: Mapping[str, bytes]) -> bool:
        log_name, cursor_name = about[LOG_NAME].decode(), about.get(CURSOR_NAME)
        if cursor_name is not None:
            key = CursorKey(log_name, cursor_name.decode())
            return ledger_id in await ledgers_of_cursor(store, key.path)
        node = await store.get(f"{ROOT}/{log_name}")
        named = decode_ledger_info(node.value).ledgerInfo if node is not None else ()
        return any(each.ledgerId == ledger_id for each in named)

    async def of_compaction(ledger_id: int, about: Mapping[str, bytes]) -> bool:
        topic = TopicName.parse(about[COMPACTED_TOPIC].decode())
        key = CursorKey(topic.persistence_naming_encoding, COMPACTION)
        return ledger_id in await ledgers_of_cursor(store, key.path)

    return {b"managed-ledger": of_log, COMPACTED: of_compaction}


def _text(about: Mapping[str, bytes]) -> str:
    return ", ".join(f"{key}={value[:256]!r}" for key, value in sorted(about.items()))[:1024]


async def open_named(context: LogContext) -> LedgerWriter:
    """The ledger behind those of the chain. Raises LogFenced, BookkeeperError, MetadataError."""
    options = context.durability.ledger_options(context.name)
    client, catalog = context.client, context.catalog
    if client.keeps_ledgers_in(catalog.store):
        return await catalog.save_with_new(context.chain, partial(client.create_named, options))
    return await _made_and_named(context, options)


async def _made_and_named(context: LogContext, options: LedgerOptions) -> LedgerWriter:
    """With ledgers in a store of their own (`bookkeeperMetadataServiceUri`): one write after the
    other, with a note of the ledger until it is named.
    """
    client, catalog = context.client, context.catalog
    writer = await client.create(options, unnamed=True)
    ledger = LedgerInfo(writer.ledger_id)
    # If it can't be named, or perhaps is, it is deleted with the others.
    catalog.deleting[ledger.ledger_id] = None
    stray = dict(catalog.deleting)
    del catalog.deleting[ledger.ledger_id]
    try:
        await catalog.save([*context.chain, ledger])
        await client.unnamed.name(ledger.ledger_id)
    except BaseException:
        catalog.deleting = stray
        raise
    return writer
