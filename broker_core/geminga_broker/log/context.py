"""State shared by the parts of one log."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.append import LedgerWriter
from geminga_broker.log.api import LogClosed, LogFenced
from geminga_broker.log.cache import LogCache
from geminga_broker.log.catalog import LogCatalog
from geminga_broker.log.chain import LedgerChain
from geminga_broker.log.deletion import LogEraser
from geminga_broker.log.options import LogOptions
from geminga_broker.log.state import LogState, check_transition

_log = logging.getLogger(__name__)

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
        self.spawn = spawn
        self.eraser = eraser
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
