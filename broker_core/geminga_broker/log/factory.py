"""Opens managed ledgers, one at a time per name, and runs their timers (spec BR-01)."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType

import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.errors import BookkeeperError, NoSuchLedger, NotEnoughBookies
from geminga_broker.log.api import LogClosed, LogError, LogNotFound, LogReadFailed, TooFewBookies
from geminga_broker.log.cache import EntryCache
from geminga_broker.log.catalog import (
    INDEX_PROPERTY,
    LogCatalog,
    begun_deletions,
    chain_of,
    log_names,
)
from geminga_broker.log.chain import LedgerChain
from geminga_broker.log.context import LogContext, check_claims
from geminga_broker.log.cursors import CursorFlushes
from geminga_broker.log.deletion import DELETION_S, LogEraser
from geminga_broker.log.options import LogOptions, Persistence
from geminga_broker.log.reading import index_at
from geminga_broker.log.state import LogState
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.log.unnamed import UNNAMED_S_MAX, clean, log_ledgers
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.pb.managed_ledger_pb2 import ManagedLedgerInfo
from geminga_runtime.background import Turns, run_guarded
from geminga_runtime.metadata.api import MetadataError, MetadataStore, SessionExpired
from geminga_runtime.waiters import Promise

_log = logging.getLogger(__name__)

"""Minimal interval of the timer that persists cursors, whatever the options."""


class _IsThere(Exception):
    """The log is not a new one."""


class _Abandoned(LogClosed):
    """Who made the log was cancelled."""


class ManagedLedgerFactory:
    """The managed ledgers of one broker; an async context manager. Names are
    `tenant/ns/persistent/topic`, encoded.

    The exit closes open logs; if cancelled, it just stops, and open logs are recovered later.
    """

    def __init__(
        self, client: BookkeeperClient, store: MetadataStore, options: LogOptions | None = None
    ) -> None:
        self.options = options or LogOptions()
        self.cache = EntryCache(self.options.cache_bytes_max)
        self.client = client
        self.eraser = LogEraser(client, store)
        self._store = store
        self.logs: dict[str, TopicLog] = {}
        """Open logs by name. Don't change it."""
        self._opening: dict[str, Promise[TopicLog]] = {}
        self.flushes = CursorFlushes(self.options.cursors.flush_interval_s)
        self._nursery: trio.Nursery | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> ManagedLedgerFactory:
        self._nursery = await self._stack.enter_async_context(trio.open_nursery())
        self._nursery.start_soon(self.flushes.run)
        self._nursery.start_soon(self._run_roll_checks)
        self._nursery.start_soon(self._run_retention_checks)
        self._nursery.start_soon(self._run_claim_checks)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._nursery is not None
        try:
            if error is None:
                await self.close_all()  # noqa: ASYNC102
        finally:
            self._nursery.cancel_scope.cancel()
            self._nursery = None
            await self._stack.aclose()
        return None

    async def open(
        self,
        name: str,
        *,
        create: bool = True,
        persistence: Persistence | None = None,
        here: bool = False,
    ) -> TopicLog:
        """The open log with that name; concurrent callers share one opening. With `persistence` its
        ledgers are made by that. Raises LogNotFound, LogFenced, LogReadFailed (with the cause,
        storage or metadata), LogClosed.

        An opening survives the cancellation of its callers. With `here` a log that is not there yet
        is made in the caller's task, which costs less; if that is cancelled, others make it.
        """
        log = self.logs.get(name)
        usable = log is not None and log.context.state not in (LogState.CLOSED, LogState.FENCED)
        if log is not None and usable and not log.closing:
            return log
        promise = self._opening.get(name)
        if promise is None:
            if self._nursery is None:
                raise LogClosed("the factory is closed")
            promise = self._opening[name] = Promise()
            if here:
                await self._open(name, create, persistence, promise, only_new=True)
            else:
                self._nursery.start_soon(self._open, name, create, persistence, promise)
        try:
            return promise.outcome() if here and promise.is_done() else await promise.wait()
        except _Abandoned:
            return await self.open(name, create=create, persistence=persistence)  # noqa: ASYNC120
        except LogNotFound:
            if create:
                # The caller that started this opening did not allow to create it.
                return await self.open(name, persistence=persistence)  # noqa: ASYNC120
            raise

    async def delete(self, name: str) -> None:
        """Delete the log, if it exists. Raises errors of `open` and `ManagedLedger.delete`."""
        try:
            log = await self.open(name, create=False)
        except LogNotFound:
            return
        await log.delete()
        if self.logs.get(name) is log:
            del self.logs[name]

    async def finish_deletions(self, begun_before_ms: float = math.inf) -> None:
        """Finish interrupted deletions of logs, those that began before then; a failure is logged,
        and retried later or at the next use of the log. Raises MetadataError.
        """
        for name in await begun_deletions(self._store, begun_before_ms):
            try:
                await self._finish_deletion(name)
            except LogNotFound:
                continue
            except (LogError, MetadataError, RemoteProtocolError) as error:
                # Even with a full disk, or an invalid record, the broker starts and serves reads.
                _log.warning("log=%s: its deletion can't be finished yet: %s", name, error)

    async def _finish_deletion(self, name: str) -> None:
        catalog = LogCatalog(self._store, name)
        await catalog.load()
        if self.eraser.is_busy(name):
            return
        if catalog.is_deleted:
            await self.open(name, create=False)
        await catalog.forget_deletion()
        # Its owner, another broker, may have begun it since.
        now = LogCatalog(self._store, name)
        await now.load()
        if now.is_deleted:
            await now.note_deletion()

    async def exists(self, name: str) -> bool:
        """Whether the log is in the metadata store."""
        return await LogCatalog(self._store, name).load() is not None

    async def names(self, prefix: str) -> list[str]:
        """Names of all logs under `tenant/ns/persistent`."""
        return await log_names(self._store, prefix)

    async def close_all(self) -> None:
        """Close all open logs, in parallel."""
        async with trio.open_nursery() as nursery:
            for log in list(self.logs.values()):
                nursery.start_soon(log.close)
        self.logs.clear()

    async def _open(
        self,
        name: str,
        create: bool,
        persistence: Persistence | None,
        promise: Promise[TopicLog],
        only_new: bool = False,
    ) -> None:
        """Settles the promise. With `only_new` a log that is there is left to another task: it may
        take long to recover.
        """
        try:
            with trio.fail_after(self.options.open_deadline_s):
                log = await self._load(name, create, persistence, only_new)
        except _IsThere:
            if self._nursery is None:
                promise.reject(LogClosed("the factory is closed"))
            else:
                self._nursery.start_soon(self._open, name, create, persistence, promise)
        except LogError as error:
            promise.reject(error)
        except NotEnoughBookies as error:
            # Policies of a namespace or topic may ask for more copies than there can be.
            lacking = TooFewBookies(f"{name} can't be opened: too few bookies: {error}")
            lacking.__cause__ = error
            promise.reject(lacking)
        except (BookkeeperError, MetadataError, RemoteProtocolError, trio.TooSlowError) as error:
            failure = LogReadFailed(f"{name} can't be opened: {type(error).__name__}: {error}")
            failure.__cause__ = error
            promise.reject(failure)
        except Exception as error:
            # A defect here must not affect other logs.
            _log.exception("log=%s can't be opened", name)
            failure = LogReadFailed(f"{name} can't be opened: {type(error).__name__}: {error}")
            failure.__cause__ = error
            promise.reject(failure)
        except BaseException:
            kind = _Abandoned if only_new else LogClosed
            promise.reject(kind(f"{name} was not opened: the factory is closed"))
            raise
        else:
            self.logs[name] = log
            promise.resolve(log)
        finally:
            if promise.is_done():
                del self._opening[name]

    async def _load(
        self, name: str, create: bool, persistence: Persistence | None, only_new: bool
    ) -> TopicLog:
        if only_new and name in self.logs:
            raise _IsThere
        old = self.logs.pop(name, None)
        if old is not None:
            await old.close()
        catalog = LogCatalog(self._store, name)
        info = await catalog.load()
        if only_new and not catalog.is_new:
            raise _IsThere
        if info is not None and catalog.is_deleted:
            await catalog.claim()
            await self.eraser.erase(name, catalog)
            _log.info("log=%s: finished its interrupted deletion", name)
            catalog, info = LogCatalog(self._store, name), None
        if info is None and not create:
            raise LogNotFound(f"no log {name}")
        return await self._load_stored(name, catalog, info or ManagedLedgerInfo(), persistence)

    async def _load_stored(
        self,
        name: str,
        catalog: LogCatalog,
        info: ManagedLedgerInfo,
        persistence: Persistence | None,
    ) -> TopicLog:
        chain = chain_of(info)
        index = await self._recover(catalog, chain)
        cache = self.cache.new_log()
        context = LogContext(
            name, self.options, self.client, catalog, chain, cache, self._spawn, self.eraser
        )
        log = TopicLog(context, self._store, self.flushes.dirty, index, self.flushes.paced)
        log.set_persistence(persistence)
        try:
            await log.start()
        except BaseException:
            context.cache.clear()
            raise
        return log

    async def _recover(self, catalog: LogCatalog, chain: LedgerChain) -> int:
        """Recover and close the open ledger; returns the index of the last message."""
        options = self.options
        password = options.durability.password
        index = int(catalog.properties.get(INDEX_PROPERTY, "-1"))
        recovered: LedgerReader | None = None
        for ledger in list(chain):
            if ledger.closed_ms:
                continue
            entries = 0
            try:
                reader = await self.client.open(ledger.ledger_id, password, recover=True)
            except NoSuchLedger:
                _log.warning("log=%s: ledger %d is gone", catalog.path, ledger.ledger_id)
            else:
                entries = reader.last_add_confirmed + 1
                ledger.size_bytes = reader.length
                recovered = reader
            if entries:
                chain.extend(ledger, entries, options.now_ms())
            else:
                chain.remove(ledger.ledger_id)
                catalog.deleting[ledger.ledger_id] = None
        if len(chain) and options.broker_entry_metadata:
            ledger = chain.ledgers[-1]
            if recovered is None or recovered.ledger_id != ledger.ledger_id:
                recovered = await self.client.open(ledger.ledger_id, password, recover=False)
            index = await index_at(recovered, ledger.entries - 1, index, options)
        return index

    def _spawn(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run a job in the background; not after the factory's exit."""
        if self._nursery is not None:
            self._nursery.start_soon(run_guarded, job)

    async def _run_roll_checks(self) -> None:
        """Roll over idle logs by the clock (BR-02)."""
        while True:
            await trio.sleep(self.options.roll_check_interval_s)
            turns = Turns()
            for name, log in list(self.logs.items()):
                await turns.spend()
                if log.context.state is LogState.CLOSED:
                    if self.logs.get(name) is log:
                        del self.logs[name]
                else:
                    _guarded(log.roll_if_due)

    async def _run_claim_checks(self) -> None:
        """After a lost session another broker may have taken any log: find out about each, also
        about those that nobody writes to (CL-13).
        """
        epoch = self._store.session.epoch
        while True:
            try:
                epoch = (await self._store.wait_change(epoch)).epoch
            except SessionExpired:
                return  # the store is closed
            await check_claims(self._store, list(self.logs.values()), epoch)

    async def _run_retention_checks(self) -> None:
        """Trim consumed ledgers that became too old (BR-04)."""
        while True:
            await trio.sleep(self.options.retention_check_interval_s)
            turns = Turns()
            for log in list(self.logs.values()):
                await turns.spend()
                _guarded(log.trim_if_due)
            await self._clean()

    async def _clean(self) -> None:
        """Delete what crashes and failures left (BR-04)."""
        made_before_ms = self.options.now_ms() - int(UNNAMED_S_MAX * 1000)
        try:
            await clean(self.client, self._store, log_ledgers(self._store), made_before_ms)
            # A younger one may be another broker's, which would be fenced in the middle of it.
            await self.finish_deletions(self.options.now_ms() - DELETION_S * 1000)
        except (BookkeeperError, MetadataError) as error:
            _log.warning("leftover ledgers can't be deleted yet: %s", error)
        except Exception:
            _log.exception("a defect: leftover ledgers can't be deleted")


def _guarded(step: Callable[[], None]) -> None:
    """Run one log's step; logs a defect, so that other logs are not affected."""
    try:
        step()
    except Exception:
        _log.exception("a defect: %s failed", step.__qualname__)
