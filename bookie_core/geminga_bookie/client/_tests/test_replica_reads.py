"""Which replica is read from, and when another one (BK-22)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from geminga_bookie.client._tests.cluster import DISK, Cluster, Heard
from geminga_bookie.client._tests.test_client import settle
from geminga_bookie.client.api import ClientOptions, LedgerOptions, ReadOptions
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.health import ReadRank
from geminga_bookie.client.read import STRIPES_MAX, LedgerReader
from geminga_bookie.errors import (
    BookieUnavailable,
    BookkeeperError,
    NoSuchEntry,
    StorageFailed,
)
from geminga_bookie.memory import MemoryBookie


class Replica(MemoryBookie):
    """Answers reads late, or not at all, or with an error; notes them."""

    def __init__(self, bookie_id: str) -> None:
        super().__init__(bookie_id)
        self.delay_s = 0.0
        self.failure: BookkeeperError | None = None
        self.reads: list[tuple[int, int]] = []
        self.at_once = 0
        self.at_once_max = 0
        self.given_up = 0

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        self.reads.append((first_entry_id, entries_max))
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            await trio.sleep(self.delay_s)
        except trio.Cancelled:
            self.given_up += 1
            raise
        finally:
            self.at_once -= 1
        if self.failure is not None:
            raise self.failure
        return await super().read(
            ledger_id, first_entry_id, entries_max=entries_max, bytes_max=bytes_max
        )


class Directory(KnownBookies):
    """Bookies of different ranks."""

    def __init__(self, ports: Sequence[Replica]) -> None:
        super().__init__(ports)
        self.ranks: dict[str, ReadRank] = {}
        self.told: list[tuple[str, str]] = []

    def read_rank(self, bookie_id: str) -> ReadRank:
        return self.ranks.get(bookie_id, ReadRank.GOOD)

    def failed(self, bookie_id: str, error: BookkeeperError) -> None:
        self.told.append((bookie_id, type(error).__name__))

    def slow(self, bookie_id: str) -> None:
        self.told.append((bookie_id, "slow"))


class World:
    """A closed ledger on three bookies, of which the handle prefers the first one of `order`."""

    def __init__(self, reads: ReadOptions) -> None:
        self.replicas = [Replica(f"b{n}:3181") for n in range(3)]
        self.directory = Directory(self.replicas)
        self.client = BookkeeperClient(
            self.directory, Cluster(0, None).store, options=ClientOptions(reads)
        )

    async def ledger(self, *sizes: int, entries: int = 9, size: int = 1) -> LedgerReader:
        writer = await self.client.create(LedgerOptions(*sizes))
        writer.append([(b"%d" % (n % 10) * size,) for n in range(entries)], Heard())
        await settle()
        await writer.close()
        handle = await self.client.open(writer.ledger_id, b"", recover=False)
        self.order = [
            next(each for each in self.replicas if each.bookie_id == bookie_id)
            for bookie_id in handle._reads.order(handle._metadata, 0)
        ]
        return handle

    def counts(self) -> list[int]:
        return [len(each.reads) for each in self.order]


async def read_all(handle: LedgerReader, last: int = 8) -> None:
    found = await handle.read(0, last)
    assert [bytes(each) for each in found] == [b"%d" % (n % 10) for n in range(last + 1)]


async def test_a_handle_stays_with_one_bookie() -> None:
    world = World(ReadOptions())
    handle = await world.ledger(3, 3, 2)
    for entry_id in range(9):
        await handle.read(entry_id, entry_id)
    assert world.counts() == [9, 0, 0]


async def test_without_sticky_reads_all_have_their_share() -> None:
    world = World(ReadOptions(sticky=False))
    handle = await world.ledger(3, 3, 2)
    for entry_id in range(9):
        await handle.read(entry_id, entry_id)
    assert world.counts() == [3, 3, 3]


async def test_another_bookie_after_a_failure() -> None:
    world = World(ReadOptions())
    handle = await world.ledger(3, 3, 2)
    world.order[0].failure = StorageFailed("the disk")
    for _ in range(5):
        await read_all(handle)
    assert world.counts() == [1, 5, 0], "it isn't tried again each time"
    assert world.directory.told == [(world.order[0].bookie_id, "StorageFailed")]


async def test_those_that_do_badly_come_last() -> None:
    world = World(ReadOptions())
    handle = await world.ledger(3, 3, 2)
    slow, away, good = world.order
    world.directory.ranks = {slow.bookie_id: ReadRank.SLOW, away.bookie_id: ReadRank.AWAY}
    await read_all(handle)
    assert world.counts() == [0, 0, 1]
    good.failure = BookieUnavailable("away")
    await read_all(handle)
    assert world.counts() == [1, 0, 2]


async def test_the_error_that_says_most() -> None:
    world = World(ReadOptions())
    handle = await world.ledger(3, 3, 2)
    world.order[0].failure = BookieUnavailable("away")
    for each in world.order[1:]:
        each.failure = NoSuchEntry("lost")
    with pytest.raises(BookieUnavailable):
        await handle.read(0, 1)


async def test_a_slow_bookie_without_speculation(autojump_clock: object) -> None:
    world = World(ReadOptions())
    handle = await world.ledger(3, 3, 2)
    world.order[0].delay_s = 20
    await read_all(handle)
    assert trio.current_time() >= 20
    assert world.counts() == [1, 0, 0]


async def test_a_slow_bookie_with_speculation(autojump_clock: object) -> None:
    world = World(ReadOptions(speculative_s=1.0))
    handle = await world.ledger(3, 3, 2)
    first, second, _ = world.order
    first.delay_s = second.delay_s = 20
    began = trio.current_time()
    await read_all(handle)
    assert trio.current_time() - began == 2.0
    assert (first.given_up, second.given_up) == (1, 1)
    told = [(first.bookie_id, "slow"), (second.bookie_id, "slow")]
    assert world.directory.told == told
    await read_all(handle)
    assert world.counts() == [1, 1, 2], "it goes on with the one that answered"


async def test_speculation_and_failures(autojump_clock: object) -> None:
    """A failure is not waited for; the slow one may still be the only one that has the entry."""
    world = World(ReadOptions(speculative_s=1.0))
    handle = await world.ledger(3, 3, 2)
    first, second, third = world.order
    first.delay_s = 5
    second.failure = third.failure = DISK
    began = trio.current_time()
    await read_all(handle)
    assert trio.current_time() - began == 5
    first.failure = DISK
    with pytest.raises(StorageFailed):
        await handle.read(0, 0)


async def test_stripes_are_read_side_by_side(autojump_clock: object) -> None:
    world = World(ReadOptions())
    handle = await world.ledger(3, 2, 2, entries=120)
    for each in world.replicas:
        each.delay_s = 1
        each.reads.clear()
    began = trio.current_time()
    await read_all(handle, 119)
    assert trio.current_time() - began == 1
    assert [len(each.reads) for each in world.replicas] == [20, 20, 20]
    assert {count for each in world.replicas for _, count in each.reads} == {2}


async def test_stripes_have_bounds(autojump_clock: object) -> None:
    """As many entries as fit, one at least; and no more at once than needed for them."""
    world = World(ReadOptions())
    handle = await world.ledger(3, 2, 2, entries=400, size=1000)
    for bytes_max, entries, stripes in ((1, 1, 1), (3000, 3, 2), (10_000, 10, 6)):
        for each in world.replicas:
            each.reads.clear()
        found = await handle.read(0, 399, bytes_max=bytes_max)
        assert entries <= len(found) <= entries + 1
        assert sum(len(each.reads) for each in world.replicas) <= stripes + 1
    for each in world.replicas:
        each.delay_s, each.at_once_max = 1, 0
    assert len(await handle.read(0, 399)) == 400
    assert sum(each.at_once_max for each in world.replicas) <= STRIPES_MAX + 2


async def test_stripes_of_a_bookie_that_is_away() -> None:
    world = World(ReadOptions())
    handle = await world.ledger(3, 2, 2, entries=30)
    world.replicas[1].failure = BookieUnavailable("away")
    await read_all(handle, 29)
    world.replicas[2].failure = StorageFailed("the disk")
    with pytest.raises(BookkeeperError):
        await handle.read(0, 29)


async def test_what_precedes_a_lost_stripe_is_read() -> None:
    world = World(ReadOptions())
    handle = await world.ledger(3, 2, 2, entries=30)
    for each in world.replicas:
        each._ledgers[handle.ledger_id].entries.pop(7, None)
    assert len(await handle._read_striped(0, 30, 1 << 20)) == 7
    with pytest.raises(NoSuchEntry):
        await handle._read_striped(7, 23, 1 << 20)
