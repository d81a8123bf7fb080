"""The replication worker: takes tasks, one after the other (spec BK-26; Apache's
ReplicationWorker).
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from dataclasses import dataclass

import trio

from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.autorecovery.repair import Outcome, Repairer
from geminga_bookie.autorecovery.stats import RecoveryStats
from geminga_bookie.autorecovery.task_store import Task, TaskStore
from geminga_bookie.client.directory import BookieDirectory
from geminga_protocol.bookkeeper import underreplication as tree
from geminga_protocol.errors import RemoteProtocolError
from geminga_runtime.logs import FewLines
from geminga_runtime.metadata.api import (
    MetadataError,
    MetadataStore,
    Session,
    SessionExpired,
    SessionPhase,
)

_log = logging.getLogger(__name__)

POLL_S = 30.0
"""Tasks are looked for at least so often."""
DEFERRED_MAX = 256
"""Ledgers with open ends that one worker holds for their grace period."""
BACKOFFS_MAX = 10_000
"""Ledgers that could not be completed and are remembered."""
BACKOFF_MAX_S = 300.0
SETTLE_S = 0.05
"""Tasks that are published within this time are found by one look."""


@dataclass
class _Backoff:
    attempts: int
    until: float


class ReplicationWorker:
    """Works for ever, in one session after the other."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: BookieDirectory,
        tasks: TaskStore,
        options: AutoRecoveryOptions,
        stats: RecoveryStats | None = None,
    ) -> None:
        self._stats = stats or RecoveryStats()
        self._lines = FewLines(_log)
        self._store = store
        self._tasks = tasks
        self._options = options
        self._repairer = Repairer(store, bookies, options, stats=self._stats)
        self._backoffs: dict[int, _Backoff] = {}
        self._deferred = 0

    async def run(self) -> None:
        """Take tasks, for ever. Raises SessionExpired once the store is closed."""
        while True:
            session = self._store.session
            if session.phase is SessionPhase.CLOSED:
                raise SessionExpired("the metadata store is closed")
            self._tasks.forget()
            await self._run_session(session)

    async def _run_session(self, session: Session) -> None:
        """Until the session of that epoch ends: all locks are lost with it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work, session.epoch, nursery)
            try:
                await self._store.wait_change(session.epoch)
            except SessionExpired:
                pass  # closed
            nursery.cancel_scope.cancel()

    async def _work(self, epoch: int, nursery: trio.Nursery) -> None:
        while True:
            try:
                async with self._store.watch(tree.ROOT) as changes:
                    while True:
                        if not await self.look(epoch, nursery):
                            with trio.move_on_after(self._wait_s()):
                                await changes.receive()
                                await trio.sleep(SETTLE_S)
                        while changes.statistics().current_buffer_used:
                            changes.receive_nowait()
            except MetadataError as error:
                _log.warning("auto-recovery: the tasks can't be read: %s", error)
            except trio.EndOfChannel:
                return  # the store is closed
            await trio.sleep(self._options.backoff_ms / 1000)

    def _wait_s(self) -> float:
        now = trio.current_time()
        next_at = min((each.until for each in self._backoffs.values()), default=now + POLL_S)
        return max(SETTLE_S, min(next_at - now, POLL_S))

    async def look(self, epoch: int, nursery: trio.Nursery) -> bool:
        """Work on each task that is there; returns whether one was completed. Raises
        MetadataError.
        """
        completed = False
        if not await self._tasks.is_enabled():
            return False
        started = trio.current_time()
        locked = await self._tasks.locked()
        async with aclosing(self._tasks.tasks()) as found:
            async for ledger_id in found:
                backoff = self._backoffs.get(ledger_id)
                if ledger_id in locked or (backoff and backoff.until > started):
                    continue
                task = await self._tasks.acquire(ledger_id, epoch)
                if task is None:
                    continue
                try:
                    completed |= await self._attend(task, nursery)
                except MetadataError:
                    self._tasks.abandon(ledger_id)
                    raise
                if not await self._tasks.is_enabled():
                    return False
        # Those that were due and not tried are done by others, or deleted.
        self._backoffs = {key: each for key, each in self._backoffs.items() if each.until > started}
        return completed

    async def _attend(self, task: Task, nursery: trio.Nursery) -> bool:
        """Work on a task whose lock we have; returns whether it is completed."""
        backoff = self._backoffs.get(task.ledger_id)
        attempts = backoff.attempts if backoff else 0
        try:
            suspects = set(task.missing.replicas) or None
            with self._stats.timed("replication_worker_rereplicate"):
                outcome = await self._repairer.repair(task.ledger_id, suspects, attempts)
        except RemoteProtocolError as error:
            self._lines.error("ledger %d has no valid metadata: %s", task.ledger_id, error)
            outcome = Outcome.LACKING
        if outcome is Outcome.WHOLE:
            self._backoffs.pop(task.ledger_id, None)
            completed = await self._tasks.complete(task)
            await self._tasks.release(task.ledger_id)
            if completed:
                self._stats.count("replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED")
                _log.info("ledger %d has all of its copies", task.ledger_id)
            return True
        if outcome is Outcome.OPEN and self._deferred < DEFERRED_MAX:
            self._deferred += 1
            nursery.start_soon(self._defer, task.ledger_id)
            return False
        self._back_off(task.ledger_id, attempts + 1)
        await self._tasks.release(task.ledger_id)
        return False

    def _back_off(self, ledger_id: int, attempts: int) -> None:
        self._stats.count("replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER")
        now = trio.current_time()
        if len(self._backoffs) >= BACKOFFS_MAX:
            self._backoffs = {key: each for key, each in self._backoffs.items() if each.until > now}
            if len(self._backoffs) >= BACKOFFS_MAX:
                self._backoffs.pop(next(iter(self._backoffs)))
        wait_s = min(BACKOFF_MAX_S, self._options.backoff_ms / 1000 * 2 ** min(attempts - 1, 16))
        self._backoffs[ledger_id] = _Backoff(attempts, now + wait_s)

    async def _defer(self, ledger_id: int) -> None:
        """Give the writer time to replace the lost bookie; then close the ledger. The lock is kept
        meanwhile, so that no other worker waits for the same.
        """
        try:
            await trio.sleep(self._options.grace_period_ms / 1000)
            if await self._tasks.is_enabled():
                await self._repairer.recover(ledger_id)
        except (MetadataError, RemoteProtocolError) as error:
            self._lines.warning("ledger %d can't be recovered: %s", ledger_id, error)
        finally:
            self._deferred -= 1
        try:
            await self._tasks.release(ledger_id)
        except MetadataError as error:
            _log.warning("the lock of ledger %d can't be given back: %s", ledger_id, error)
