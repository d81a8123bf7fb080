"""Room on the disks of bookies (BK-11)."""

from __future__ import annotations

import pytest
import trio

from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.errors import BookieReadOnly, NotEnoughBookies, RequestTimeout
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import BookieInfo
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.memory import MemoryMetadataStore


class Sized(MemoryBookie):
    """Its disks are as large as told."""

    free_bytes = 1

    async def info(self) -> BookieInfo:
        if not self.free_bytes:
            await trio.sleep_forever()
        return BookieInfo(10, self.free_bytes)


class SomeFull(KnownBookies):
    """Only the first takes entries."""

    def writable(self) -> list[str]:
        return list(super().writable())[:1]


async def test_full_and_silent_ones_are_told(autojump_clock: object) -> None:
    bookies = [Sized(f"b{number}:3181") for number in range(3)]
    bookies[2].free_bytes = 0
    store = MemoryMetadataStore()
    for name in ("b0:3181", "b1:3181", "b2:3181", "away:3181"):
        await store.put(f"{paths.cookies()}/{name}", b"")
    found = await BookkeeperClient(SomeFull(bookies), store).space()
    assert found == {
        "b0:3181": BookieInfo(10, 1),
        "b1:3181": BookieInfo(10, 1, "it has registered as read-only"),
        "b2:3181": None,
        "away:3181": None,
    }


class Full(MemoryBookie):
    """As one on a full disk, while it says so."""

    why = "the disk is full"

    async def info(self) -> BookieInfo:
        return BookieInfo(10, 1, self.why)


async def test_no_ledger_is_made_on_bookies_that_said_that_they_are_read_only() -> None:
    ports = [Full("b0:3181"), Full("b1:3181"), MemoryBookie("b2:3181")]
    bookies, two = KnownBookies(ports), LedgerOptions(ensemble_size=2, write_quorum=2)
    client = BookkeeperClient(bookies, MemoryMetadataStore())
    await client.create(two)  # nobody has refused anything
    bookies.failed("b1:3181", RequestTimeout("slow"))
    bookies.failed("b0:3181", BookieReadOnly("full"))
    await client.create(two)  # two are left
    bookies.failed("b1:3181", BookieReadOnly("full"))
    with pytest.raises(
        NotEnoughBookies, match=r"^too few .*b0:3181 is read-only: the disk is full"
    ):
        await client.create(two)
    bookies.leave("b2:3181")
    with pytest.raises(NotEnoughBookies, match=r"^no bookie takes writes: bookie b0:3181 is"):
        await client.create(two)
    for port in ports[:2]:
        port.why = ""
    await client.create(two)
    ports[0].why = "full again"
    await client.create(two)  # its next writes tell
