"""Reading the broker's own ledgers (cursors, snapshots) when some of their entries are damaged.

A damaged entry has a wrong checksum, or no bookie has it any more. A retry doesn't help; other
entries are not affected.
"""

from __future__ import annotations

import logging

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.errors import DigestMismatch, NoSuchEntry, NoSuchLedger

_log = logging.getLogger(__name__)

DAMAGE = (DigestMismatch, NoSuchEntry, NoSuchLedger)
"""Errors of a read that a retry can't solve."""


async def open_salvaged(
    client: BookkeeperClient, ledger_id: int, password: bytes, consequence: str
) -> LedgerReader:
    """Open a ledger with recovery. If a damaged or lost entry prevents the recovery, open it up to
    the last confirmed entry, and log a warning with the `consequence`. Raises BookkeeperError,
    MetadataError.
    """
    try:
        return await client.open(ledger_id, password, recover=True)
    except (DigestMismatch, NoSuchEntry) as error:
        text = "ledger %d can't be recovered, only its confirmed part is read, %s: %s"
        _log.warning(text, ledger_id, consequence, error)
        return await client.open(ledger_id, password, recover=False)
