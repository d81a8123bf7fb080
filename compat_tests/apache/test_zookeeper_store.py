"""The metadata store on a real ZooKeeper: the contract, and what only a server can do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from compat_tests.apache.zookeeper import ZooKeeperServer
from geminga_runtime.metadata._tests.contract import MetadataStoreContract
from geminga_runtime.metadata._tests.contract_session import SeveralSessions
from geminga_runtime.metadata.api import MetadataStore
from geminga_runtime.metadata.cached import CachedMetadataStore
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

pytestmark = pytest.mark.java

open_store = ZooKeeperMetadataStore.open
_running: list[ZooKeeperServer] = []
_numbers = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def running(server: ZooKeeperServer) -> Iterator[None]:
    _running.append(server)
    yield
    _running.clear()


def expire(store: MetadataStore) -> None:
    """Let the server end the store's session: it does so for whoever knows its password."""
    assert isinstance(store, ZooKeeperMetadataStore)
    client = store._calls._link._client
    host, port = client.hosts[0]
    twin = KazooClient(f"{host}:{port}", client_id=client.client_id)
    twin.start()
    twin.stop()
    twin.close()


class TestZooKeeper(SeveralSessions, MetadataStoreContract):
    async def open_store(self, folder: Path) -> MetadataStore:
        """On a chroot of its own."""
        return await open_store(f"{_running[0].url}/contract/{next(_numbers)}")

    async def open_beside(self, store: MetadataStore) -> MetadataStore:
        assert isinstance(store, ZooKeeperMetadataStore)
        return await open_store(f"{_running[0].url}{store._chroot}")

    async def end_session(self, store: MetadataStore) -> None:
        expire(store)

    async def settle(self, store: MetadataStore) -> None:
        """A server sends the changes before the answer that may show them."""
        await store.exists("/")


class TestCachedZooKeeper(TestZooKeeper):
    """With a cache of everything before it."""

    async def open_store(self, folder: Path) -> MetadataStore:
        return await CachedMetadataStore.open(await super().open_store(folder), "/")

    async def open_beside(self, store: MetadataStore) -> MetadataStore:
        return await CachedMetadataStore.open(await super().open_beside(beneath(store)), "/")

    async def end_session(self, store: MetadataStore) -> None:
        await super().end_session(beneath(store))

    async def settle(self, store: MetadataStore) -> None:
        await super().settle(beneath(store))


def beneath(store: MetadataStore) -> MetadataStore:
    assert isinstance(store, CachedMetadataStore)
    return store._beneath
