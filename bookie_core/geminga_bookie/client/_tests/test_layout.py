"""Where a ledger's metadata is, as Apache's client lays it out (BK-27)."""

from __future__ import annotations

import pytest

from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.errors import NoSuchLedger
from geminga_bookie.memory import MemoryBookie
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.api import BadVersion, MetadataError, Write
from geminga_runtime.metadata.memory import MemoryMetadataStore

FACTORY = b"1\norg.apache.bookkeeper.meta.%s:1"


@pytest.mark.parametrize(
    ("layout", "path"),
    [
        (None, "/ledgers/000/0000/0000/0000/L0000"),
        (b"LongHierarchicalLedgerManagerFactory", "/ledgers/000/0000/0000/0000/L0000"),
        (b"HierarchicalLedgerManagerFactory", "/ledgers/00/0000/L0000"),
    ],
)
async def test_ledgers_are_where_the_layout_says(layout: bytes | None, path: str) -> None:
    store = MemoryMetadataStore()
    if layout is not None:
        await store.put(paths.LAYOUT, FACTORY % layout)
    client = BookkeeperClient(KnownBookies([MemoryBookie()]), store)
    writer = await client.create(LedgerOptions())
    await writer.close()
    assert await store.exists(path)
    assert [each async for each in client.ledgers()] == [writer.ledger_id]
    await client.delete(writer.ledger_id)
    assert not await store.exists(path)


async def test_a_cluster_initialised_after_the_clients_start() -> None:
    store = MemoryMetadataStore()
    client = BookkeeperClient(KnownBookies([MemoryBookie()]), store)
    with pytest.raises(NoSuchLedger):
        await client.metadata(0)
    await store.put(paths.LAYOUT, FACTORY % b"HierarchicalLedgerManagerFactory")
    writer = await client.create(LedgerOptions())
    assert await store.exists(paths.ledger(writer.ledger_id, paths.Layout.HYBRID))


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_layout_is_certain_once_a_ledger_was_made(is_named: bool) -> None:
    """Whoever names another one then doesn't make us lose the ledger."""
    store = MemoryMetadataStore()
    client = BookkeeperClient(KnownBookies([MemoryBookie()]), store)
    if is_named:
        writer, _ = await client.create_named(LedgerOptions(), lambda _: [])
    else:
        writer = await client.create(LedgerOptions())
    await store.put(paths.LAYOUT, FACTORY % b"HierarchicalLedgerManagerFactory")
    assert (await client.metadata(writer.ledger_id)).ledger_id == writer.ledger_id
    again = await client.create(LedgerOptions())
    assert await store.exists(paths.ledger(again.ledger_id, paths.Layout.LONG))


async def test_a_ledger_that_failed_decides_no_layout() -> None:
    store = MemoryMetadataStore()
    client = BookkeeperClient(KnownBookies([MemoryBookie()]), store)
    with pytest.raises(BadVersion):
        await client.create_named(LedgerOptions(), lambda _: [Write("/x", b"", 7)])
    await store.put(paths.LAYOUT, FACTORY % b"HierarchicalLedgerManagerFactory")
    writer = await client.create(LedgerOptions())
    assert await store.exists(paths.ledger(writer.ledger_id, paths.Layout.HYBRID))


@pytest.mark.parametrize("value", [b"", b"1", FACTORY % b"FlatLedgerManagerFactory", b"\xff\n\xff"])
async def test_an_unknown_layout_is_refused(value: bytes) -> None:
    store = MemoryMetadataStore()
    await store.put(paths.LAYOUT, value)
    client = BookkeeperClient(KnownBookies([MemoryBookie()]), store)
    with pytest.raises(MetadataError, match="only LongHierarchicalLedgerManagerFactory or"):
        await client.create(LedgerOptions())


def test_ids_at_the_end_of_short_paths() -> None:
    end = (1 << 31) - 1
    assert paths.ledger(end - 1, paths.Layout.HYBRID) == "/ledgers/21/4748/L3646"
    assert paths.ledger(end, paths.Layout.HYBRID) == "/ledgers/000/0000/0021/4748/L3647"
