"""Several bookies and a metadata store that fail, answer late, or not at all."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from geminga_bookie._tests.asked_bookie import Add, AskedBookie
from geminga_bookie.client.api import ClientOptions, LedgerMetadata, LedgerOptions
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.placement import ensemble_of, write_set
from geminga_bookie.errors import BookieUnavailable, BookkeeperError, StorageFailed
from geminga_bookie.port import AddDone, LacAnswer
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.api import StoreUnavailable


class Peer(AskedBookie):
    """A bookie behind a network."""

    def __init__(self, bookie_id: str) -> None:
        super().__init__(bookie_id)
        self.failure: BookkeeperError | None = None
        """Adds are refused with it."""
        self.is_silent = False
        """Requests are executed, and never answered."""
        self.is_gone = False
        """Nothing is executed."""
        self.held: list[tuple[AddDone, int, int, BookkeeperError | None]] | None = None
        """Answers that are still under way."""
        self.adds: list[tuple[int, int]] = []

    def take(self, add: Add) -> None:
        self.adds.append((add.first_entry_id, add.count))
        failure = BookieUnavailable(f"{self.bookie_id} is away") if self.is_gone else self.failure
        if failure is not None:
            trio.lowlevel.current_trio_token().run_sync_soon(add.answer, failure)
            return

        def answered(first: int, count: int, error: BookkeeperError | None) -> None:
            if self.held is not None:
                self.held.append((add.done, first, count, error))
            elif not self.is_silent:
                add.done(first, count, error)

        self.store(replace(add, done=answered))

    def release(self) -> None:
        """Deliver what was under way."""
        held, self.held = self.held or [], None
        for done, first, count, error in held:
            done(first, count, error)

    async def _reached(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_silent:
            await trio.sleep(5)
        if self.is_gone or self.is_silent:
            raise BookieUnavailable(f"{self.bookie_id} is away")

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        await self._reached()
        return await super().fence(ledger_id, master_key)

    async def read_lac(self, ledger_id: int) -> LacAnswer:
        await self._reached()
        return await super().read_lac(ledger_id)

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        await self._reached()
        return await super().read(
            ledger_id, first_entry_id, entries_max=entries_max, bytes_max=bytes_max
        )

    def has(self, ledger_id: int) -> list[int]:
        """Ids of its entries."""
        ledger = self._ledgers.get(ledger_id)
        return sorted(ledger.entries) if ledger is not None else []


class SlowStore(SteppedStore):
    """Updates wait for `gate`, and fail as `outcomes` says: True after they were made, False
    before."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = trio.Event()
        self.gate.set()
        self.outcomes: list[bool] = []
        self.updates = 0

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        is_update = operation == "put" and expected_version is not None and expected_version >= 0
        made: bool | None = None
        if is_update:
            self.updates += 1
            await self.gate.wait()
            made = self.outcomes.pop(0) if self.outcomes else None
            if made is False:
                raise StoreUnavailable("not sent")
        yield
        if made:
            raise StoreUnavailable("no answer")


class Cluster:
    """Bookies b0, b1, … and clients on them."""

    def __init__(
        self, bookies: int, nursery: trio.Nursery | None, options: ClientOptions | None = None
    ) -> None:
        self.peers = [Peer(f"b{n}:3181") for n in range(bookies)]
        self.directory = KnownBookies(self.peers)
        self.store = SlowStore()
        self.client = BookkeeperClient(self.directory, self.store, nursery=nursery, options=options)

    def peer(self, bookie_id: str) -> Peer:
        """The bookie of that id."""
        return next(each for each in self.peers if each.bookie_id == bookie_id)

    async def writer(self, *sizes: int) -> tuple[LedgerWriter, list[Peer]]:
        """A new ledger, and its bookies in the ensemble's order."""
        writer = await self.client.create(LedgerOptions(*sizes))
        metadata = await self.client.metadata(writer.ledger_id)
        return writer, [self.peer(bookie_id) for bookie_id in metadata.ensembles[0]]

    def check_copies(self, metadata: LedgerMetadata, last: int, least: int) -> None:
        """Each entry up to `last` is on so many bookies of its write set."""
        for entry_id in range(last + 1):
            ensemble = ensemble_of(metadata.ensembles, entry_id)
            places = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
            copies = [
                ensemble[place]
                for place in places
                if entry_id in self.peer(ensemble[place]).has(metadata.ledger_id)
            ]
            assert len(copies) >= least, (entry_id, copies, metadata.ensembles)


DISK = StorageFailed("the disk")


class Heard:
    """What the appends of a writer ended with."""

    def __init__(self) -> None:
        self.confirmed = 0
        self.error: BookkeeperError | None = None

    def __call__(self, first: int, count: int, error: BookkeeperError | None) -> None:
        if error is not None:
            self.error = error
            return
        assert self.error is None, "confirmed after an error"
        assert first == self.confirmed, "out of order"
        self.confirmed += count


def append(writer: LedgerWriter, count: int, heard: Heard) -> None:
    """Append entries whose contents are their ids."""
    first = writer.last_add_pushed + 1
    writer.append([(b"%d" % n,) for n in range(first, first + count)], heard)


def drawn(chance: random.Random) -> tuple[int, int, int]:
    """Sizes of a ledger."""
    ensemble = chance.randint(2, 5)
    write = chance.randint(2, ensemble)
    return ensemble, write, chance.randint(1, write)
