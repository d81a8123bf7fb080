"""What a store's cache remembers: the contract, and never what has changed (CL-01)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from geminga_runtime.metadata._tests.contract import MetadataStoreContract
from geminga_runtime.metadata._tests.contract_session import SeveralSessions
from geminga_runtime.metadata.api import (
    BadVersion,
    MetadataStore,
    Node,
    Notification,
    SessionExpired,
    StoreUnavailable,
)
from geminga_runtime.metadata.cached import EXPIRE_S, CachedMetadataStore
from geminga_runtime.metadata.memory import MemoryMetadataStore


def beneath(store: MetadataStore) -> MemoryMetadataStore:
    assert isinstance(store, CachedMetadataStore)
    assert isinstance(store._beneath, MemoryMetadataStore)
    return store._beneath


class TestCached(SeveralSessions, MetadataStoreContract):
    async def open_store(self, folder: Path) -> MetadataStore:
        return await CachedMetadataStore.open(MemoryMetadataStore(), "/")

    async def open_beside(self, store: MetadataStore) -> MetadataStore:
        return await CachedMetadataStore.open(beneath(store).another_session(), "/")

    async def end_session(self, store: MetadataStore) -> None:
        beneath(store).expire_session()

    async def settle(self, store: MetadataStore) -> None:
        await trio.lowlevel.checkpoint()


class Slow(MemoryMetadataStore):
    """Counts what it is asked; may keep answers back after they were found, and changes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.gate = trio.Event()
        self.gate.set()
        self.is_mute = False

    async def _kept_back(self, path: str) -> None:
        self.asked.append(path)
        await self.gate.wait()

    async def get(self, path: str) -> Node | None:
        found = await super().get(path)
        await self._kept_back(path)
        return found

    async def exists(self, path: str) -> bool:
        found = await super().exists(path)
        await self._kept_back(path)
        return found

    async def children(self, path: str) -> Sequence[str]:
        found = await super().children(path)
        await self._kept_back(path)
        return found

    def mute(self) -> None:
        """No change is told from now on."""
        self._rows.hubs.remove(self._hub)
        self.is_mute = True

    async def aclose(self) -> None:
        if self.is_mute:
            self._rows.hubs.append(self._hub)
        await super().aclose()


class World:
    """A cache of /a over `store`, and another session on the same nodes."""

    def __init__(self, store: Slow, cached: CachedMetadataStore) -> None:
        self.store = store
        self.cached = cached
        self.other = store.another_session()

    async def value(self, path: str) -> bytes | None:
        node = await self.cached.get(path)
        return None if node is None else node.value

    async def asks(self, path: str) -> bool:
        """Whether a read sends a request."""
        before = len(self.store.asked)
        await self.cached.get(path)
        return len(self.store.asked) > before


@asynccontextmanager
async def opened(bytes_max: int = 1 << 20, events_max: int = 1024) -> AsyncIterator[World]:
    store = Slow()
    cached = await CachedMetadataStore.open(store, "/a", bytes_max=bytes_max, events_max=events_max)
    try:
        yield World(store, cached)
    finally:
        store.gate.set()
        await cached.aclose()


async def test_what_was_read_is_not_asked_again() -> None:
    async with opened() as world:
        await world.other.put("/a/b/c", b"x")
        for _ in range(3):
            assert await world.value("/a/b/c") == b"x"
            assert await world.value("/a/none") is None
            assert await world.cached.exists("/a/b")
            assert not await world.cached.exists("/a/none")
            assert await world.cached.children("/a/b") == ["c"]
            assert await world.cached.children("/a/none") == []
        asked = ["/a/b/c", "/a/none", "/a/b", "/a/none", "/a/b", "/a/none"]
        assert world.store.asked == asked
        found = world.cached.statistics()
        assert (found.hits, found.loads, found.answers) == (12, 6, 6)
        for _ in range(2):
            await world.cached.get("/ab")
            await world.cached.children("/")
        assert world.store.asked[6:] == ["/ab", "/"] * 2, "not of the subtree"


async def test_what_is_remembered_needs_no_waiting() -> None:
    async with opened() as world:
        above = await CachedMetadataStore.open(world.cached, "/b")
        for store in (world.cached, above):
            assert store.remembered("/a/b") is None
        await world.other.put("/a/b", b"1")
        await world.value("/a/b")
        await world.value("/a/none")
        for store in (world.cached, above):
            found, none = store.remembered("/a/b"), store.remembered("/a/none")
            assert found is not None
            assert found.node is not None
            assert found.node.value == b"1"
            assert none is not None
            assert none.node is None
        await world.other.put("/a/b", b"2")
        for store in (world.cached, above):
            assert store.remembered("/a/b") is None, "it has changed"
        await world.value("/a/b")
        world.store.expire_session()
        assert world.cached.remembered("/a/b") is None, "without a session"
        await above.aclose()


async def test_lists_are_their_readers_own() -> None:
    async with opened() as world:
        await world.other.put("/a/b", b"")
        names = await world.cached.children("/a")
        assert isinstance(names, list)
        names.append("mine")
        assert await world.cached.children("/a") == ["b"]


async def test_changes_of_others_are_seen_at_once() -> None:
    async with opened() as world:
        assert await world.value("/a/b") is None
        assert await world.cached.children("/a") == []
        await world.other.put("/a/b", b"1")
        assert await world.value("/a/b") == b"1"
        assert await world.cached.children("/a") == ["b"]
        assert await world.cached.exists("/a/b")
        await world.other.put("/a/b", b"2")
        assert await world.value("/a/b") == b"2"
        await world.other.delete("/a/b")
        assert await world.value("/a/b") is None
        assert await world.cached.children("/a") == []
        assert not await world.cached.exists("/a/b")


async def test_a_new_child_does_not_forget_its_parent() -> None:
    async with opened() as world:
        await world.other.put("/a/b", b"1")
        assert await world.asks("/a/b")
        await world.other.put("/a/b/c", b"")
        assert not await world.asks("/a/b")


async def test_own_writes_are_read_before_the_store_tells_of_them() -> None:
    async with opened() as world:
        world.store.mute()
        assert await world.value("/a/b/c") is None
        assert await world.value("/a/b") is None
        assert await world.cached.children("/a") == []
        await world.cached.put("/a/b/c", b"1")
        assert await world.value("/a/b/c") == b"1"
        assert await world.value("/a/b") == b"", "a parent was made"
        assert await world.cached.children("/a") == ["b"]
        path, _ = await world.cached.put("/a/b/n-", b"", sequential=True)
        assert await world.cached.children("/a/b") == ["c", path.rpartition("/")[2]]
        await world.cached.delete(path)
        await world.cached.delete("/a/b/c")
        assert await world.value("/a/b/c") is None


async def test_a_refused_write_forgets_what_it_was_based_on() -> None:
    """Or read, change and write would be tried for ever."""
    async with opened() as world:
        await world.other.put("/a/n", b"0")
        world.store.mute()
        assert await world.value("/a/n") == b"0"
        await world.other.put("/a/n", b"1")
        for is_refused in (True, False):
            node = await world.cached.get("/a/n")
            assert node is not None
            changed = b"%d" % (int(node.value) + 1)
            try:
                await world.cached.put("/a/n", changed, node.stat.version)
            except BadVersion:
                assert is_refused
            else:
                assert not is_refused
        assert await world.value("/a/n") == b"2"
        with pytest.raises(BadVersion):
            await world.cached.delete("/a/n", 1)


async def test_an_answer_that_a_write_overtook_is_not_remembered() -> None:
    """Nor given to who asks after the write."""
    async with opened() as world:
        for write, is_asked_again in product((world.cached.put, world.other.put), (True, False)):
            await world.other.put("/a/b", b"old")
            world.store.gate = trio.Event()
            seen: list[bytes | None] = []

            async def read(into: list[bytes | None] = seen) -> None:
                into.append(await world.value("/a/b"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await wait_all_tasks_blocked()
                await write("/a/b", b"new")
                if is_asked_again:
                    nursery.start_soon(read)
                    await wait_all_tasks_blocked()
                world.store.gate.set()
            assert sorted(map(str, seen)) == ["b'new'", "b'old'"][1 - is_asked_again :]
            assert await world.value("/a/b") == b"new"


async def test_many_who_ask_at_once_send_one_request() -> None:
    async with opened() as world:
        world.store.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(world.value, "/a/b")
            await wait_all_tasks_blocked()
            assert world.store.asked == ["/a/b"]
            world.store.gate.set()
        assert world.store.asked == ["/a/b"]


async def test_who_waits_goes_on_when_who_asked_is_cancelled() -> None:
    async with opened() as world:
        await world.other.put("/a/b", b"1")
        world.store.gate = trio.Event()
        seen: list[bytes | None] = []

        async def read() -> None:
            seen.append(await world.value("/a/b"))

        async with trio.open_nursery() as outer:
            async with trio.open_nursery() as inner:
                inner.start_soon(read)
                await wait_all_tasks_blocked()
                outer.start_soon(read)
                outer.start_soon(read)
                await wait_all_tasks_blocked()
                inner.cancel_scope.cancel()
            await wait_all_tasks_blocked()
            assert len(world.store.asked) == 2
            world.store.gate.set()
        assert seen == [b"1", b"1"]


async def test_an_error_is_told_to_all_and_not_remembered() -> None:
    async with opened() as world:
        refused: list[StoreUnavailable] = []

        async def read() -> None:
            try:
                await world.value("/a/b")
            except StoreUnavailable as error:
                refused.append(error)

        world.store.set_available(False)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(read)
        assert len(refused) == len({*map(id, refused)}) == 3
        world.store.set_available(True)
        assert await world.value("/a/b") is None


async def test_missed_changes_forget_everything() -> None:
    async with opened(events_max=2) as world:
        for path in ("/a/b", "/a/c"):
            await world.value(path)
        for _ in range(5):
            await world.other.put("/a/c", b"")
        assert world.cached.statistics().answers == 2
        assert await world.asks("/a/b")
        assert world.cached.statistics().answers == 1
        assert not await world.asks("/a/b")


async def test_a_lost_session_forgets_everything() -> None:
    async with opened() as world:
        assert await world.asks("/a/b")
        world.store.mute()
        await world.other.put("/a/b", b"1")
        world.store.set_available(False)
        assert await world.value("/a/b") is None, "only suspended: as it was last known"
        world.store.expire_session()
        with pytest.raises(StoreUnavailable):
            await world.value("/a/b")
        world.store.set_available(True)
        assert await world.value("/a/b") == b"1"
        world.store.expire_session()
        assert await world.asks("/a/b")


async def test_nothing_is_remembered_when_changes_are_told_no_more() -> None:
    async with opened() as world:
        assert await world.asks("/a/b")
        world.store._hub.close()
        assert await world.asks("/a/b")
        assert await world.asks("/a/b")


async def test_answers_expire(autojump_clock: trio.testing.MockClock) -> None:
    """Should changes never be told."""
    async with opened() as world:
        assert await world.asks("/a/b")
        await trio.sleep(EXPIRE_S - 1)
        assert not await world.asks("/a/b")
        await trio.sleep(1)
        assert await world.asks("/a/b")
        assert world.cached.statistics().answers == 1


async def test_the_bound_is_kept_and_what_is_used_stays() -> None:
    value = bytes(1000)
    async with opened(bytes_max=10_000) as world:
        for number in range(20):
            await world.other.put(f"/a/{number}", value)
        for number in range(20):
            await world.value("/a/0")
            await world.value(f"/a/{number}")
            assert world.cached.statistics().size_bytes <= 10_000
        assert not await world.asks("/a/0")
        assert await world.asks("/a/1")
        await world.other.put("/a/large", bytes(20_000))
        before = world.cached.statistics().answers
        assert await world.asks("/a/large")
        assert await world.asks("/a/large"), "larger than the bound"
        assert world.cached.statistics().answers == before
        await world.other.put("/a/0", b"")
        await world.store.aclose()
        with pytest.raises(SessionExpired):
            await world.value("/a/0")
        found = world.cached.statistics()
        assert (found.answers, found.size_bytes) == (0, 0)


async def test_changes_wait_within_a_bound() -> None:
    """Nobody reads: what is told meanwhile takes no memory beyond it."""
    async with opened(events_max=8) as world:
        for number in range(100):
            await world.other.put(f"/a/{number}", b"")
        changes: trio.MemoryReceiveChannel[Notification] = world.cached._changes
        assert changes.statistics().current_buffer_used <= 9
