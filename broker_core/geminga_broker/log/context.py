"""State shared by the parts of one log, and its claim (spec CL-04, CL-13; decision 36)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.append import LedgerWriter
from geminga_broker.log.api import LogClosed, LogError, LogFenced
from geminga_broker.log.cache import LogCache
from geminga_broker.log.catalog import LogCatalog
from geminga_broker.log.chain import LedgerChain
from geminga_broker.log.deletion import LogEraser
from geminga_broker.log.options import LogOptions, Persistence
from geminga_broker.log.state import LogState, check_transition
from geminga_broker.metrics.log_meter import LogMeter
from geminga_runtime.background import side_by_side
from geminga_runtime.metadata.api import MetadataError, MetadataStore

_log = logging.getLogger(__name__)

CHECKED_AT_ONCE_MAX = 16
"""Logs whose claims are checked at a time."""

RETRY_S = 1.0
"""Between two attempts while the metadata store can't answer."""

Spawn = Callable[[Callable[[], Awaitable[None]]], None]
"""Runs a coroutine function in the background of the log's factory."""


class LogContext:
    """The shared state of one log."""

    def __init__(
        self,
        name: str,
        options: LogOptions,
        client: BookkeeperClient,
        catalog: LogCatalog,
        chain: LedgerChain,
        cache: LogCache,
        spawn: Spawn,
        eraser: LogEraser,
    ) -> None:
        self.name = name
        self.options = options
        self.client = client
        self.catalog = catalog
        self.chain = chain
        self.cache = cache
        self.meter = LogMeter(cache.publishes)
        self.meter.copies = options.durability.write_quorum
        self.spawn = spawn
        self.eraser = eraser
        self.durability = options.durability
        """Of the log's next ledgers; those of cursors keep to the options, as in Apache's broker.
        """
        self.flush_interval_s = options.cursors.flush_interval_s
        """Minimal interval of persisting a cursor's acknowledgements."""
        self.state = LogState.ROLLING
        self.writer: LedgerWriter | None = None
        """The open ledger's writer."""
        self.unclosed: LedgerWriter | None = None
        """The last ledger's writer, while that ledger is being closed."""
        self.last_position = chain.last_position()
        """The last durable entry."""
        self.mutex = trio.Lock()
        """Held while the chain changes: rolling, trimming, terminating, closing, deleting."""

        self.when_fenced: list[Callable[[str], None]] = []
        """Called once, in order, with the cause, when another broker is found to own the log. They
        must not raise.
        """
        self.fence_cause = ""

    def persist_by(self, chosen: Persistence | None) -> None:
        """Follow this from now on; None: the options. Ledgers that are there stay as they are."""
        options = self.options
        self.durability = options.durability
        self.flush_interval_s = options.cursors.flush_interval_s
        if chosen is not None:
            self.durability = replace(
                options.durability,
                ensemble_size=chosen.ensemble_size,
                write_quorum=chosen.write_quorum,
                ack_quorum=chosen.ack_quorum,
            )
            self.flush_interval_s = chosen.flush_interval_s(self.flush_interval_s)
        self.meter.copies = self.durability.write_quorum

    def fence(self, why: str) -> None:
        """Another broker owns the log, whoever found out: from now on nothing is acknowledged,
        written or deleted here. Further calls do nothing.
        """
        if self.state in (LogState.FENCED, LogState.CLOSED):
            return
        _log.warning("log=%s is fenced: %s", self.name, why)
        self.fence_cause = why
        self.enter(LogState.FENCED)
        for tell in self.when_fenced:
            tell(why)

    async def verify(self) -> None:
        """Raises LogFenced, after fencing the log, if another broker has claimed it; LogClosed,
        MetadataError. The caller holds the mutex.
        """
        self.check_open()
        try:
            await self.catalog.verify()
        except LogFenced as error:
            self.fence(str(error))
            raise
        self.check_open()

    def enter(self, state: LogState) -> None:
        """Change the state. Raises AssertionError for an invalid change."""
        check_transition(self.state, state)
        self.state = state

    def check_open(self) -> None:
        """Raises LogClosed or LogFenced."""
        if self.state is LogState.CLOSED:
            raise LogClosed(f"{self.name} is closed")
        if self.state is LogState.FENCED:
            raise LogFenced(f"{self.name} is owned by another broker")


class LogClaim:
    """A broker's claim to one log, made when it loaded it.

    Changes of nodes need no question: they are compare-and-sets, which conflict. What has no change
    of its own asks here first.
    """

    def __init__(self, context: LogContext) -> None:
        self._context = context

    async def verify(self) -> None:
        """Returns if no other broker had claimed the log when this began. Raises LogFenced, after
        fencing the log; LogClosed, and MetadataError if the store can't tell.
        """
        async with self._context.mutex:
            await self._context.verify()


class Claimed(Protocol):
    """What has a claim."""

    claim: LogClaim


async def check_claims(store: MetadataStore, logs: Iterable[Claimed], epoch: int) -> None:
    """Verify these logs' claims, until all are answered or the session of that epoch ends too."""

    async def check(log: Claimed) -> None:
        while store.session.epoch == epoch:
            try:
                await log.claim.verify()
            except LogError:
                pass  # fenced now, or closed
            except MetadataError as error:
                _log.debug("a claim can't be checked yet: %s", error)
                await trio.sleep(RETRY_S)
                continue
            return

    await side_by_side([partial(check, log) for log in logs], CHECKED_AT_ONCE_MAX)


class FailureLines:
    """One WARNING for the bookies' failures, and one for those of the metadata store, until entries
    are written again: a full disk fails every attempt.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.told: set[bool] = set()
        """Whose failures, since entries were written last: the metadata store's or not."""

    def tell(self, error: Exception, text: str) -> None:
        """An attempt failed."""
        whose = isinstance(error, MetadataError)
        level = logging.DEBUG if whose in self.told else logging.WARNING
        self.told.add(whose)
        _log.log(level, "log=%s: %s", self._name, text)

    def over(self) -> None:
        """Entries are written again. Call it if something was told."""
        self.told.clear()
        _log.warning("log=%s: entries are written again", self._name)
