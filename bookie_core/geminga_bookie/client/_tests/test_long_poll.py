"""Readers that wait for entries of an open ledger by long poll (BK-22)."""

from __future__ import annotations

import pytest
import trio

from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.append import LedgerWriter, append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.read import POLL_S, LedgerReader
from geminga_bookie.errors import BookieUnavailable
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import BookiePort
from geminga_runtime.metadata.memory import MemoryMetadataStore


class Liar(MemoryBookie):
    """Tells of a LAC that no writer confirmed."""

    async def wait_entry(
        self, ledger_id: int, entry_id: int, previous_lac: int
    ) -> tuple[bytes | None, int]:
        await trio.lowlevel.checkpoint()
        return None, 1 << 40


class Away(MemoryBookie):
    """Doesn't answer who waits."""

    async def wait_entry(
        self, ledger_id: int, entry_id: int, previous_lac: int
    ) -> tuple[bytes | None, int]:
        await trio.lowlevel.checkpoint()
        raise BookieUnavailable("away")


class World:
    def __init__(self, nursery: trio.Nursery, *bookies: BookiePort) -> None:
        self.directory = KnownBookies(bookies)
        self.client = BookkeeperClient(self.directory, MemoryMetadataStore(), nursery=nursery)

    async def open(self) -> tuple[LedgerWriter, LedgerReader]:
        """A ledger with one entry, which isn't known to be confirmed."""
        writer = await self.client.create(LedgerOptions(3, 3, 2))
        await append_durably(writer, [[b"first"]])
        reader = await self.client.open(writer.ledger_id, b"", recover=False)
        assert reader.last_add_confirmed == -1
        return writer, reader


def bookies(*kinds: type[MemoryBookie]) -> list[MemoryBookie]:
    return [kind(f"b{number}:1") for number, kind in enumerate(kinds)]


@pytest.mark.parametrize("kinds", [(MemoryBookie,) * 3, (Liar, Away, MemoryBookie)])
async def test_a_reader_learns_of_the_next_entry(
    nursery: trio.Nursery, autojump_clock: object, kinds: tuple[type[MemoryBookie], ...]
) -> None:
    world = World(nursery, *bookies(*kinds))
    writer, reader = await world.open()
    found: list[int] = []

    async def wait() -> None:
        found.append(await reader.wait_last_add_confirmed(100))

    async with trio.open_nursery() as waiting:
        waiting.start_soon(wait)
        await trio.sleep(2.0)
        assert found == []
        await append_durably(writer, [[b"second"]])
        began = trio.current_time()
    assert found == [0]
    assert trio.current_time() - began < POLL_S / 2
    assert [bytes(each) for each in await reader.read(0, 0)] == [b"first"]
    assert reader.length == 5
    await writer.close()


async def test_nothing_comes(nursery: trio.Nursery, autojump_clock: object) -> None:
    world = World(nursery, *bookies(Liar, MemoryBookie, Away))
    writer, reader = await world.open()
    began = trio.current_time()
    assert await reader.wait_last_add_confirmed(12) == -1
    assert trio.current_time() - began == pytest.approx(12)
    await writer.close()


async def test_the_end_of_the_ledger(nursery: trio.Nursery, autojump_clock: object) -> None:
    """It brings no entry; the metadata say so."""
    world = World(nursery, *bookies(*(MemoryBookie,) * 3))
    writer, reader = await world.open()
    found: list[int] = []

    async def wait() -> None:
        found.append(await reader.wait_last_add_confirmed(100))

    began = trio.current_time()
    async with trio.open_nursery() as waiting:
        waiting.start_soon(wait)
        await trio.sleep(1)
        await writer.close()
    assert found == [0]
    assert trio.current_time() - began <= POLL_S + 1
    at = trio.current_time()
    assert await reader.wait_last_add_confirmed(100) == 0
    assert trio.current_time() == at
