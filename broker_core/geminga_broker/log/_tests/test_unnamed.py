"""Clusters that share their bookies, each with metadata of its own (BR-04)."""

from __future__ import annotations

import pytest

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.memory import MemoryBookie
from geminga_broker.log.options import COMPONENT, CURSOR_NAME, LOG_NAME
from geminga_broker.log.unnamed import clean, ledger_owner, log_ledgers
from geminga_runtime.metadata.memory import MemoryMetadataStore

ALL_MS = 1 << 62
"""A time after all notes."""
OF_A_CURSOR = {
    COMPONENT: b"managed-ledger",
    LOG_NAME: b"public/default/persistent/t",
    CURSOR_NAME: b"s",
}


@pytest.mark.parametrize("is_shared", [True, False])
async def test_another_cluster_s_ledgers_are_left_alone(is_shared: bool) -> None:
    """A broker is killed between naming a ledger and deleting the note of it."""
    ledgers, bookie = MemoryMetadataStore(), MemoryBookie()
    own = MemoryMetadataStore()
    other = MemoryMetadataStore() if is_shared else own

    async def client_of(store: MemoryMetadataStore) -> BookkeeperClient:
        return BookkeeperClient(KnownBookies([bookie]), ledgers, owner=await ledger_owner(store))

    options = LedgerOptions(custom_metadata=OF_A_CURSOR)
    writer = await (await client_of(other)).create(options, unnamed=True)
    deleted = await clean(await client_of(own), own, log_ledgers(own), ALL_MS)
    assert deleted == ([] if is_shared else [writer.ledger_id])


async def test_an_owner_keeps_its_id() -> None:
    store, other = MemoryMetadataStore(), MemoryMetadataStore()
    first = await ledger_owner(store)
    assert first == await ledger_owner(store) != await ledger_owner(other)
