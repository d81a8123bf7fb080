"""Writing a change of a ledger's ensemble to the metadata store (spec BK-21; Apache's
LedgerHandle.ensembleChangeLoop)."""

from __future__ import annotations

from collections.abc import Collection

import trio

from geminga_bookie.client.api import LedgerMetadata, LedgerState
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.metadata_store import LedgerMetadataStore, VersionedMetadata
from geminga_bookie.client.placement import change_ensemble
from geminga_bookie.errors import (
    LedgerFenced,
    MetadataConflict,
    NotEnoughBookies,
    RequestTimeout,
)
from geminga_runtime.metadata.api import SessionExpired, StoreUnavailable

RETRY_S = 0.1
"""Wait after the metadata store didn't answer."""


async def write_change(
    store: LedgerMetadataStore,
    known: VersionedMetadata,
    failed: Collection[str],
    lac: int,
    bookies: BookieDirectory,
) -> VersionedMetadata:
    """Replace failed bookies from the entry after `lac` on; returns the durable metadata. Waits
    while the metadata store is away, and then looks whether its change was made.

    Raises NotEnoughBookies if nothing was changed; LedgerFenced if another client recovers or has
    closed the ledger; NoSuchLedger if it was deleted; RequestTimeout if it can't be told whether a
    change was made.
    """
    tried: list[LedgerMetadata] = []
    while True:
        try:
            wanted = change_ensemble(
                known.metadata, failed, lac, bookies.writable(), bookies.rules()
            )
        except NotEnoughBookies as error:
            if not tried:
                raise
            # The store's view may be behind: a change that was sent may be found later.
            raise RequestTimeout(f"{error}; and the metadata store didn't answer") from error
        try:
            return await store.update(known, wanted)
        except MetadataConflict:
            pass
        except (StoreUnavailable, SessionExpired):
            tried.append(wanted)
            await trio.sleep(RETRY_S)  # noqa: ASYNC120 - nothing is undone
        found = await _read(store, known.metadata.ledger_id)
        if found.metadata in tried:
            return found
        if not _is_ours(found.metadata, known.metadata):
            raise LedgerFenced(f"ledger {known.metadata.ledger_id} was taken over")
        known = found


def _is_ours(found: LedgerMetadata, known: LedgerMetadata) -> bool:
    """Whether this writer may go on: others may only have copied entries of earlier fragments."""
    last = max(known.ensembles)
    return (
        found.state is LedgerState.OPEN
        and max(found.ensembles) == last
        and found.ensembles[last] == known.ensembles[last]
    )


async def _read(store: LedgerMetadataStore, ledger_id: int) -> VersionedMetadata:
    while True:
        try:
            return await store.read(ledger_id)
        except (StoreUnavailable, SessionExpired):
            await trio.sleep(RETRY_S)  # noqa: ASYNC120 - nothing is undone
