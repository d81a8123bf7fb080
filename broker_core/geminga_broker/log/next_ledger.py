"""Makes a log's next ledger, and names it in the log's node: the write that claims the log."""

from __future__ import annotations

from functools import partial

from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.append import LedgerWriter
from geminga_broker.log.chain import LedgerInfo
from geminga_broker.log.context import LogContext


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
