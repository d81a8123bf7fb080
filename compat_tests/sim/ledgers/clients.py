"""Processes with a ledger client in them: writers, readers, recoverers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import trio

from geminga_bookie.client.api import LedgerOptions, LedgerState
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.errors import BookieUnavailable, BookkeeperError, NoSuchLedger
from geminga_bookie.registered import RegisteredBookies
from geminga_bookie.wire.options import RemoteOptions
from geminga_runtime.metadata.api import MetadataError

from .books import LedgerBook
from .keeper import KeeperDoor
from .wire import Wire
from .world import World

PASSWORD = b"secret"
RECOVERY_S = 60.0
"""A recoverer tries no longer at once."""


class Directory(RegisteredBookies):
    """The bookies that are registered, each behind a `Wire`."""

    def __init__(self, name: str, store: KeeperDoor, world: World, nursery: trio.Nursery) -> None:
        super().__init__(store, RemoteOptions(), nursery)
        self._name = name
        self._world = world
        self._wires: dict[str, Wire] = {}

    def port(self, bookie_id: str) -> Wire:
        """See `BookieDirectory.port`."""
        wire = self._wires.get(bookie_id)
        if wire is None:
            bookie = self._world.bookies.get(bookie_id)
            if bookie is None:
                raise BookieUnavailable(f"no bookie {bookie_id}")
            world = self._world
            wire = Wire(self._name, bookie, world.network, world.plan.timeout_s)
            self._wires[bookie_id] = wire
        return wire


class Process:
    """One process with a ledger client."""

    def __init__(self, name: str, world: World, nursery: trio.Nursery) -> None:
        self.name = name
        self.world = world
        self.nursery = nursery
        plan = world.plan
        self.store = KeeperDoor(name, world.tree, world.network, plan.session_s)
        self.directory = Directory(name, self.store, world, nursery)
        self.client = BookkeeperClient(self.directory, self.store, nursery=nursery)
        nursery.start_soon(self.directory.follow)

    def crash(self) -> None:
        """It is gone, without a word."""
        world = self.world
        if self.name not in world.network.dead:
            world.books.log.add(f"{self.name} crashes")
            world.network.dead.add(self.name)
            self.store.close()
            self.nursery.cancel_scope.cancel()


@asynccontextmanager
async def process(world: World, name: str) -> AsyncIterator[Process]:
    """A process until the block ends, or until it crashes."""
    async with trio.open_nursery() as nursery:
        made = Process(name, world, nursery)
        world.processes[name] = made
        try:
            yield made
        finally:
            made.crash()


def content(chance: Random, ledger_id: int, entry_id: int) -> bytes:
    """An entry that no other one is like."""
    return b"%d:%d " % (ledger_id, entry_id) + b"x" * chance.choice((0, 10, 300, 3000))


class Writer:
    """Writes one ledger after the other, as a topic's owner does."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._chance = world.chances.of(f"writer {number}")
        self._name = f"writer{number}"
        self._sizes = world.plan.sizes[number]
        self._lives = 0
        self.done = trio.Event()

    async def run(self) -> None:
        """Write all ledgers; then the last process stays, and thinks that it may still write."""
        left = self._world.plan.ledgers
        while left:
            self._lives += 1
            async with process(self._world, f"{self._name}.{self._lives}") as here:
                while left and not self._world.is_over:
                    writer = await self._create(here)
                    left -= 1
                    await self._write(here, writer)
                self.done.set()
                await trio.sleep_forever()
            await trio.sleep(self._chance.random())
        self.done.set()

    async def _create(self, here: Process) -> LedgerWriter:
        while True:
            try:
                return await here.client.create(LedgerOptions(*self._sizes, password=PASSWORD))
            except (BookkeeperError, MetadataError):
                await trio.sleep(0.2 + self._chance.random())

    async def _write(self, here: Process, writer: LedgerWriter) -> None:
        chance, books = self._chance, self._world.books
        book = books.created(writer.ledger_id, self._sizes)
        self._world.writers.append((book, writer))
        pause_s = chance.choice((0.0, 0.005, 0.05, 0.5))
        left = chance.randint(1, 2 * self._world.plan.entries)
        while left > 0 and book.error is None and not self._world.is_over:
            count = min(left, chance.choice((1, 1, 2, 5, 12)))
            append(chance, writer, book, count, self._world)
            left -= count
            await trio.sleep(chance.random() * pause_s)
        if book.error is not None:
            await trio.sleep(chance.choice((0.0, 3.0, 15.0)) * chance.random())
        how = chance.randrange(5)
        if how == 0:
            return  # it is left open, as by one that has lost its topic without knowing
        if how == 1:
            await trio.sleep(chance.random() * 5)
        for _ in range(chance.choice((1, 2, 3))):
            try:
                await writer.close()
            except (BookkeeperError, MetadataError) as error:
                books.log.add(f"{book.text} not closed: {type(error).__name__}")
            else:
                books.closed(book, writer.last_add_confirmed, writer.length, here.name)
                return


def append(
    chance: Random, writer: LedgerWriter, book: LedgerBook, count: int, world: World
) -> None:
    """Append so many entries."""
    first = len(book.contents)
    made = [content(chance, book.ledger_id, n) for n in range(first, first + count)]
    book.contents += made

    def done(first: int, count: int, error: BookkeeperError | None) -> None:
        world.books.answered(book, first, count, error)

    writer.append([(each,) for each in made], done)


class Recoverer:
    """Takes ledgers over whose writers may still live."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._chance = world.chances.of(f"recoverer {number}")
        self._name = f"recoverer{number}"

    async def run(self) -> None:
        """For ever."""
        world, chance = self._world, self._chance
        lives = 0
        while True:
            await trio.sleep(chance.choice((0.05, 0.5, 3.0)) * chance.random())
            open_now = [each for each in world.books.ledgers.values() if each.end is None]
            if not open_now:
                await trio.sleep(0.5)
                continue
            lives += 1
            async with process(world, f"{self._name}.{lives}") as here:
                with trio.move_on_after(RECOVERY_S):
                    await self._recover(here, chance.choice(open_now))

    async def _recover(self, here: Process, book: LedgerBook) -> None:
        for _ in range(self._chance.choice((1, 3, 10))):
            if await recover(here, book) is not None or book.is_deleted:
                return
            await trio.sleep(self._chance.random())


async def recover(here: Process, book: LedgerBook) -> LedgerReader | None:
    """One attempt."""
    books = here.world.books
    books.log.add(f"{here.name} recovers {book.text}")
    try:
        reader = await here.client.open(book.ledger_id, PASSWORD, recover=True)
    except (BookkeeperError, MetadataError) as error:
        books.log.add(f"{here.name} can't: {type(error).__name__} {error}")
        if isinstance(error, NoSuchLedger) and not book.is_deleted:
            books.violate(f"{book.text}: its metadata is gone")
        return None
    books.closed(book, reader.last_add_confirmed, reader.length, here.name)
    return reader


class Reader:
    """Reads ledgers, also open ones, as far as is confirmed."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._chance = world.chances.of(f"reader {number}")
        self._name = f"reader{number}"

    async def run(self) -> None:
        """For ever."""
        world, chance = self._world, self._chance
        lives = 0
        while True:
            lives += 1
            async with process(world, f"{self._name}.{lives}") as here:
                while True:
                    await trio.sleep(chance.choice((0.05, 0.5)) * chance.random())
                    ledgers = list(world.books.ledgers.values())
                    if ledgers:
                        await self._follow(here, chance.choice(ledgers))

    async def _follow(self, here: Process, book: LedgerBook) -> None:
        chance = self._chance
        try:
            reader = await here.client.open(book.ledger_id, PASSWORD, recover=False)
            for _ in range(chance.choice((1, 3, 8))):
                self._told(reader, book)
                if reader.last_add_confirmed >= 0:
                    first = chance.randint(0, reader.last_add_confirmed)
                    last = min(reader.last_add_confirmed, first + chance.choice((0, 2, 12)))
                    await read(here, reader, book, first, last)
                await trio.sleep(chance.choice((0.01, 0.3)) * chance.random())
                await reader.read_last_add_confirmed()
        except (BookkeeperError, MetadataError) as error:
            here.world.books.log.add(f"{here.name} can't read: {type(error).__name__}")

    def _told(self, reader: LedgerReader, book: LedgerBook) -> None:
        last = reader.last_add_confirmed
        if reader._metadata.state is LedgerState.CLOSED:
            self._world.books.closed(book, last, reader.length, self._name)
        else:
            self._world.books.lac(book, last, self._name)


async def read(
    here: Process, reader: LedgerReader, book: LedgerBook, first: int, last: int
) -> None:
    """Read entries, and compare them. Raises BookkeeperError."""
    found = [bytes(each) for each in await reader.read(first, last)]
    here.world.books.read(book, first, found, here.name)


class Deleter:
    """Deletes closed ledgers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chances.of("deleter")

    async def run(self) -> None:
        """For ever."""
        world, chance = self._world, self._chance
        lives = 0
        while True:
            await trio.sleep(2 + 6 * chance.random())
            closed = [each for each in world.books.ledgers.values() if each.end is not None]
            if not closed:
                continue
            book = chance.choice(closed)
            lives += 1
            async with process(world, f"deleter.{lives}") as here:
                book.is_deleted = True
                world.books.log.add(f"{book.text} is deleted")
                try:
                    await here.client.delete(book.ledger_id)
                except MetadataError:
                    continue
