"""MetadataCache over a memory store that counts its reads."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from geminga_runtime.metadata.api import BadVersion, Change, Node, NoNode, Notification
from geminga_runtime.metadata.cache import TRIES_MAX, MetadataCache
from geminga_runtime.metadata.memory import MemoryMetadataStore


class CountingStore(MemoryMetadataStore):
    reads = 0
    gate: trio.Event | None = None

    async def get(self, path: str) -> Node | None:
        self.reads += 1
        node = await super().get(path)
        if self.gate is not None:
            await self.gate.wait()
        return node


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
async def cache(store: CountingStore) -> AsyncIterator[MetadataCache[list[str]]]:
    cache = make(store)
    async with trio.open_nursery() as nursery:
        await nursery.start(cache.run)
        yield cache
        nursery.cancel_scope.cancel()


def make(store: CountingStore, **options: int) -> MetadataCache[list[str]]:
    return MetadataCache(
        store,
        "/c",
        decode=lambda data: data.decode().split(","),
        encode=lambda value: ",".join(value).encode(),
        **options,
    )


async def test_reads_once(store: CountingStore, cache: MetadataCache[list[str]]) -> None:
    await cache.create("/c/a", ["x", "y"])
    await trio.testing.wait_all_tasks_blocked()  # the cache hears of its own write too
    for _ in range(3):
        assert await cache.get("/c/a") == ["x", "y"]
        assert await cache.get("/c/none") is None
    assert store.reads == 2
    assert "2 values" in repr(cache)


async def test_hears_of_changes(store: CountingStore, cache: MetadataCache[list[str]]) -> None:
    other = store.another_session()
    assert await cache.get("/c/a") is None
    await other.put("/c/a", b"1")
    await trio.testing.wait_all_tasks_blocked()
    assert await cache.get("/c/a") == ["1"]
    await other.put("/c/a", b"2")
    await trio.testing.wait_all_tasks_blocked()
    cached = await cache.get_with_stat("/c/a")
    assert cached is not None
    assert (cached.value, cached.stat.version) == (["2"], 1)
    await other.delete("/c/a")
    await trio.testing.wait_all_tasks_blocked()
    assert await cache.get("/c/a") is None
    assert await cache.children("/c") == []


async def test_own_writes_are_seen_at_once(cache: MetadataCache[list[str]]) -> None:
    await cache.create("/c/a", ["1"])
    assert await cache.get("/c/a") == ["1"]
    stat = await cache.put("/c/a", ["2"], 0)
    assert await cache.get("/c/a") == ["2"]
    with pytest.raises(BadVersion):
        await cache.create("/c/a", ["3"])
    await cache.delete("/c/a", stat.version)
    assert await cache.get("/c/a") is None


async def test_many_readers_one_read(
    store: CountingStore, cache: MetadataCache[list[str]], nursery: trio.Nursery
) -> None:
    await store.put("/c/a", b"1")
    await trio.testing.wait_all_tasks_blocked()
    store.gate = trio.Event()
    got: list[list[str] | None] = []

    async def read() -> None:
        got.append(await cache.get("/c/a"))

    for _ in range(5):
        nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    store.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert got == [["1"]] * 5
    assert store.reads == 1


async def test_cancelled_loader_hands_over(
    store: CountingStore, cache: MetadataCache[list[str]], nursery: trio.Nursery
) -> None:
    await store.put("/c/a", b"1")
    await trio.testing.wait_all_tasks_blocked()
    store.gate = trio.Event()
    got: list[list[str] | None] = []
    scope = trio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await cache.get("/c/a")

    async def read() -> None:
        got.append(await cache.get("/c/a"))

    nursery.start_soon(cancelled)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(read)
    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    store.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert got == [["1"], ["1"]]
    assert store.reads == 2


async def test_load_that_a_change_overtakes_is_not_kept(
    store: CountingStore, cache: MetadataCache[list[str]], nursery: trio.Nursery
) -> None:
    await store.put("/c/a", b"old")
    await trio.testing.wait_all_tasks_blocked()
    store.gate = trio.Event()
    nursery.start_soon(cache.get, "/c/a")
    await trio.testing.wait_all_tasks_blocked()
    await store.put("/c/a", b"new")
    await trio.testing.wait_all_tasks_blocked()
    store.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert await cache.get("/c/a") == ["new"]


async def test_lost_forgets_all(store: CountingStore, cache: MetadataCache[list[str]]) -> None:
    await cache.get("/c/a")
    cache._hear(Notification(Change.CHILDREN, "/c/a"))
    await cache.get("/c/a")
    assert store.reads == 1
    cache._hear(Notification(Change.LOST, "/c"))
    await cache.get("/c/a")
    assert store.reads == 2


async def test_without_watch_nothing_is_kept(store: CountingStore) -> None:
    cache = make(store)
    for _ in range(3):
        await cache.get("/c/a")
    assert store.reads == 3


async def test_errors_of_decode_are_not_kept(store: CountingStore) -> None:
    cache = make(store)
    await store.put("/c/a", b"\xff")
    for _ in range(2):
        with pytest.raises(UnicodeDecodeError):
            await cache.get("/c/a")


async def test_values_max(store: CountingStore, nursery: trio.Nursery) -> None:
    cache = make(store, values_max=3)
    await nursery.start(cache.run)
    for number in range(10):
        await cache.get(f"/c/{number}")
    assert "3 values" in repr(cache)
    await cache.get("/c/9")
    assert store.reads == 10


async def test_read_modify_write_loses_no_update(
    store: CountingStore, cache: MetadataCache[list[str]]
) -> None:
    with pytest.raises(NoNode):
        await cache.read_modify_write("/c/a", lambda value: value)

    async def add(name: str) -> None:
        await cache.read_modify_write_or_create("/c/a", lambda value: [*(value or []), name])

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(add, str(number))
    assert sorted(await cache.get("/c/a") or [], key=int) == [str(n) for n in range(20)]


async def test_read_modify_write_changes_a_copy(
    cache: MetadataCache[list[str]], store: CountingStore
) -> None:
    await cache.create("/c/a", ["1"])
    seen = await cache.get("/c/a")

    def spoil(value: list[str]) -> list[str]:
        value.append("2")
        raise ValueError("leave it")

    with pytest.raises(ValueError, match="leave it"):
        await cache.read_modify_write("/c/a", spoil)
    assert seen == await cache.get("/c/a") == ["1"]


async def test_read_modify_write_gives_up(cache: MetadataCache[list[str]]) -> None:
    await cache.create("/c/a", ["1"])
    calls: list[int] = []

    async def always_late(path: str, value: list[str], expected: int | None = None) -> None:
        calls.append(1)
        raise BadVersion(path)

    cache.put = always_late
    with pytest.raises(BadVersion, match="tries in a row"):
        await cache.read_modify_write("/c/a", lambda value: value)
    assert len(calls) == TRIES_MAX
