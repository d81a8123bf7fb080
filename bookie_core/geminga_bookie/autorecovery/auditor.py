"""The auditor: finds lost bookies and entries with too few copies, and publishes tasks (spec BK-26;
Apache's Auditor, AuditorBookieCheckTask, AuditorCheckAllLedgersTask).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import aclosing

import trio

from geminga_bookie.autorecovery.fragments import closed_fragments, holders
from geminga_bookie.autorecovery.inspection import Inspector
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.autorecovery.pace import Pace
from geminga_bookie.autorecovery.placement_check import misplaced
from geminga_bookie.autorecovery.registrations import Registered, read_registered
from geminga_bookie.autorecovery.stats import RecoveryStats
from geminga_bookie.autorecovery.task_store import TaskStore
from geminga_bookie.client.api import LedgerMetadata
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.errors import NoSuchLedger
from geminga_protocol.bookkeeper import paths
from geminga_protocol.bookkeeper import underreplication as tree
from geminga_protocol.bookkeeper.digest import Digest
from geminga_protocol.errors import RemoteProtocolError
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.logs import FewLines
from geminga_runtime.metadata.api import MetadataError, MetadataStore
from geminga_runtime.waiters import Wakeup

_log = logging.getLogger(__name__)

RETRY_S = 10.0
POLL_S = 60.0
"""Registrations are read at least so often."""
SETTLE_S = 0.1
READERS = 8
"""Ledgers whose metadata are read at the same time."""
CHECK_BYTES_PER_S = 32 * 1024 * 1024
"""Bound of what the check of all ledgers reads of bookies that don't list their entries."""
MISPLACED_LINES_MAX = 20
"""Ledgers that one check of the placement names in the log."""
WAITING_MAX = 10_000
"""Bookies that are away and may come back."""


def due(away: Mapping[str, float], now: float, delay_s: float) -> tuple[bool, float]:
    """Whether it is time to look for the ledgers of bookies that are away since then, and when it
    will be. Two that are away at once are not waited for: the next one may have the last copy.
    """
    if not away:
        return False, math.inf
    at = now if len(away) > 1 else min(away.values()) + delay_s
    return at <= now, at


class Auditor:
    """Runs while it is elected."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: BookieDirectory,
        tasks: TaskStore,
        options: AutoRecoveryOptions,
        stats: RecoveryStats | None = None,
    ) -> None:
        self._bookies = bookies
        self._stats = stats or RecoveryStats()
        self._lines = FewLines(_log)
        self._store = store
        self._tasks = tasks
        self._options = options
        self._ledgers = LedgerMetadataStore(store)
        self._inspector = Inspector(
            bookies, batch_entries=options.batch_entries, pace=Pace(CHECK_BYTES_PER_S)
        )
        self._away: dict[str, float] = {}
        """Bookies that are not registered any more, whose ledgers are not marked yet."""
        self._audited: set[str] = set()
        """Those whose ledgers are."""
        self._known: set[str] = set()
        self._delay_s = options.lost_bookie_delay_s
        self._wakeup = Wakeup()
        self._forced = False
        self._changes = 0
        """How often the registrations changed."""

    async def run(self) -> None:
        """Audit, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._repeat, self._follow_bookies)
            nursery.start_soon(self._repeat, self._follow_delay)
            nursery.start_soon(self._repeat, self._audit_bookies)
            if self._options.ledger_check_interval_s:
                nursery.start_soon(self._repeat, self._check_ledgers)
            if self._options.placement_check_interval_s:
                nursery.start_soon(self._repeat, self._check_placement)

    async def _repeat(self, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await act()
            except MetadataError as error:
                _log.warning("the auditor waits for the metadata store: %s", error)
            await trio.sleep(RETRY_S)

    async def _follow_bookies(self) -> None:
        async with self._store.watch(paths.available()) as changes:
            self._wakeup.set()
            async for _ in changes:
                self._changes += 1  # at once: an audit that is under way must learn of it
                self._wakeup.set()

    async def _follow_delay(self) -> None:
        """A delay that is set again to the same value asks for an audit, as in Apache's shell."""
        self._delay_s = await self._tasks.init_lost_bookie_delay(self._options.lost_bookie_delay_s)
        async with self._store.watch(tree.LOST_BOOKIE_RECOVERY_DELAY) as changes:
            async for _ in changes:
                delay_s = await self._tasks.lost_bookie_delay()
                if delay_s is None:
                    continue
                self._forced |= delay_s in (0, self._delay_s)
                self._delay_s = delay_s
                self._wakeup.set()

    async def _audit_bookies(self) -> None:
        """Look for lost bookies when one leaves, and periodically."""
        await self._tasks.prepare()
        interval_s = self._options.bookie_check_interval_s or math.inf
        next_check = trio.current_time()
        while True:
            if await self._tasks.is_enabled():
                self._learn(await read_registered(self._store))
                now = trio.current_time()
                is_due, next_due = due(self._away, now, self._delay_s)
                if is_due or self._forced or now >= next_check:
                    is_forced, self._forced = self._forced or is_due, False
                    await self._audit(is_forced)
                    next_check = trio.current_time() + interval_s
                    is_due, next_due = due(self._away, trio.current_time(), self._delay_s)
                wake_at = min(next_due, next_check, trio.current_time() + POLL_S)
            else:
                wake_at = trio.current_time() + RETRY_S
            with trio.move_on_at(wake_at):
                await self._wakeup.wait()
                await trio.sleep(SETTLE_S)

    def _learn(self, registered: Registered) -> None:
        """Who left, and who came back."""
        here = registered.writable | registered.readonly
        for bookie_id in self._known - here - self._audited:
            if bookie_id not in self._away:
                _log.warning("bookie %s is away", bookie_id)
                self._away[bookie_id] = trio.current_time()
                if self._delay_s:
                    self._stats.count("auditor_NUM_BOOKIE_AUDITS_DELAYED")
        for bookie_id in here:
            if self._away.pop(bookie_id, None) is not None:
                self._stats.count("auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED")
            self._audited.discard(bookie_id)
        self._known |= here

    async def _audit(self, is_forced: bool) -> None:
        """Mark the ledgers of lost bookies. Bookies that are away for less than the delay are left
        out, unless forced. Raises MetadataError.
        """
        changes = self._changes
        registered = await read_registered(self._store)
        lost: set[str] = set()
        marked = 0
        now = trio.current_time()

        async def mark(metadata: LedgerMetadata) -> None:
            nonlocal marked
            missing = [each for each in sorted(holders(metadata)) if each not in registered]
            for bookie_id in missing:
                if bookie_id not in self._audited and len(self._away) < WAITING_MAX:
                    self._away.setdefault(bookie_id, now)
            if not is_forced:
                missing = [each for each in missing if self._is_lost(each, now)]
            if missing:
                lost.update(missing)
                await self._tasks.publish(metadata.ledger_id, missing)
                marked += 1

        with self._stats.timed("auditor_AUDIT_BOOKIES_TIME"):
            await self._each_ledger(mark)
        self._stats.observe("auditor_NUM_UNDER_REPLICATED_LEDGERS", marked)
        if lost:
            _log.warning("lost bookies: %s; %d ledgers marked", ", ".join(sorted(lost)), marked)
        if changes != self._changes:
            return  # One may have come and gone, with new ledgers: they are looked at again.
        for bookie_id in [*lost, *(list(self._away) if is_forced else ())]:
            self._away.pop(bookie_id, None)
            self._audited.add(bookie_id)

    def _is_lost(self, bookie_id: str, now: float) -> bool:
        return self._away.get(bookie_id, -math.inf) + self._delay_s <= now

    async def _each_ledger(
        self, act: Callable[[LedgerMetadata], Awaitable[None]], readers: int = READERS
    ) -> None:
        """Call with the metadata of each ledger, some at the same time. Raises MetadataError."""
        failures: list[MetadataError] = []
        send, receive = trio.open_memory_channel[int](0)

        async def work() -> None:
            async for ledger_id in receive:
                try:
                    await act((await self._ledgers.read(ledger_id)).metadata)
                except NoSuchLedger:
                    pass
                except RemoteProtocolError as error:
                    self._lines.error("ledger %d has no valid metadata: %s", ledger_id, error)
                except MetadataError as error:
                    failures.append(error)
                    nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery, send:
            for _ in range(readers):
                nursery.start_soon(work)
            try:
                async with aclosing(self._ledgers.ids()) as ids:
                    async for ledger_id in ids:
                        await send.send(ledger_id)
            except MetadataError as error:
                failures.append(error)
                nursery.cancel_scope.cancel()
        if failures:
            raise failures[0]

    async def _check_ledgers(self) -> None:
        """Look for every entry of every closed fragment, periodically."""
        interval_s = self._options.ledger_check_interval_s
        await self._periodically(tree.CHECK_ALL_LEDGERS_TIME, interval_s, self.check_ledgers)

    async def _check_placement(self) -> None:
        interval_s = self._options.placement_check_interval_s
        await self._periodically(tree.PLACEMENT_CHECK_TIME, interval_s, self.check_placement)

    async def _periodically(
        self, path: str, interval_s: int, check: Callable[[], Awaitable[None]]
    ) -> None:
        """Check so long after the last one, whose time is at that path."""
        interval_ms = interval_s * 1000
        while True:
            checked = await self._tasks.checked_ms(path)
            wait_ms = 0 if checked is None else checked + interval_ms - wall_clock_ms()
            if wait_ms > 0:
                await trio.sleep(min(wait_ms, interval_ms) / 1000)
            elif await self._tasks.is_enabled():
                await check()
            else:
                return  # asked again soon

    async def check_ledgers(self) -> None:
        """One check of all ledgers. Raises MetadataError."""
        registered = await read_registered(self._store)
        marked = 0

        async def check(metadata: LedgerMetadata) -> None:
            nonlocal marked
            self._stats.count("auditor_NUM_LEDGERS_CHECKED")
            lacking = await self._lacking(metadata, registered)
            if lacking:
                await self._tasks.publish(metadata.ledger_id, sorted(lacking))
                marked += 1

        with self._stats.timed("auditor_CHECK_ALL_LEDGERS_TIME"):
            await self._each_ledger(check, readers=1)
        await self._tasks.set_checked(tree.CHECK_ALL_LEDGERS_TIME)
        await self._tasks.set_checked(tree.REPLICAS_CHECK_TIME)
        _log.info("all ledgers are checked: %d lack copies", marked)

    async def check_placement(self) -> None:
        """One check of the racks of all closed ledgers. Raises MetadataError."""
        rules, found = self._bookies.rules(), 0

        async def check(metadata: LedgerMetadata) -> None:
            nonlocal found
            if fragments := misplaced(metadata, rules):
                found += 1
                starts = {each.first for each in closed_fragments(metadata)}
                if self._options.moves_misplaced and starts.intersection(fragments):
                    await self._tasks.publish(metadata.ledger_id, ())
                if found <= MISPLACED_LINES_MAX:
                    _log.warning(
                        "ledger %d: the bookies of the fragment from entry %d on don't keep to "
                        "the placement rules: %s",
                        metadata.ledger_id,
                        fragments[0],
                        ", ".join(metadata.ensembles[fragments[0]]),
                    )

        with self._stats.timed("auditor_PLACEMENT_POLICY_CHECK_TIME"):
            overdue = await self._tasks.count_older(self._options.marked_grace_s)
            await self._each_ledger(check)
        values = self._stats.values
        values["auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY"] = found
        values["auditor_NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD"] = overdue
        await self._tasks.set_checked(tree.PLACEMENT_CHECK_TIME)
        _log.info("placement is checked: %d ledgers don't keep to the rules", found)

    async def _lacking(self, metadata: LedgerMetadata, registered: Registered) -> Collection[str]:
        """Registered bookies that lack entries; the others are the other audit's."""
        digest = Digest(metadata.digest_type.value, metadata.password)
        findings = await self._inspector.inspect(metadata, digest, registered)
        for error in findings.unknown:
            self._lines.warning("ledger %d can't be checked: %s", metadata.ledger_id, error)
        return {lack.bookie_id for lack in findings.lacks if lack.bookie_id in registered}
