"""A broker that is killed, or whose metadata store fails, at some writes; and what is left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum

import trio
from trio.testing import wait_all_tasks_blocked

from geminga_bookie._tests.asked_bookie import Add, AskedBookie
from geminga_bookie.errors import BookieUnavailable
from geminga_broker.log._tests.world import World
from geminga_broker.log.api import LogError
from geminga_broker.log.catalog import DELETED_PROPERTY, LogCatalog
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import CursorOptions, LogOptions, Retention, Rollover
from geminga_broker.log.unnamed import UNNAMED_S_MAX
from geminga_protocol.bookkeeper import paths
from geminga_protocol.managed_ledger import decode_cursor_info, decode_ledger_info
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.api import StoreUnavailable

OPTIONS = LogOptions(
    rollover=Rollover(entries_max=3, min_s=0),
    retention=Retention(0, 0),
    cursors=CursorOptions(ledger_entries_max=2, ranges_to_store_max=1),
    retention_check_interval_s=1e6,
)


class Trouble(Enum):
    """What happens at a write."""

    KILLED_BEFORE = "the broker is killed before it"
    KILLED_AFTER = "the broker is killed after it"
    REFUSED = "it is not done, and fails"
    UNKNOWN = "it is done, but fails"


@dataclass
class Clock:
    """The wall clock of broker and store."""

    now_ms: int = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class AwayBookie(AskedBookie):
    """While it is `away`, it takes no entries."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False

    def take(self, add: Add) -> None:
        if self.away:
            add.answer(BookieUnavailable("away"))
        else:
            self.store(add)


class TroubledStore(SteppedStore):
    """Asks `trouble` at each write, by its number."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock_ms=clock)
        self.writes = 0
        self.path = ""
        """Of the last write."""
        self.trouble: Callable[[int], Trouble | None] = lambda _: None
        self.killed = trio.CancelScope()

    def names(self, ledger_id: int) -> bool:
        """Whether a log, or the state of a cursor whose log isn't deleted, is in the ledger."""
        for path in self._rows.children("/managed-ledgers/public/default/persistent"):
            path = f"/managed-ledgers/public/default/persistent/{path}"
            log = self._rows.read(path)
            assert log is not None
            info = decode_ledger_info(log.value)
            if any(each.ledgerId == ledger_id for each in info.ledgerInfo):
                return True
            if any(each.key == DELETED_PROPERTY for each in info.properties):
                continue
            for name in self._rows.children(path):
                cursor = self._rows.read(f"{path}/{name}")
                assert cursor is not None
                if decode_cursor_info(cursor.value).cursorsLedgerId == ledger_id:
                    return True
        return False

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        """See `SteppedStore.step`."""
        if operation == "get":
            yield
            return
        self.path = path
        trouble = self.trouble(self.writes)
        self.writes += 1
        if trouble is Trouble.KILLED_BEFORE:
            self.killed.cancel()
            await trio.lowlevel.checkpoint()
        if trouble is Trouble.REFUSED:
            raise StoreUnavailable("not now")
        ledger_id = paths.ledger_id(path)
        if operation == "delete" and ledger_id is not None:
            assert not self.names(ledger_id), f"ledger {ledger_id} is deleted while it is named"
        yield
        if trouble is Trouble.KILLED_AFTER:
            self.killed.cancel()
            await trio.lowlevel.checkpoint()
        if trouble is Trouble.UNKNOWN:
            raise StoreUnavailable("the connection is lost")


@dataclass
class TroubledWorld(World):
    """Brokers with `OPTIONS` on a store with troubles."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store: TroubledStore = TroubledStore(self.clock)
        self.bookie: AwayBookie = AwayBookie()
        self.options = replace(OPTIONS, now_ms=self.clock)

    @asynccontextmanager
    async def troubled(
        self, trouble: Callable[[int], Trouble | None]
    ) -> AsyncIterator[ManagedLedgerFactory]:
        """A broker with trouble; errors of its logs end the block, a kill ends it at once."""
        self.store.writes, self.store.killed = 0, trio.CancelScope()
        with self.store.killed as scope, suppress(LogError):
            async with self.broker(self.options, crash=True) as broker:
                self.store.trouble = trouble
                try:
                    yield broker
                finally:
                    self.store.trouble = lambda _: None
                scope.cancel()

    async def assert_nothing_leaks(self, *names: str) -> None:
        """A next broker, and the time that cleaning takes, leave the ledgers that are named."""
        self.clock.now_ms += int(UNNAMED_S_MAX * 1000) + 1
        async with self.broker(self.options) as broker:
            await broker.finish_deletions()
            for name in names:
                if await broker.exists(name):
                    log = await broker.open(name)
                    log.trim_if_due()
            await wait_all_tasks_blocked()
            await broker._clean()
            client = broker.client
            ledgers = {ledger_id async for ledger_id in client.ledgers()}
            for name in await broker.names("public/default/persistent"):
                log = await broker.open(name)
                await wait_all_tasks_blocked()
                named = {ledger.ledger_id for ledger in log.context.chain}
                sides_named: set[int] = set()
                for cursor in log.cursors.values():
                    assert not cursor.writer.has_leftovers
                    sides = set(cursor.writer.side_ledgers)
                    named.update(set(cursor.writer.ledger_ids) - sides)
                    sides_named |= sides
                ledgers -= sides_named  # whose names may outlive them
                # A kill before a cursor's deletion leaves its ledgers listed, and named.
                assert set(log.context.catalog.deleting) <= named | sides_named
                assert named <= ledgers, "a ledger that is named was deleted"
                ledgers -= named
            assert not ledgers, "a ledger leaked"
            assert not await client.unnamed.old(self.clock.now_ms + 1)
        for name in names:
            await self._assert_stored(name)

    async def _assert_stored(self, name: str) -> None:
        """The stored metadata name ledgers that are there."""
        store = self.store
        async with self.broker(self.options, crash=True) as broker:
            ledgers = {ledger_id async for ledger_id in broker.client.ledgers()}
        info = await LogCatalog(store, name).load()
        if info is not None:
            assert {each.ledgerId for each in info.ledgerInfo} <= ledgers
