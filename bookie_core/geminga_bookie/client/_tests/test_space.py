"""Room on the disks of bookies (BK-11)."""

from __future__ import annotations

import trio

from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
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
    assert found == {"b0:3181": (1, 10), "b1:3181": (1, 10), "b2:3181": None, "away:3181": None}
