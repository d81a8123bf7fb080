"""The session with the metadata store ends at each write of creating, appending to, rolling over,
recovering and deleting logs, of a change of ensembles, and of auto-recovery: what was confirmed is
read again in order, nothing hangs, and the log goes on. In memory at each write; on a real
ZooKeeper at some.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from itertools import count
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock

from compat_tests.apache.expiring import (
    ExpiringStore,
    When,
    expiring_in_memory,
    expiring_on_zookeeper,
    share,
)
from compat_tests.apache.zookeeper import ZooKeeperServer
from geminga_bookie.autorecovery import daemon
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.autorecovery.task_store import TaskStore
from geminga_bookie.client._tests.cluster import DISK, Peer
from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_broker.log._tests.world import NAME, Answers, message, text_of
from geminga_broker.log.api import Ack, LogError
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import (
    CursorOptions,
    LedgerDurability,
    LogOptions,
    Retention,
    Rollover,
)
from geminga_protocol.bookkeeper import paths
from geminga_protocol.bookkeeper import underreplication as tree
from geminga_protocol.ids import EARLIEST, Position
from geminga_runtime.metadata.api import MetadataError, MetadataStore
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

ResultT = TypeVar("ResultT")
OPTIONS = LogOptions(
    durability=LedgerDurability(3, 3, 2),
    rollover=Rollover(entries_max=4, min_s=0),
    retention=Retention(-1, -1),
    cursors=CursorOptions(ledger_entries_max=3),
    create_retry_s=0.1,
    now_ms=count(1_000_000).__next__,  # no two writes of a node look the same
)
RECOVERY = AutoRecoveryOptions(batch_entries=3, ledger_check_interval_s=0, backoff_ms=100)
OTHER = "public/default/persistent/u"
LIFE_S = 60.0
ATTEMPTS_MAX = 50
RETRY_S = 0.05
PASSWORD = b"secret"
ON_ZOOKEEPER = 6
"""So many writes of each kind; in memory it is all of them."""
_numbers = count()

Sessions = Callable[[], AbstractAsyncContextManager[tuple[ExpiringStore, MetadataStore]]]
"""On an empty tree: the session that ends, and one that doesn't."""


class Tale:
    """What clients of a log were told."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.confirmed: dict[Position, str] = {}

    async def publish(self, broker: ManagedLedgerFactory, name: str, wanted: int) -> None:
        """So many more, each until one attempt is confirmed."""
        done = 0
        for _ in range(ATTEMPTS_MAX):
            log = await again(lambda: broker.open(name))
            texts = [f"m{len(self.sent) + n}" for n in range(wanted - done)]
            self.sent += texts
            answers = Answers()
            log.append([(message(text), 1) for text in texts], answers)
            await answers.wait(len(texts))
            at = 0
            for first, size, error in answers.runs:
                if error is None:
                    for n in range(size):
                        entry_id = type(first.entry_id)(first.entry_id + n)
                        self.confirmed[Position(first.ledger_id, entry_id)] = texts[at + n]
                    done += size
                at += size
            if done == wanted:
                return
            await trio.sleep(RETRY_S)
        raise AssertionError("nothing is confirmed any more")

    async def check(self, broker: ManagedLedgerFactory) -> None:
        """All that was confirmed stands where it was told, in order; the log goes on."""
        log = await broker.open(NAME)
        found: list[str] = []
        reader = log.open_reader("check", EARLIEST)
        while entries := await reader.read(entries_max=5, bytes_max=1 << 20):
            for entry in entries:
                found.append(text_of(entry))
                assert self.confirmed.get(entry.position, found[-1]) == found[-1]
        assert len(set(found)) == len(found), "an entry stands twice"
        assert found == sorted(found, key=self.sent.index), "out of order"
        assert set(self.confirmed.values()) <= set(found), "a confirmed entry is lost"
        await self.publish(broker, NAME, 5)


async def again(call: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """As a client does, until it works."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return await call()
        except LogError:
            await trio.sleep(RETRY_S)
    return await call()


class Bookies:
    """Five of them, and processes with a client."""

    def __init__(self) -> None:
        self.peers = [Peer(f"b{number}:3181") for number in range(5)]
        self.directory = KnownBookies(self.peers)

    @asynccontextmanager
    async def broker(self, store: MetadataStore) -> AsyncIterator[ManagedLedgerFactory]:
        """Crashes at the end: open ledgers stay open."""
        async with trio.open_nursery() as nursery:
            client = BookkeeperClient(self.directory, store, nursery=nursery)
            async with ManagedLedgerFactory(client, store, OPTIONS) as factory:
                yield factory
                nursery.cancel_scope.cancel()
                await trio.lowlevel.checkpoint()

    async def fail_one(self, broker: ManagedLedgerFactory) -> Peer:
        """Of those that the log writes to now."""
        log = await again(lambda: broker.open(NAME))
        last = list(log.context.chain)[-1].ledger_id
        ensembles = (await broker.client.metadata(last)).ensembles
        failing = next(each for each in self.peers if each.bookie_id in ensembles[max(ensembles)])
        failing.failure = DISK
        return failing


async def life_of_logs(store: ExpiringStore, beside: MetadataStore) -> None:
    """Create, append, change an ensemble, roll over, persist a cursor, recover, delete."""
    bookies, tale = Bookies(), Tale()
    async with bookies.broker(store) as broker:
        await tale.publish(broker, NAME, 3)
        failing = await bookies.fail_one(broker)
        for _ in range(4):
            await tale.publish(broker, NAME, 2)
        failing.failure = None
        if not store.at:
            ids = [each async for each in broker.client.ledgers()]
            assert 2 in [len((await broker.client.metadata(each)).ensembles) for each in ids]

        async def acknowledge() -> None:
            log = await broker.open(NAME)
            cursor = await log.open_cursor("s", initial=EARLIEST)
            entries = await cursor.read(entries_max=5, bytes_max=1 << 20)
            cursor.ack(Ack(entry.position) for entry in entries)
            await cursor.persist()

        await again(acknowledge)
        await tale.publish(broker, NAME, 1)
    async with bookies.broker(store) as broker:
        await tale.publish(broker, NAME, 3)
        await Tale().publish(broker, OTHER, 6)
        await again(lambda: broker.delete(OTHER))
    async with bookies.broker(beside) as broker:
        assert not await broker.exists(OTHER)
        await tale.check(broker)
    async with bookies.broker(beside) as broker:
        await broker.delete(NAME)
        assert await broker.names("public/default/persistent") == []
        left = [each async for each in broker.client.ledgers()]
        assert len(left) <= 1, "what was made and never named is looked for later"


async def life_of_copies(store: ExpiringStore, beside: MetadataStore) -> None:
    """A bookie is lost; auditor and worker make up for it."""
    bookies = Bookies()
    for peer in bookies.peers:
        await beside.put(f"{paths.available()}/{peer.bookie_id}", b"")
    async with trio.open_nursery() as nursery:
        client = BookkeeperClient(bookies.directory, beside, nursery=nursery)
        ledgers = []
        for is_open in (False, False, True):
            writer = await client.create(LedgerOptions(3, 3, 2, password=PASSWORD))
            await append_durably(writer, [(b"%d" % n,) for n in range(7)])
            ledgers.append(writer.ledger_id)
            if not is_open:
                await writer.close()
        lost = bookies.peers[0]
        lost.is_gone = True
        await beside.delete(f"{paths.available()}/{lost.bookie_id}")

        async def run() -> None:
            while True:  # a process that can't begin is started again
                with suppress(MetadataError):
                    await daemon.run(store, bookies.directory, RECOVERY, owner="b9:3181")

        nursery.start_soon(run)
        await until_whole(client, beside, ledgers, lost)
        nursery.cancel_scope.cancel()
    client = BookkeeperClient(bookies.directory, beside)
    for ledger_id in ledgers:
        reader = await client.open(ledger_id, PASSWORD, recover=True)
        assert [bytes(each) for each in await reader.read(0, 6)] == [b"%d" % n for n in range(7)]
        metadata = await client.metadata(ledger_id)
        for bookie_id in metadata.ensembles[max(metadata.ensembles)]:
            peer = next(each for each in bookies.peers if each.bookie_id == bookie_id)
            assert peer is not lost
            assert peer.has(ledger_id) == [*range(7)]


async def until_whole(
    client: BookkeeperClient, store: MetadataStore, ledgers: list[int], lost: Peer
) -> None:
    """Until no task is left, and no metadata name the lost bookie."""
    tasks = TaskStore(store, "test")
    async with store.watch("/") as changes:
        while True:
            marked = [each async for each in tasks.tasks()]
            named = [
                each
                for each in ledgers
                for ensemble in (await client.metadata(each)).ensembles.values()
                if lost.bookie_id in ensemble
            ]
            if not marked and not named and not await store.children(tree.LOCKS):
                return
            await changes.receive()


LIVES = [life_of_logs, life_of_copies]


async def live(
    life: Callable[[ExpiringStore, MetadataStore], Awaitable[None]],
    sessions: Sessions,
    when: When,
    at: int,
) -> int:
    """Returns how many writes it took."""
    async with sessions() as (store, beside):
        store.when, store.at = when, at
        try:
            with trio.fail_after(LIFE_S):
                await life(store, beside)
        except BaseException as error:
            error.add_note(f"the session ended at write {at}, {when.value}")
            raise
        return store.writes


@asynccontextmanager
async def in_memory() -> AsyncIterator[tuple[ExpiringStore, MetadataStore]]:
    beside = MemoryMetadataStore()
    yield expiring_in_memory(beside), beside


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("life", LIVES)
@pytest.mark.slow
async def test_at_each_write(
    autojump_clock: MockClock,
    life: Callable[[ExpiringStore, MetadataStore], Awaitable[None]],
    when: When,
) -> None:
    writes = await live(life, in_memory, when, 0)
    assert writes > 10
    for at in range(1, writes + 1):
        await live(life, in_memory, when, at)


@pytest.mark.java
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("life", LIVES)
async def test_on_zookeeper(
    server: ZooKeeperServer,
    life: Callable[[ExpiringStore, MetadataStore], Awaitable[None]],
    when: When,
) -> None:
    @asynccontextmanager
    async def on_zookeeper() -> AsyncIterator[tuple[ExpiringStore, MetadataStore]]:
        url = f"{server.url}/expiry/{next(_numbers)}"
        async with (
            aclosing(await ZooKeeperMetadataStore.open(url, session_timeout_s=LIFE_S)) as store,
            aclosing(await ZooKeeperMetadataStore.open(url, session_timeout_s=LIFE_S)) as beside,
        ):
            yield expiring_on_zookeeper(store, server.port), beside

    writes = await live(life, on_zookeeper, when, 0)
    for at in share(writes, ON_ZOOKEEPER, [*When].index(when)):
        await live(life, on_zookeeper, when, at)
