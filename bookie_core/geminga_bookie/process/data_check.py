"""The check of ledgers in doubt in a bookie's process (spec BK-02, BK-26)."""

from __future__ import annotations

import logging

import trio

from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.errors import DataDirError
from geminga_bookie.integrity.check import DataCheck
from geminga_bookie.integrity.doubts import Doubts
from geminga_bookie.process.identity import cluster_of
from geminga_bookie.process.live_ledgers import LiveLedgers
from geminga_bookie.registered import open_registered_bookies
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_bookie.wire.options import RemoteOptions
from geminga_runtime.metadata.api import MetadataError, MetadataStore

RETRY_S = 10.0

_log = logging.getLogger(__name__)


async def end_doubts(
    store: MetadataStore,
    remote: RemoteOptions,
    options: AutoRecoveryOptions,
    bookie: InProcessBookie,
) -> None:
    """Return when no ledger of the bookie is in doubt. Errors are logged."""
    while True:
        try:
            doubts = Doubts(bookie)
            if not doubts.may_have_forgotten and not await doubts.ledgers():
                return
            live = LiveLedgers(store, await cluster_of(store))
            async with open_registered_bookies(store, remote) as bookies:
                await DataCheck(bookie, store, bookies, (live.ids, live.exists), options).run()
            return
        except* (MetadataError, DataDirError, OSError) as errors:
            _log.warning("ledgers in doubt can't be checked yet: %s", errors.exceptions[0])
        await trio.sleep(RETRY_S)
