"""The memory store: the contract, and losing its session on demand."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from geminga_runtime.metadata._tests.contract import (
    MetadataStoreContract,
    SeveralSessions,
    drain,
)
from geminga_runtime.metadata.api import MetadataStore, SessionEvent, StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore


class TestMemory(MetadataStoreContract, SeveralSessions):
    async def open_store(self, folder: Path) -> MetadataStore:
        return MemoryMetadataStore()

    async def open_beside(self, store: MetadataStore) -> MetadataStore:
        assert isinstance(store, MemoryMetadataStore)
        return store.another_session()


async def test_lost_session_takes_its_ephemerals() -> None:
    store = MemoryMetadataStore()
    other = store.another_session()
    await store.put("/e/a", b"", ephemeral=True)
    await other.put("/e/b", b"", ephemeral=True)
    async with store.session_events() as events, other.watch("/e") as changes:
        store.expire_session()
        assert events.receive_nowait() is SessionEvent.SESSION_LOST
        assert events.receive_nowait() is SessionEvent.SESSION_RENEWED
        assert drain(changes) == [("deleted", "/e/a"), ("children", "/e")]
    assert list(await store.children("/e")) == ["b"]
    _, stat = await store.put("/e/a", b"", ephemeral=True)
    assert stat.created_by_self


async def test_unavailable_keeps_ephemerals() -> None:
    store = MemoryMetadataStore()
    await store.put("/e", b"", ephemeral=True)
    async with store.session_events() as events:
        store.set_available(False)
        store.set_available(False)
        with pytest.raises(StoreUnavailable):
            await store.get("/e")
        store.set_available(True)
        assert events.receive_nowait() is SessionEvent.CONNECTION_LOST
        assert events.receive_nowait() is SessionEvent.RECONNECTED
        with pytest.raises(trio.WouldBlock):
            events.receive_nowait()
    assert await store.exists("/e")
