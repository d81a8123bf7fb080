"""The memory store: the contract, and losing its session on demand."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from geminga_runtime.metadata._tests.contract import MetadataStoreContract
from geminga_runtime.metadata._tests.contract_session import SeveralSessions, drain
from geminga_runtime.metadata.api import (
    MetadataStore,
    SessionExpired,
    SessionPhase,
    StoreUnavailable,
)
from geminga_runtime.metadata.memory import MemoryMetadataStore


class TestMemory(SeveralSessions, MetadataStoreContract):
    async def open_store(self, folder: Path) -> MetadataStore:
        return MemoryMetadataStore()

    async def open_beside(self, store: MetadataStore) -> MetadataStore:
        assert isinstance(store, MemoryMetadataStore)
        return store.another_session()

    async def end_session(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryMetadataStore)
        store.expire_session()

    async def settle(self, store: MetadataStore) -> None:
        await trio.lowlevel.checkpoint()


async def test_lost_session_takes_its_ephemerals() -> None:
    store = MemoryMetadataStore()
    other = store.another_session()
    await store.put("/e/a", b"", epoch=store.session.epoch)
    async with other.watch("/e") as changes:
        store.expire_session()
        assert drain(changes) == [("deleted", "/e/a"), ("children", "/e")]


async def test_unavailable_keeps_ephemerals() -> None:
    store = MemoryMetadataStore()
    epoch = store.session.epoch
    await store.put("/e", b"", epoch=epoch)
    store.set_available(False)
    store.set_available(False)
    assert (store.session.epoch, store.session.phase) == (epoch, SessionPhase.SUSPENDED)
    with pytest.raises(StoreUnavailable):
        await store.get("/e")
    store.set_available(True)
    assert (store.session.epoch, store.session.phase) == (epoch, SessionPhase.CONNECTED)
    assert await store.exists("/e")


async def test_a_session_lost_while_unavailable_is_renewed_later() -> None:
    store = MemoryMetadataStore()
    epoch = store.session.epoch
    await store.put("/e", b"", epoch=epoch)
    store.set_available(False)
    store.expire_session()
    assert (store.session.epoch, store.session.phase) == (epoch + 1, SessionPhase.LOST)
    store.set_available(True)
    assert (store.session.epoch, store.session.phase) == (epoch + 1, SessionPhase.CONNECTED)
    assert not await store.exists("/e")


class _Expiring(MemoryMetadataStore):
    """Loses its session while a call is under way."""

    async def _enter(self) -> None:
        await super()._enter()
        self.expire_session()


async def test_a_session_that_ends_during_a_put_owns_nothing() -> None:
    """The epoch is compared when the node is made, not when it was asked for."""
    store = _Expiring()
    with pytest.raises(SessionExpired):
        await store.put("/e", b"", epoch=store.session.epoch)
    assert await store.get("/e") is None
