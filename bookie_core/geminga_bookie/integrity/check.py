"""The check that ends the doubts of one bookie (spec BK-02, BK-26; Apache's DataIntegrityCheckImpl
and DataIntegrityService).

A ledger's doubt ends once the bookie has all that the metadata say it should have: an open ledger
is recovered and closed first, missing entries are copied from other bookies, with their digests
compared, and are on disk before the doubt goes. Each step can be the last one: the next start
begins again with what is left in doubt.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence

import trio

from geminga_bookie.autorecovery.copying import Copier
from geminga_bookie.autorecovery.fragments import Lack, closed_fragments, open_ensemble, share
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.autorecovery.pace import Pace
from geminga_bookie.autorecovery.registrations import read_registered
from geminga_bookie.client.api import LOSS_ACCEPTED, LedgerMetadata
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.health import ReadRank
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.client.placement_rules import PlacementRules
from geminga_bookie.errors import BookkeeperError, NoSuchLedger, StorageFailed
from geminga_bookie.integrity.doubts import Doubts
from geminga_bookie.options import LedgerExists, LiveLedgers
from geminga_bookie.port import BookiePort
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_protocol.bookkeeper.digest import Digest
from geminga_protocol.errors import RemoteProtocolError
from geminga_runtime.metadata.api import MetadataError, MetadataStore

RETRY_S = 3.0
"""Apache's interval; it doubles while nothing more can be settled."""
RETRY_MAX_S = 300.0
QUIET_S = 60.0
"""No doubt ends before: a recovery or copy that wrote to this bookie, before the ledger's metadata
name it, has ended then.
"""
LINES_MAX = 20
"""Errors that one round logs."""

_log = logging.getLogger(__name__)


class DataCheck:
    """Of one bookie, beside it; `bookies` are those of its cluster."""

    def __init__(
        self,
        bookie: InProcessBookie,
        store: MetadataStore,
        bookies: BookieDirectory,
        live: tuple[LiveLedgers, LedgerExists],
        options: AutoRecoveryOptions,
    ) -> None:
        self._bookie = bookie
        self._store = store
        self._ledgers = LedgerMetadataStore(store)
        self._bookies = _WithOwn(bookies, bookie)
        self._client = BookkeeperClient(self._bookies, store)
        self._live, self._exists = live
        self._options = options
        self._pace = Pace(options.replication_bytes_per_s)
        self._doubts = Doubts(bookie)
        self._quiet_at = trio.current_time() + QUIET_S
        self._lines = 0

    async def run(self) -> None:
        """Until nothing is in doubt. Errors are logged, and all is tried again."""
        _log.info(
            "bookie %s may have lost entries: its ledgers are compared with the metadata and the "
            "other bookies",
            self._bookie.bookie_id,
        )
        wait_s = RETRY_S
        known = -1
        while True:
            left = await self._try_round()
            if left == 0:
                _log.info("bookie %s: no ledger is in doubt", self._bookie.bookie_id)
                return
            wait_s = RETRY_S if left != known else min(RETRY_MAX_S, 2 * wait_s)
            known = left
            until_quiet_s = self._quiet_at - trio.current_time()
            await trio.sleep(min(wait_s, until_quiet_s) if until_quiet_s > 0 else wait_s)

    async def _try_round(self) -> int:
        try:
            return await self.check()
        except (MetadataError, BookkeeperError, OSError) as error:
            _log.warning("the check of ledgers in doubt waits: %s", error)
            return -1

    async def check(self) -> int:
        """One round; returns how many ledgers are in doubt still, and 1 more while some may be
        forgotten. Raises MetadataError, BookkeeperError, OSError.
        """
        doubts, self._lines = self._doubts, 0
        doubted = await doubts.ledgers()
        if not doubted and not doubts.may_have_forgotten:
            return 0
        is_quiet = trio.current_time() >= self._quiet_at
        if doubted:
            _log.info("bookie %s: %d ledgers are in doubt", self._bookie.bookie_id, len(doubted))
        left = 0
        ids = array("q")
        async for ledger_id in self._live():
            ids.append(ledger_id)
        for ledger_id in ids:
            if ledger_id in doubted:
                doubted.discard(ledger_id)
            elif not doubts.may_have_forgotten or await doubts.knows(ledger_id):
                continue
            left += not await self._healed(ledger_id, is_quiet)
        for ledger_id in sorted(doubted):
            if await self._exists(ledger_id):
                left += 1
            else:
                await doubts.settle(ledger_id)
        if left or not is_quiet:
            return left + 1
        return 0 if await doubts.end() else 1

    async def _healed(self, ledger_id: int, is_quiet: bool) -> bool:
        """Whether the ledger's doubt is ended. Raises MetadataError."""
        try:
            return await self._heal(ledger_id, is_quiet)
        except NoSuchLedger:
            return False  # deleted meanwhile: the next round sees
        except (BookkeeperError, RemoteProtocolError, OSError) as error:
            self._lines += 1
            if self._lines <= LINES_MAX:
                _log.warning("ledger %d stays in doubt: %s", ledger_id, error)
            return False

    async def _heal(self, ledger_id: int, is_quiet: bool) -> bool:
        own = self._bookie.bookie_id
        metadata = (await self._ledgers.read(ledger_id)).metadata
        if own in open_ensemble(metadata):
            await self._client.open(ledger_id, metadata.password, recover=True)
            metadata = (await self._ledgers.read(ledger_id)).metadata
        if not is_quiet:
            return not await self._doubts.knows(ledger_id)
        await self._complete(metadata)
        if await self._doubts.knows(ledger_id):
            await self._bookie.force(ledger_id)
        await self._doubts.settle(ledger_id)
        return True

    async def _complete(self, metadata: LedgerMetadata) -> None:
        """Copy what the bookie lacks of closed fragments. Raises BookkeeperError."""
        own = self._bookie.bookie_id
        digest = Digest(metadata.digest_type.value, metadata.password)
        registered = await read_registered(self._store)
        copier = Copier(
            metadata,
            digest,
            self._bookies,
            registered,
            batch_entries=self._options.batch_entries,
            pace=self._pace,
        )
        for fragment in closed_fragments(metadata):
            for place, bookie_id in enumerate(fragment.ensemble):
                before: Sequence[tuple[int, int]] = ()
                while bookie_id == own:
                    runs = share(metadata, fragment, place)
                    missing = await self._doubts.missing(metadata.ledger_id, runs)
                    if not missing:
                        break
                    if missing == before:
                        raise StorageFailed(f"entries from {missing[0][0]} on were not stored")
                    before = missing
                    try:
                        await copier.copy(Lack(fragment, place, missing), own)
                    except BookkeeperError as error:
                        if LOSS_ACCEPTED not in metadata.custom_metadata:
                            raise
                        text = "ledger %d: entries are given up, from %d on: %s"
                        _log.error(text, metadata.ledger_id, missing[0][0], error)
                        break


class _WithOwn:
    """A directory whose own bookie needs no connection. See `BookieDirectory`."""

    def __init__(self, bookies: BookieDirectory, own: BookiePort) -> None:
        self._bookies = bookies
        self._own = own
        self.writable = bookies.writable
        self.failed = bookies.failed
        self.slow = bookies.slow
        self.wait_change = bookies.wait_change
        self.check_writable = bookies.check_writable

    def port(self, bookie_id: str) -> BookiePort:
        return self._own if bookie_id == self._own.bookie_id else self._bookies.port(bookie_id)

    def rules(self) -> PlacementRules:
        return self._bookies.rules()

    def read_rank(self, bookie_id: str) -> ReadRank:
        return self._bookies.read_rank(bookie_id)
