"""Calls of a metadata store are counted (OP-05)."""

from __future__ import annotations

import pytest
import trio

from geminga_runtime.metadata.api import MUST_NOT_EXIST, BadVersion, MetadataStore
from geminga_runtime.metadata.cached import CachedMetadataStore
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.routed import RoutedMetadataStore
from geminga_runtime.metadata.timed import TimedMetadataStore
from geminga_runtime.metrics.store_times import StoreTimes, times_of


def counts(times: StoreTimes) -> dict[str, tuple[int, int]]:
    """Calls that succeeded and that failed."""
    return {
        call: (sum(times.succeeded[call].counts), sum(times.failed[call].counts))
        for call in times.succeeded
    }


async def test_calls_and_bytes() -> None:
    store: MetadataStore = TimedMetadataStore(MemoryMetadataStore(), "s")
    (times,) = times_of(store)
    await store.put("/a", b"12345")
    with pytest.raises(BadVersion):
        await store.put("/a", b"1234567", MUST_NOT_EXIST)
    assert await store.get("/b") is None
    await store.delete("/a")
    assert not await store.exists("/a")
    assert await store.children("/a") == []
    assert times.name == "s"
    assert counts(times) == {"get": (1, 0), "put": (1, 1), "del": (1, 0)}
    assert times.put_bytes == 5


async def test_a_cancelled_call_has_neither_failed_nor_passed() -> None:
    store = TimedMetadataStore(MemoryMetadataStore(), "s")
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.get("/a")
    assert scope.cancelled_caught
    assert counts(store.times[0])["get"] == (0, 0)


async def test_what_is_remembered_is_no_call_and_all_stores_beneath_are_told() -> None:
    own = TimedMetadataStore(MemoryMetadataStore(), "own")
    cached = await CachedMetadataStore.open(own, "/admin")
    shared = TimedMetadataStore(MemoryMetadataStore(), "shared")
    store = RoutedMetadataStore(cached, shared)
    assert [each.name for each in times_of(store)] == ["own", "shared"]
    for _ in range(3):
        await store.get("/admin/local-policies/x")
        await store.get("/admin/policies/x")
    assert counts(own.times[0])["get"] == (1, 0)
    assert counts(shared.times[0])["get"] == (3, 0)
    assert not times_of(MemoryMetadataStore())
    await store.aclose()
