"""Several bookies that register, are lost and lose entries; a daemon that is killed at a step."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from geminga_bookie._tests.asked_bookie import Add, nobody
from geminga_bookie.autorecovery.auditor import Auditor
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.autorecovery.task_store import TaskStore
from geminga_bookie.autorecovery.worker import ReplicationWorker
from geminga_bookie.client._tests.cluster import Peer
from geminga_bookie.client.api import LedgerMetadata, LedgerOptions
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.placement import ensemble_of, write_set
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.memory import MemoryMetadataStore


class Steps:
    """Counts what a daemon changes, and kills it at a step: before or after it was made."""

    def __init__(self) -> None:
        self.count = 0
        self.kill_at: tuple[int, bool] | None = None
        self.scope: trio.CancelScope | None = None

    def passes(self) -> tuple[bool, bool]:
        """Whether the step is made, and whether the daemon lives on."""
        at, self.count = self.count, self.count + 1
        if self.scope is not None and self.scope.cancel_called:
            return False, False
        if self.kill_at is None or self.kill_at[0] != at:
            return True, True
        if self.scope is not None:
            self.scope.cancel()
        return self.kill_at[1], False


class Bookie(Peer):
    """A bookie whose adds are steps, and whose entries can be lost and damaged."""

    steps: Steps | None = None

    def take(self, add: Add) -> None:
        is_made, is_answered = self.steps.passes() if self.steps else (True, True)
        if is_made:
            super().take(add if is_answered else replace(add, done=nobody))

    async def list_entries(self, ledger_id: int) -> list[int]:
        await self._reached()
        return await super().list_entries(ledger_id)

    def lose(self, ledger_id: int, entry_id: int) -> None:
        """Forget an entry."""
        self._ledgers[ledger_id].entries.pop(entry_id, None)

    def damage(self, ledger_id: int, entry_id: int) -> None:
        """Change a byte of an entry."""
        packet = self._ledgers[ledger_id].entries[entry_id]
        self._ledgers[ledger_id].entries[entry_id] = packet[:-1] + bytes([packet[-1] ^ 1])

    def packet(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The entry, if it is there."""
        ledger = self._ledgers.get(ledger_id)
        return ledger.entries.get(entry_id) if ledger is not None else None


class Mute(Bookie):
    """As Apache's bookies: they don't answer the question for a ledger's entries."""

    async def list_entries(self, ledger_id: int) -> list[int]:
        await trio.sleep_forever()
        raise AssertionError


class StepStore(SteppedStore):
    """A session whose changes are steps."""

    steps: Steps | None = None

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        if operation == "get" or self.steps is None:
            yield
            return
        is_made, lives = self.steps.passes()
        if not is_made:
            await trio.sleep_forever()
        with trio.CancelScope(shield=True):
            yield
        if not lives:
            await trio.sleep_forever()


class World:
    """Bookies b0, b1, ..., their registrations, ledgers, and daemons."""

    def __init__(self, bookies: int, options: AutoRecoveryOptions | None = None) -> None:
        self.options = options or AutoRecoveryOptions(batch_entries=3)
        self.steps = Steps()
        self.peers = [Bookie(f"b{n}:3181") for n in range(bookies)]
        for peer in self.peers:
            peer.steps = self.steps
        self.directory = KnownBookies(self.peers)
        self.store = MemoryMetadataStore()
        self.client = BookkeeperClient(self.directory, self.store)
        self.tasks = TaskStore(self.store, "test")

    def peer(self, bookie_id: str) -> Bookie:
        return next(each for each in self.peers if each.bookie_id == bookie_id)

    async def register(self, *peers: Bookie, readonly: bool = False) -> None:
        for peer in peers or self.peers:
            parent = paths.readonly() if readonly else paths.available()
            await self.store.put(f"{parent}/{peer.bookie_id}", b"")

    async def remove(self, peer: Bookie, parent: str | None = None) -> None:
        """Its registration ends."""
        await self.store.delete(f"{parent or paths.available()}/{peer.bookie_id}")

    async def kill(self, peer: Bookie) -> None:
        """It is gone, with its registration."""
        peer.is_gone = True
        await self.remove(peer)

    async def ledger(
        self, sizes: tuple[int, int, int], entries: int, *, password: bytes = b"secret"
    ) -> LedgerMetadata:
        """A closed ledger."""
        writer = await self.client.create(LedgerOptions(*sizes, password=password))
        for first in range(0, entries, 7):
            run = range(first, min(entries, first + 7))
            await append_durably(writer, [(b"%d" % n,) for n in run])
        await writer.close()
        return await self.client.metadata(writer.ledger_id)

    def copies(self, metadata: LedgerMetadata) -> list[int]:
        """Of each entry, how many of the bookies that must have it are there and do."""
        return [
            sum(
                not self.peer(each).is_gone
                and self.peer(each).packet(metadata.ledger_id, entry_id) is not None
                for each in members(metadata, entry_id)
            )
            for entry_id in range(metadata.last_entry_id + 1)
        ]

    async def check_whole(self, ledger_id: int) -> LedgerMetadata:
        """Each entry is on its write quorum, whole."""
        metadata = await self.client.metadata(ledger_id)
        assert set(self.copies(metadata)) <= {metadata.write_quorum}, self.copies(metadata)
        for peer in self.peers:
            peer.is_silent = False
        reader = await self.client.open(ledger_id, metadata.password, recover=False)
        for entry_id in range(metadata.last_entry_id + 1):
            found = {
                self.peer(each).packet(ledger_id, entry_id) for each in members(metadata, entry_id)
            }
            assert len(found) == 1, "copies differ"
            assert await reader.read(entry_id, entry_id) == [b"%d" % entry_id]
        return metadata

    async def marked(self) -> list[int]:
        """Ledgers with a task."""
        return sorted([each async for each in self.tasks.tasks()])

    def session(self) -> StepStore:
        """Another process's session."""
        store = StepStore()
        store._join(self.store._rows)
        store.steps = self.steps
        return store

    def auditor(self, store: MemoryMetadataStore | None = None) -> Auditor:
        store = store or self.store
        return Auditor(store, self.directory, TaskStore(store, "auditor"), self.options)

    async def audit(self) -> None:
        """All that an auditor looks at, once."""
        auditor = self.auditor()
        await auditor._audit(True)
        await auditor.check_ledgers()

    async def work(self, kill_at: tuple[int, bool] | None = None) -> bool:
        """A worker's life, until nothing is left to do; returns whether it was killed."""
        store = self.session()
        tasks = TaskStore(store, "worker")
        worker = ReplicationWorker(store, self.directory, tasks, self.options)
        self.steps.count, self.steps.kill_at = 0, kill_at
        epoch = store.session.epoch
        with trio.CancelScope() as scope:
            self.steps.scope = scope
            async with trio.open_nursery() as nursery:
                while await worker.look(epoch, nursery):
                    pass
        store.expire_session()
        store.steps = None
        await store.aclose()
        return scope.cancelled_caught


def members(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    """Bookies that must have an entry."""
    ensemble = ensemble_of(metadata.ensembles, entry_id)
    places = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
    return [ensemble[place] for place in places]


def drawn(chance: random.Random) -> tuple[int, int, int]:
    """Sizes of a ledger that loses nothing with one bookie."""
    ensemble = chance.randint(2, 5)
    write = chance.randint(2, ensemble)
    return ensemble, write, chance.randint(2, write)
