"""Giving one ledger all of its copies back (spec BK-26; Apache's ReplicationWorker.rereplicate).

Each step can be the last one: copies that no metadata name are written again, and replaced by
nothing; the metadata name a bookie only once it has all entries of its place.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Sequence
from enum import Enum

from geminga_bookie.autorecovery.copying import Copier
from geminga_bookie.autorecovery.fragments import (
    Fragment,
    Lack,
    choose_target,
    closed_fragments,
    needs_recovery,
    with_targets,
)
from geminga_bookie.autorecovery.inspection import Inspector
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.autorecovery.pace import Pace
from geminga_bookie.autorecovery.placement_check import misplaced, moves
from geminga_bookie.autorecovery.registrations import Registered, read_registered
from geminga_bookie.autorecovery.stats import WORKER, RecoveryStats
from geminga_bookie.client.api import LedgerMetadata
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.metadata_store import LedgerMetadataStore, VersionedMetadata
from geminga_bookie.errors import BookkeeperError, MetadataConflict, NoSuchLedger
from geminga_protocol.bookkeeper.digest import Digest
from geminga_runtime.logs import FewLines
from geminga_runtime.metadata.api import MetadataStore

_log = logging.getLogger(__name__)

_INSPECT_BYTES_PER_S = 0


class Outcome(Enum):
    """What became of a ledger."""

    WHOLE = "whole"
    """Every bookie has its entries, or the ledger is deleted."""
    OPEN = "open"
    """A bookie is lost that its writer may still replace."""
    LACKING = "lacking"
    """Something is missing that could not be copied now."""


class Repairer:
    """Repairs one ledger after the other. Errors of bookies are logged, and the ledger is lacking;
    raises MetadataError.
    """

    def __init__(
        self,
        store: MetadataStore,
        bookies: BookieDirectory,
        options: AutoRecoveryOptions,
        *,
        lost: Collection[str] = (),
        stats: RecoveryStats | None = None,
    ) -> None:
        """Bookies in `lost` are taken for lost, registered or not."""
        self._lost = frozenset(lost)
        self._stats = stats or RecoveryStats()
        self._lines = FewLines(_log)
        self._store = store
        self._ledgers = LedgerMetadataStore(store)
        self._bookies = bookies
        self._options = options
        self._pace = Pace(options.replication_bytes_per_s)
        self._inspector = Inspector(
            bookies, batch_entries=options.batch_entries, pace=Pace(_INSPECT_BYTES_PER_S)
        )

    async def repair(
        self, ledger_id: int, suspects: Container[str] | None, attempt: int = 0
    ) -> Outcome:
        """Copy what is missing, and replace bookies that are lost or read-only. `attempt` chooses
        other bookies each time. For the suspects see `Inspector.inspect`.
        """
        try:
            known = await self._ledgers.read(ledger_id)
            outcome, is_changed = await self._round(known, suspects, attempt)
            if outcome is Outcome.WHOLE and is_changed:
                known = await self._ledgers.read(ledger_id)
                outcome, is_changed = await self._round(known, suspects, attempt)
        except NoSuchLedger:
            return Outcome.WHOLE
        return Outcome.LACKING if outcome is Outcome.WHOLE and is_changed else outcome

    async def _round(
        self, known: VersionedMetadata, suspects: Container[str] | None, attempt: int
    ) -> tuple[Outcome, bool]:
        """Look, and repair what was found; also returns whether there was something."""
        metadata = known.metadata
        digest = Digest(metadata.digest_type.value, metadata.password)
        registered = await self._registered()
        findings = await self._inspector.inspect(metadata, digest, registered, suspects)
        for error in findings.unknown:
            self._lines.warning("ledger %d can't be checked: %s", metadata.ledger_id, error)
        is_whole = not findings.unknown
        by_fragment: dict[int, list[Lack]] = {}
        for lack in findings.lacks:
            by_fragment.setdefault(lack.fragment.first, []).append(lack)
        copier = Copier(
            metadata,
            digest,
            self._bookies,
            registered,
            batch_entries=self._options.batch_entries,
            pace=self._pace,
            stats=self._stats,
        )
        for lacks in by_fragment.values():
            targets, is_copied = await self._copy(copier, metadata, lacks, registered, attempt)
            is_whole &= is_copied
            if targets:
                is_whole &= await self._replace(metadata.ledger_id, lacks[0].fragment, targets)
        if not is_whole:
            return Outcome.LACKING, bool(findings.lacks)
        if needs_recovery(metadata, registered):
            return Outcome.OPEN, bool(findings.lacks)
        if self._options.moves_misplaced and not findings.lacks:
            return await self._move(copier, metadata, registered)
        return Outcome.WHOLE, bool(findings.lacks)

    async def _move(
        self, copier: Copier, metadata: LedgerMetadata, registered: Registered
    ) -> tuple[Outcome, bool]:
        """Give fragments other bookies where they don't keep to the rules. They are whole,
        and stay so: metadata name the new ones once they have everything.
        """
        rules = self._bookies.rules()
        wrong = set(misplaced(metadata, rules))
        is_done = True
        moved = 0
        writable = [each for each in self._bookies.writable() if each in registered.writable]
        for fragment in closed_fragments(metadata):
            if fragment.first not in wrong:
                continue
            targets = moves(metadata, fragment.first, writable, rules)
            if targets is None:
                self._lines.warning(
                    "ledger %d: no other bookies keep entries %d to %d to the placement rules",
                    metadata.ledger_id,
                    fragment.first,
                    fragment.end - 1,
                )
                is_done = False
                continue
            try:
                for place, target in targets.items():
                    await copier.copy(Lack(fragment, place, None), target)
            except BookkeeperError as error:
                self._lines.warning("entries can't be moved: %s", error)
                is_done = False
                continue
            is_replaced = await self._replace(metadata.ledger_id, fragment, targets)
            is_done &= is_replaced
            moved += is_replaced
        if moved:
            self._stats.count(f"{WORKER}_NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED")
        return Outcome.WHOLE if is_done else Outcome.LACKING, moved > 0

    async def _registered(self) -> Registered:
        return (await read_registered(self._store)).without(self._lost)

    async def _copy(
        self,
        copier: Copier,
        metadata: LedgerMetadata,
        lacks: Sequence[Lack],
        registered: Registered,
        attempt: int,
    ) -> tuple[dict[int, str], bool]:
        """Copy what places of a fragment lack; returns the new bookies of those that need one, and
        whether all was copied.
        """
        targets: dict[int, str] = {}
        is_copied = True
        for lack in lacks:
            target: str | None = lack.bookie_id
            if lack.bookie_id not in registered.writable:
                target = choose_target(
                    metadata,
                    lack,
                    targets,
                    [each for each in self._bookies.writable() if each in registered.writable],
                    self._bookies.rules(),
                    attempt,
                )
            if target is None:
                self._lines.warning(
                    "bookie %s of entries %d to %d can't be replaced: no other bookie is writable",
                    lack.bookie_id,
                    lack.fragment.first,
                    lack.fragment.end - 1,
                )
                is_copied = False
                continue
            try:
                await copier.copy(lack, target)
            except BookkeeperError as error:
                self._lines.warning(
                    "entries can't be copied to bookie %s: %s", target, error, about=target
                )
                is_copied = False
                continue
            if target != lack.bookie_id:
                targets[lack.place] = target
        return targets, is_copied

    async def _replace(self, ledger_id: int, fragment: Fragment, targets: dict[int, str]) -> bool:
        """Name the new bookies in the metadata; returns False if the fragment is not the same any
        more. Raises NoSuchLedger.
        """
        while True:
            known = await self._ledgers.read(ledger_id)
            changed = with_targets(known.metadata, fragment, targets)
            if changed is None:
                return False
            try:
                await self._ledgers.update(known, changed)
            except MetadataConflict:
                continue
            _log.info(
                "ledger %d, entries %d to %d: now on %s",
                ledger_id,
                fragment.first,
                fragment.end - 1,
                ", ".join(changed.ensembles[fragment.first]),
            )
            return True

    async def recover(self, ledger_id: int) -> None:
        """Close an open ledger if a bookie is lost that its writer may write to: with too many of
        them lost, nobody could find its end. Errors of bookies are logged.
        """
        try:
            metadata = (await self._ledgers.read(ledger_id)).metadata
            if needs_recovery(metadata, await self._registered()):
                client = BookkeeperClient(self._bookies, self._store)
                await client.open(ledger_id, metadata.password, recover=True)
                _log.info("ledger %d was closed: a bookie of its last fragment is lost", ledger_id)
        except NoSuchLedger:
            pass
        except BookkeeperError as error:
            self._lines.warning("ledger %d can't be recovered: %s", ledger_id, error)
