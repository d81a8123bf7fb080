"""What garbage collection takes for deleted: never what could not be read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.support import add, read_all, small_options, until
from geminga_bookie.errors import NoSuchLedger
from geminga_bookie.options import GcOptions
from geminga_bookie.process.identity import LAYOUT_VALUE
from geminga_bookie.process.live_ledgers import LiveLedgers
from geminga_bookie.process.run import open_member
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.api import MetadataError, StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore

LONG = LAYOUT_VALUE.replace(b"Hier", b"LongHier")
ABOVE = 1 << 40
"""Has a long path in each layout."""


class Store(MemoryMetadataStore):
    """Some nodes' children can't be read, or are not told; what is behind doesn't come before the
    next change.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unreadable = ""
        self.untold = ""
        self.behind = ""
        self.asked: list[str] = []

    async def exists(self, path: str) -> bool:
        self.asked.append(path)
        return await super().exists(path)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        if self.behind:
            await self.put(self.behind, b"")
            self.behind = ""
        await super().delete(path, expected_version)

    async def children(self, path: str) -> Sequence[str]:
        if path == self.unreadable:
            raise StoreUnavailable("away")
        return [] if path == self.untold else await super().children(path)


@pytest.fixture(params=[LAYOUT_VALUE, LONG], ids=["hybrid", "long"])
async def store(request: pytest.FixtureRequest) -> Store:
    made = Store()
    await made.put(paths.INSTANCE_ID, b"cluster-1")
    await made.put(paths.LAYOUT, request.param)
    layout = paths.layout_of(request.param)
    for ledger_id in (1, 2, ABOVE):
        await made.put(paths.ledger(ledger_id, layout), b"")
    return made


@pytest.fixture
async def bookie(store: Store, tmp_path: Path) -> AsyncIterator[InProcessBookie]:
    async with open_member(store, small_options(tmp_path)) as opened:
        for ledger_id in (1, 2, 3, ABOVE):
            await add(opened, ledger_id, range(3))
        yield opened


async def collected(bookie: InProcessBookie, store: Store) -> list[int]:
    live = LiveLedgers(store, "cluster-1")
    report = await bookie.gc.collect(live.ids, 0.0, live.exists)
    return report.ledgers_deleted


async def test_what_is_deleted_goes(bookie: InProcessBookie, store: Store) -> None:
    assert await collected(bookie, store) == [3]
    with pytest.raises(NoSuchLedger):
        await read_all(bookie, 3, 0, 2)
    for ledger_id in (1, 2, ABOVE):
        assert len(await read_all(bookie, ledger_id, 0, 2)) == 3


async def test_what_is_not_listed_but_there_stays(bookie: InProcessBookie, store: Store) -> None:
    """A list that lacks a branch of the tree."""
    names = [name for name in await store.children(paths.ROOT) if name.isdigit()]
    store.untold = f"{paths.ROOT}/{names[0]}"
    assert await collected(bookie, store) == [3]


@pytest.mark.parametrize("mistake", ["other", "emptied", "no layout", "flat", "cut off"])
async def test_nothing_goes_by_metadata_that_can_not_be_trusted(
    bookie: InProcessBookie, store: Store, mistake: str
) -> None:
    if mistake == "other":
        await store.put(paths.INSTANCE_ID, b"cluster-2")
    elif mistake == "emptied":
        store = Store()
    elif mistake == "no layout":
        await store.delete(paths.LAYOUT)
    elif mistake == "flat":
        await store.put(paths.LAYOUT, LAYOUT_VALUE.replace(b"Hierarchical", b"Flat"))
    else:
        store.unreadable = paths.ROOT
    with pytest.raises(MetadataError):
        await collected(bookie, store)
    assert set(bookie.storage.table.states) == {1, 2, 3, ABOVE}


async def test_a_server_that_is_behind_catches_up_first(
    bookie: InProcessBookie, store: Store
) -> None:
    """The ledger is new, and entries of it are here already."""
    store.behind = paths.ledger(3, paths.Layout.LONG)
    assert await collected(bookie, store) == []


async def test_a_deleted_ledger_in_the_logs_is_asked_for_once(store: Store, tmp_path: Path) -> None:
    options = small_options(tmp_path, entry_log_bytes_max=1)
    async with open_member(store, options) as bookie:
        for ledger_id in (3, 1):
            await add(bookie, ledger_id, range(3))
        for _ in range(2):
            await bookie.checkpointer.checkpoint()
            await add(bookie, 1, [3])
        store.asked.clear()
        assert await collected(bookie, store) == [3]
        assert len(store.asked) == 2
        for _ in range(3):
            assert await collected(bookie, store) == []
        assert len(store.asked) == 2
        assert bookie.gc._gone == {3}


async def test_a_store_that_is_emptied_meanwhile(store: Store) -> None:
    """A list that had begun ends with an error, and nothing that isn't there counts as deleted."""
    live = LiveLedgers(store, "cluster-1")
    listing = live.ids()
    assert await anext(listing) == 1
    await store.put(paths.INSTANCE_ID, b"cluster-2")
    with pytest.raises(MetadataError, match="is of cluster cluster-2, not cluster-1"):
        [each async for each in listing]
    assert await live.exists(2)
    with pytest.raises(MetadataError):
        await live.exists(4)


async def test_the_other_layouts_path_counts_too(bookie: InProcessBookie, store: Store) -> None:
    """As of a cluster whose layout was made another one."""
    for layout in paths.Layout:
        await store.put(paths.ledger(3, layout), b"")
        assert await collected(bookie, store) == []
        await store.delete(paths.ledger(3, layout))
    assert await collected(bookie, store) == [3]


async def test_the_collector_of_a_member_asks_the_cluster(store: Store, tmp_path: Path) -> None:
    options = small_options(tmp_path, gc=GcOptions(gc_interval_s=0.02))
    async with open_member(store, options) as opened:
        bookie = cast(InProcessBookie, opened)
        await add(bookie, 3, range(3))
        await add(bookie, 1, range(3))
        store.untold = paths.ROOT  # nothing is listed
        await until(lambda: 3 not in bookie.storage.table.states)
        assert 1 in bookie.storage.table.states
