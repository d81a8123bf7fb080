"""Reading the broker's own ledgers (cursors, snapshots) when some of their entries are damaged.

A damaged entry is one whose checksum doesn't fit, or that no bookie has any more. Trying again
doesn't help; the entries beside it are as good as ever.
"""

from __future__ import annotations

import logging

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.errors import DigestMismatch, NoSuchEntry, NoSuchLedger

_log = logging.getLogger(__name__)

DAMAGE = (DigestMismatch, NoSuchEntry, NoSuchLedger)
"""Errors of reading that stay, however often it is tried."""


async def open_salvaged(
    client: BookkeeperClient, ledger_id: int, password: bytes, consequence: str
) -> LedgerReader:
    """Open a ledger with recovery. If a damaged or lost entry prevents the recovery: as far as it
    is confirmed; it stays open, and the log says so with the `consequence`. Raises BookkeeperError,
    MetadataError.
    """
    try:
        return await client.open(ledger_id, password, recover=True)
    except (DigestMismatch, NoSuchEntry) as error:
        text = "ledger %d can't be recovered, only its confirmed part is read, %s: %s"
        _log.warning(text, ledger_id, consequence, error)
        return await client.open(ledger_id, password, recover=False)
