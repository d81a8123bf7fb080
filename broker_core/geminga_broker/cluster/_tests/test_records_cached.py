"""Records on a store that remembers what it read (CL-01)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from geminga_broker.broker import RECORDS
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import JsonObject
from geminga_runtime.metadata.api import Node
from geminga_runtime.metadata.cached import CachedMetadataStore
from geminga_runtime.metadata.memory import MemoryMetadataStore


class CountingStore(MemoryMetadataStore):
    gets = 0

    async def get(self, path: str) -> Node | None:
        self.gets += 1
        return await super().get(path)


@pytest.fixture
async def store() -> AsyncIterator[CachedMetadataStore]:
    store = await CachedMetadataStore.open(CountingStore(), RECORDS)
    await Namespaces(store).bootstrap("c1", {}, 4)
    yield store
    await store.aclose()


async def test_a_record_is_its_readers_own(store: CachedMetadataStore) -> None:
    namespaces = Namespaces(store)
    record = await namespaces.policies("public/default")
    record["deleted"] = True
    inner = record["bundles"]
    assert isinstance(inner, dict)
    inner.clear()
    assert await namespaces.exists("public/default")
    assert (await namespaces.policies("public/default"))["bundles"] != {}


async def test_lookups_send_no_request(store: CachedMetadataStore) -> None:
    namespaces = Namespaces(store)
    beneath = store._beneath
    assert isinstance(beneath, CountingStore)
    for turn in range(3):
        before = beneath.gets
        assert await namespaces.exists("public/default")
        await namespaces.bundles("public/default")
        assert await namespaces.auto_creation("public/default") is None
        assert beneath.gets - before == (0 if turn else 2)


async def test_two_brokers_update_one_record(store: CachedMetadataStore) -> None:
    """Neither's update is lost: who was overtaken reads again."""
    beneath = store._beneath
    assert isinstance(beneath, CountingStore)
    other = await CachedMetadataStore.open(beneath.another_session(), RECORDS)

    def one_more(record: JsonObject) -> JsonObject:
        found = record.get("messageTTL", 0)
        assert isinstance(found, int)
        return record | {"messageTTL": found + 1}

    async def count(namespaces: Namespaces) -> None:
        for _ in range(30):
            await namespaces.tenants.update("public/default", one_more)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count, Namespaces(store))
            nursery.start_soon(count, Namespaces(other))
        for each in (store, other):
            assert (await Namespaces(each).policies("public/default"))["messageTTL"] == 60
    finally:
        await other.aclose()
