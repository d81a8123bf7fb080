"""Compaction of one topic: runs, their outcome, and compacted reads (spec BR-50; Apache's
`PersistentTopic.triggerCompaction` and `PulsarTopicCompactionService`).

The cursor `__compaction` is at the horizon, up to which the compacted ledger replaces the log. The
cursor retains later entries. A run reads the last result and the log after it, twice; the last
result stays until the new one is stored in the cursor.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from geminga_broker.compaction.keys import LatestKeys
from geminga_broker.compaction.ledger import CompactedLedger
from geminga_broker.compaction.ledgers import EMPTIED, LEDGER_PROPERTY, CompactedLedgers
from geminga_broker.compaction.outcome import Outcome
from geminga_broker.compaction.passes import Walk, see_all, write_kept
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Cursor, Entry, LogClosed, LogError, LogReadFailed, ManagedLedger
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.reserved_cursors import COMPACTION
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.policies.model import TopicPolicies
from geminga_broker.topic.api import TopicEnvironment
from geminga_broker.topic.stats import LedgerInfo
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import EARLIEST, Position
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_runtime.background import run_guarded

_log = logging.getLogger(__name__)

CLEANUP_S_MAX = 10.0
"""Time for the clean-up of a failed or stopped run; the next run does the rest."""


class CompactionRunning(BrokerError):
    """A run is active (`AlreadyRunningException`)."""

    def __init__(self) -> None:
        super().__init__(ServerError.NotAllowedError, "Compaction already in progress")


class CompactionHost(Protocol):
    """The topic, as its compaction uses it."""

    name: str
    partition: int
    log: ManagedLedger
    environment: TopicEnvironment
    policies: TopicPolicies

    def check_open(self) -> None:
        """Raises BrokerError ServiceNotReady."""

    def adopt(self, cursor: Cursor) -> object:
        """Create the cursor's subscription if it is missing."""


class TopicCompaction:
    """The compaction of one topic, created with the topic after its log is open."""

    def __init__(self, host: CompactionHost) -> None:
        self.outcome = Outcome()
        self._host = host
        self._current: CompactedLedger | None = None
        self._horizon: Position | None = None
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()
        self._lock = trio.Lock()
        """Held while compacted ledgers are created or deleted."""
        cursor = host.log.cursors.get(COMPACTION)
        if isinstance(cursor, LogCursor) and cursor.durable:
            ledgers = self._ledgers(cursor)
            if ledgers.named is not None:
                self._current = CompactedLedger(ledgers.client, ledgers.named)
                self._horizon = cursor.mark_delete
            if not (ledgers.is_clean or ledgers.names_lost):
                host.environment.nursery.start_soon(run_guarded, self._collect, ledgers)

    async def recover(self) -> None:
        """If the ledger named by the cursor doesn't exist, take the newest complete one. Call it
        before the topic is used. Raises LogError.
        """
        cursor = self._host.log.cursors.get(COMPACTION)
        if not (isinstance(cursor, LogCursor) and cursor.durable):
            return
        ledgers = self._ledgers(cursor)
        if not ledgers.names_lost:
            return
        found = await ledgers.newest()
        if found is not None:
            ledger_id, upto = found
            text = "topic=%s uses compacted ledger %d, up to %s: its cursor's state was lost"
            _log.warning(text, self._host.name, ledger_id, upto)
            cursor.ack_cumulative(upto, properties={LEDGER_PROPERTY: ledger_id})
            await cursor.persist()
            await self._replace(CompactedLedger(ledgers.client, ledger_id), upto)
        if not ledgers.is_clean:
            nursery = self._host.environment.nursery
            nursery.start_soon(run_guarded, self._collect, ledgers)

    # ---- for readers ----

    @property
    def horizon(self) -> Position | None:
        """The compacted ledger replaces the log up to here; None: the topic was never compacted."""
        return self._horizon

    async def read(
        self, position: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry]:
        """Compacted entries at or after a position; empty at the end. Raises LogReadFailed."""
        while (ledger := self._current) is not None:
            try:
                return await ledger.read_from(
                    position, entries_max=entries_max, bytes_max=bytes_max
                )
            except LogClosed:
                await trio.lowlevel.checkpoint()  # replaced meanwhile: read its successor
        return []

    async def last_entry(self) -> Entry | None:
        """The last compacted entry, None if there is none. Raises LogReadFailed."""
        while (ledger := self._current) is not None:
            try:
                return await ledger.last()
            except LogClosed:
                await trio.lowlevel.checkpoint()
        return None

    async def find_by_time(self, timestamp_ms: int) -> Position:
        """The start of all messages of that time or later. Raises LogReadFailed."""
        while (ledger := self._current) is not None:
            try:
                found = await ledger.find_by_time(timestamp_ms)
            except LogClosed:
                await trio.lowlevel.checkpoint()
                continue
            if found is not None:
                return found
            break
        return await self._host.log.find_by_time(timestamp_ms)

    async def ledger_info(self) -> LedgerInfo:
        """The compacted ledger for `/internalStats`; without sizes if it can't be read."""
        while (ledger := self._current) is not None:
            try:
                entries, size_bytes = await ledger.size()
            except LogClosed:
                await trio.lowlevel.checkpoint()
                continue
            except LogReadFailed as error:
                _log.warning("topic=%s: %s", self._host.name, error)
                entries = size_bytes = -1
            return LedgerInfo(ledger_id=ledger.ledger_id, entries=entries, size=size_bytes)
        return LedgerInfo(ledger_id=-1, entries=-1, size=-1)

    # ---- for administration ----

    @property
    def running(self) -> bool:
        """Whether a run is active."""
        return self._scope is not None

    def trigger(self) -> None:
        """Start a run. Raises CompactionRunning; BrokerError ServiceNotReady if fenced."""
        self._host.check_open()
        if self.running:
            raise CompactionRunning
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self.outcome.began()  # whoever asks from now on sees it run
        self._host.environment.nursery.start_soon(
            self._run, self._scope, name=f"compaction of {self._host.name}"
        )

    async def ensure_cursor(self) -> Cursor:
        """The compaction's cursor; a new one retains the whole log. Raises LogError."""
        cursor = await self._host.log.open_cursor(COMPACTION, initial=EARLIEST)
        self._host.adopt(cursor)
        return cursor

    async def wait(self) -> None:
        """Return when no run is active."""
        if self._scope is not None:
            await self._ended.wait()

    async def stop(self) -> None:
        """Cancel an active run; its result is dropped."""
        if self._scope is not None:
            self._scope.cancel()
        await self.wait()

    async def clear(self) -> None:
        """Delete the compacted messages and all entries of the log. Raises LogError."""
        await self.stop()
        async with self._lock:
            cursor = self._host.log.cursors.get(COMPACTION)
            if not isinstance(cursor, LogCursor):
                return
            # Newer messages must not be deleted before the compacted ones.
            with cursor.trim.keeping():
                cursor.ack_cumulative(self._host.log.last_position, properties={EMPTIED: 1})
                await cursor.persist()
            await self._replace(None, None)
            await self._ledgers(cursor).collect()

    @asynccontextmanager
    async def paused(self, cursor: str) -> AsyncIterator[None]:
        """Block compactions while the named subscription is deleted, if it is compaction's."""
        if cursor != COMPACTION:
            yield
            return
        await self.stop()
        async with self._lock:
            yield

    async def cursor_deleted(self, cursor: str) -> None:
        """If it was the compaction's, its ledgers are deleted too: read the log only."""
        if cursor == COMPACTION:
            await self._replace(None, None)

    # ---- a run ----

    async def _run(self, scope: trio.CancelScope) -> None:
        try:
            with scope:
                async with self._lock:
                    await self._compact()
                self.outcome.succeeded()
            if scope.cancelled_caught:
                self.outcome.failed("the compaction was stopped")
        except trio.TooSlowError:
            read_s = self._host.policies.compaction.read_s
            self._fail(f"reading the topic took longer than {read_s} seconds")
        except (LogError, BrokerError, RemoteProtocolError) as error:
            self._fail(str(error) or type(error).__name__)
        except Exception as error:
            # A defect here must not crash the broker.
            _log.exception("topic=%s compaction failed", self._host.name)
            self.outcome.failed(f"{type(error).__name__}: {error}")
        finally:
            self._scope = None
            self._ended.set()

    def _fail(self, text: str) -> None:
        _log.warning("topic=%s compaction failed: %s", self._host.name, text)
        self.outcome.failed(text)

    async def _compact(self) -> None:
        host = self._host
        cursor = await self.ensure_cursor()
        if not isinstance(cursor, LogCursor):
            raise BrokerError(
                ServerError.NotAllowedError, "compaction is not supported by this log"
            )
        ledgers = self._ledgers(cursor)
        await ledgers.collect_quietly()
        end = self._end()
        keys = LatestKeys(self._host.policies.compaction.retain_null_key)
        if not await see_all(self._walk(end), keys, self.outcome):
            return
        _log.info("topic=%s compacting %d keys up to %s", host.name, len(keys), end)
        writer = await ledgers.create(end, host.partition)
        try:
            await write_kept(self._walk(end), keys, writer, host.partition, self.outcome)
            with cursor.trim.keeping():
                cursor.ack_cumulative(end, properties={LEDGER_PROPERTY: writer.ledger_id})
                # In memory the new ledger is current from here on, stored or not; the old one is
                # deleted only after the new name is stored.
                await self._replace(CompactedLedger(ledgers.client, writer.ledger_id), end)
                await cursor.persist()
        finally:
            with trio.move_on_after(CLEANUP_S_MAX, shield=True):
                await ledgers.collect_quietly()  # noqa: ASYNC102

    def _end(self) -> Position:
        """The end of a run that starts now."""
        log, horizon = self._host.log, self._horizon
        last = log.last_position
        if horizon is None or log.entries_between(horizon, last):
            return last
        return horizon

    def _walk(self, end: Position) -> Walk:
        return Walk(
            self,
            self._host.log,
            end,
            self._host.policies.compaction.read_s,
            self._host.environment.catch_up,
        )

    async def _replace(self, ledger: CompactedLedger | None, horizon: Position | None) -> None:
        """Switch new readers to this ledger; on return no reader uses the old one."""
        old, self._current, self._horizon = self._current, ledger, horizon
        if old is not None:
            with trio.CancelScope(shield=True):
                await old.close()

    def _ledgers(self, cursor: LogCursor) -> CompactedLedgers:
        log = self._host.log
        assert isinstance(log, TopicLog), "a cursor of a log"
        durability = log.context.options.durability
        return CompactedLedgers(log.context.client, durability, self._host.name, cursor)

    async def _collect(self, ledgers: CompactedLedgers) -> None:
        async with self._lock:
            await ledgers.collect_quietly()
