"""Ledgers between their making and their naming (BR-04): maker and cleaner at the same time."""

from __future__ import annotations

import pytest
import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.unnamed import UNNAMED
from geminga_bookie.errors import MetadataConflict, NotEnoughBookies
from geminga_bookie.memory import MemoryBookie
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.api import Node
from geminga_runtime.metadata.memory import MemoryMetadataStore

IDS = "/ledgers/idgen"
ALL = 1 << 62
"""A time after all notes."""


def client_of(store: MemoryMetadataStore, *bookies: MemoryBookie) -> BookkeeperClient:
    return BookkeeperClient(KnownBookies(bookies), store)


async def ledgers(client: BookkeeperClient) -> list[int]:
    return [ledger_id async for ledger_id in client.ledgers()]


async def test_a_note_stays_until_the_name() -> None:
    store = MemoryMetadataStore()
    client = client_of(store, MemoryBookie())
    await client.create(LedgerOptions())
    assert await store.children(IDS) == []
    writer = await client.create(LedgerOptions(), unnamed=True)
    assert await client.unnamed.old(ALL) == [(writer.ledger_id, 0)]
    made_ms = (await _note(store, writer.ledger_id)).stat.ctime_ms
    assert await client.unnamed.old(made_ms) == []
    await client.unnamed.name(writer.ledger_id)
    assert await store.children(IDS) == []
    with pytest.raises(MetadataConflict):
        await client.unnamed.name(writer.ledger_id)


async def _note(store: MemoryMetadataStore, ledger_id: int) -> Node:
    node = await store.get(f"{paths.id_generator()}{ledger_id:010d}")
    assert node is not None
    return node


async def test_a_claimed_ledger_can_t_be_named() -> None:
    store = MemoryMetadataStore()
    client = client_of(store, MemoryBookie())
    writer = await client.create(LedgerOptions(), unnamed=True)
    assert await client.unnamed.claim(writer.ledger_id, 0)
    with pytest.raises(MetadataConflict):
        await client.unnamed.name(writer.ledger_id)
    # A cleaner that died is followed by another one; two don't clean at once.
    assert await client.unnamed.old(ALL) == [(writer.ledger_id, 1)]
    assert not await client.unnamed.claim(writer.ledger_id, 0)
    assert await client.unnamed.claim(writer.ledger_id, 1)
    await client.unnamed.abandon(writer.ledger_id)
    await client.unnamed.abandon(writer.ledger_id)
    assert await ledgers(client) == await store.children(IDS) == []


async def test_a_named_ledger_can_t_be_claimed() -> None:
    store = MemoryMetadataStore()
    client = client_of(store, MemoryBookie())
    writer = await client.create(LedgerOptions(), unnamed=True)
    await client.unnamed.name(writer.ledger_id)
    assert not await client.unnamed.claim(writer.ledger_id, 0)


async def test_a_ledger_that_is_not_made_leaves_no_note() -> None:
    store = MemoryMetadataStore()
    with pytest.raises(NotEnoughBookies):
        await client_of(store).create(LedgerOptions(), unnamed=True)
    assert await store.children(IDS) == []
    client = client_of(store, MemoryBookie())
    await store.put(paths.ledger(1), b"")
    await store.put(paths.ledger(2), b"")
    writer = await client.create(LedgerOptions(), unnamed=True)
    assert writer.ledger_id == 3
    assert await client.unnamed.old(ALL) == [(3, 0)]


async def test_nodes_of_other_clients_are_left_alone() -> None:
    store = MemoryMetadataStore()
    client = client_of(store, MemoryBookie())
    await store.put(paths.id_generator(), b"", sequential=True)
    await store.put(f"{IDS}/other-0000000007", UNNAMED)
    await store.put(f"{IDS}/ID-x", UNNAMED)
    assert await client.unnamed.old(ALL) == []


@pytest.mark.parametrize("pause", range(4))
@pytest.mark.parametrize("done", range(3))
async def test_a_maker_goes_on_while_a_cleaner_works(pause: int, done: int) -> None:
    """The maker stops after `done` of its steps, and does the others when the cleaner comes to its
    step `pause`. If it may use the ledger, that stays.
    """
    store = MemoryMetadataStore()
    client = client_of(store, MemoryBookie())
    ledger_id = (await client.create(LedgerOptions(), unnamed=True)).ledger_id
    may_use = trio.Event()

    async def make(first: int, last: int) -> None:
        try:
            if first <= 0 < last:
                await store.put("/owner", b"%d" % ledger_id)
            if first <= 1 < last:
                await client.unnamed.name(ledger_id)
                may_use.set()
        except MetadataConflict:
            pass

    async def come_to(step: int) -> None:
        if step == pause:
            await make(done, 2)

    await make(0, done)
    for found, version in await client.unnamed.old(ALL):
        await come_to(0)
        if not await client.unnamed.claim(found, version):
            break
        await come_to(1)
        is_named = await store.exists("/owner")
        await come_to(2)
        if is_named:
            await client.unnamed.forget(found)
        else:
            await client.unnamed.abandon(found)
    await come_to(3)
    left = await ledgers(client)
    assert left == [ledger_id] or not may_use.is_set()
    assert left == [ledger_id] or not left
    if done == 2 or pause == 0:
        assert may_use.is_set()
    assert await store.children(IDS) == [] or pause == 3
