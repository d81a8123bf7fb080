"""The contract of metadata stores (spec CL-01): a test class for each store to inherit.

A subclass defines `open_store`; where several sessions can be open at once it also takes
`SeveralSessions` of `contract_session`.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_runtime.metadata._tests.contract_session import SessionContract, drain
from geminga_runtime.metadata._tests.contract_writes import WritesContract
from geminga_runtime.metadata._tests.oracle import Oracle
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    MetadataError,
    MetadataStore,
    NoNode,
    NotEmpty,
)


class MetadataStoreContract(SessionContract, WritesContract):
    async def open_store(self, folder: Path) -> MetadataStore:
        """A new, empty store."""
        raise AssertionError("a subclass says how")

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[MetadataStore]:
        store = await self.open_store(tmp_path)
        yield store
        await store.aclose()

    async def test_absent(self, store: MetadataStore) -> None:
        assert await store.get("/a") is None
        assert not await store.exists("/a")
        assert list(await store.children("/a")) == []
        with pytest.raises(NoNode):
            await store.delete("/a")

    async def test_put_and_get(self, store: MetadataStore) -> None:
        path, stat = await store.put("/a", b"one")
        assert (path, stat.version, stat.ephemeral) == ("/a", 0, False)
        node = await store.get("/a")
        assert node is not None
        assert (node.value, node.stat.version) == (b"one", 0)
        _, second = await store.put("/a", b"two")
        node = await store.get("/a")
        assert node is not None
        assert (node.value, node.stat.version, second.version) == (b"two", 1, 1)
        assert node.stat.ctime_ms == stat.ctime_ms <= node.stat.mtime_ms

    async def test_value_is_not_shared(self, store: MetadataStore) -> None:
        value = bytearray(b"one")
        await store.put("/a", value)
        value[:] = b"two"
        node = await store.get("/a")
        assert node is not None
        assert node.value == b"one"

    async def test_empty_and_large_values(self, store: MetadataStore) -> None:
        large = bytes(range(256)) * 2000
        await store.put("/empty", b"")
        await store.put("/large", large)
        node, other = await store.get("/large"), await store.get("/empty")
        assert node is not None
        assert node.value == large
        assert other is not None
        assert other.value == b""

    async def test_expected_version(self, store: MetadataStore) -> None:
        with pytest.raises(BadVersion):
            await store.put("/a", b"", 0)
        await store.put("/a", b"", MUST_NOT_EXIST)
        with pytest.raises(BadVersion):
            await store.put("/a", b"", MUST_NOT_EXIST)
        with pytest.raises(BadVersion):
            await store.put("/a", b"", 1)
        _, stat = await store.put("/a", b"x", 0)
        assert stat.version == 1
        with pytest.raises(BadVersion):
            await store.delete("/a", 0)
        await store.delete("/a", 1)
        assert not await store.exists("/a")

    async def test_the_version_restarts_after_a_delete(self, store: MetadataStore) -> None:
        await store.put("/a", b"")
        await store.put("/a", b"")
        await store.delete("/a")
        _, stat = await store.put("/a", b"")
        assert stat.version == 0

    async def test_parents_are_made(self, store: MetadataStore) -> None:
        await store.put("/a/b/c", b"x")
        node = await store.get("/a/b")
        assert node is not None
        assert (node.value, node.stat.version) == (b"", 0)
        assert list(await store.children("/a")) == ["b"]

    async def test_children_are_sorted_and_direct(self, store: MetadataStore) -> None:
        for path in ("/p/b", "/p/a/deep", "/p/c", "/pp/other", "/p/Z", "/p/%2F", "/p/é"):
            await store.put(path, b"")
        assert list(await store.children("/p")) == sorted(["b", "a", "c", "Z", "%2F", "é"])
        assert {"p", "pp"} <= set(await store.children("/"))

    async def test_not_empty(self, store: MetadataStore) -> None:
        await store.put("/a/b", b"")
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        await store.delete("/a/b")
        await store.delete("/a")

    async def test_sequential(self, store: MetadataStore) -> None:
        first, _ = await store.put("/ids/ID-", b"", sequential=True)
        second, _ = await store.put("/ids/ID-", b"", sequential=True)
        assert first.startswith("/ids/ID-")
        assert len(first) == len("/ids/ID-") + 10
        assert first < second
        await store.delete(first)
        await store.delete(second)
        third, stat = await store.put("/ids/ID-", b"x", MUST_NOT_EXIST, sequential=True)
        assert third > second, "a number is never given twice"
        assert stat.version == 0
        bare, _ = await store.put("/ids/", b"", sequential=True)
        assert bare[len("/ids/") :].isdigit()

    async def test_sequential_beside_a_node_of_that_name(self, store: MetadataStore) -> None:
        first, _ = await store.put("/s/n", b"", sequential=True)
        taken = first[:-10] + f"{int(first[-10:]) + 2:010d}"
        await store.put(taken, b"mine")
        made = {(await store.put("/s/n", b"", sequential=True))[0] for _ in range(4)}
        assert len(made) == 4
        assert taken not in made

    @pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b"])
    async def test_paths_are_checked(self, store: MetadataStore, path: str) -> None:
        for call in (store.get, store.exists, store.delete, store.children):
            with pytest.raises(ValueError, match="not a metadata path"):
                await call(path)
        with pytest.raises(ValueError, match="not a metadata path"):
            await store.put(path, b"")

    async def test_refused_puts(self, store: MetadataStore) -> None:
        with pytest.raises(ValueError, match="root"):
            await store.put("/", b"")
        with pytest.raises(ValueError, match="sequential"):
            await store.put("/a", b"", 3, sequential=True)

    async def test_watch(self, store: MetadataStore) -> None:
        await store.put("/w/old", b"")
        async with store.watch("/w") as changes:
            await store.put("/w/a/b", b"")
            await store.put("/w/a/b", b"2")
            await store.put("/wide", b"not beneath")
            await store.delete("/w/a/b")
            await self.settle(store)
            assert drain(changes) == [
                ("created", "/w/a"),
                ("children", "/w"),
                ("created", "/w/a/b"),
                ("children", "/w/a"),
                ("modified", "/w/a/b"),
                ("deleted", "/w/a/b"),
                ("children", "/w/a"),
            ]
        await store.put("/w/late", b"")

    async def test_refused_changes_send_no_notification(self, store: MetadataStore) -> None:
        await store.put("/w/a", b"")
        async with store.watch("/w") as changes:
            with pytest.raises(BadVersion):
                await store.put("/w/a", b"", 7)
            with pytest.raises(NotEmpty):
                await store.delete("/w")
            await self.settle(store)
            assert drain(changes) == []

    async def test_watch_of_one_node_and_of_the_root(self, store: MetadataStore) -> None:
        async with store.watch("/x/y") as one, store.watch("/") as everything:
            await store.put("/x/y", b"")
            await store.put("/x/z", b"")
            await self.settle(store)
            assert drain(one) == [("created", "/x/y")]
            assert ("children", "/") in (heard := drain(everything))
            assert ("created", "/x/z") in heard

    async def test_a_slow_watch_gets_one_lost(self, store: MetadataStore) -> None:
        async with store.watch("/w", events_max=4) as changes:
            for number in range(10):
                await store.put("/w/a", b"%d" % number)
            await self.settle(store)
            heard = drain(changes)
            assert len(heard) == 5
            assert [kind for kind, _ in heard].count(Change.LOST.value) == 1
            assert heard[-1] == (Change.LOST.value, "/w")
            await store.put("/w/a", b"again")
            await self.settle(store)
            assert drain(changes) == [("modified", "/w/a")], "after LOST was read all is told"

    async def test_counter_loses_no_update(self, store: MetadataStore) -> None:
        await store.put("/counter", b"0")

        async def add_one() -> None:
            while True:
                node = await store.get("/counter")
                assert node is not None
                try:
                    await store.put("/counter", b"%d" % (int(node.value) + 1), node.stat.version)
                    return
                except BadVersion:
                    continue

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(add_one)
        node = await store.get("/counter")
        assert node is not None
        assert (node.value, node.stat.version) == (b"20", 20)

    async def test_concurrent_sequentials_differ(self, store: MetadataStore) -> None:
        made: list[str] = []

        async def make() -> None:
            made.append((await store.put("/q/n-", b"", sequential=True))[0])

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(make)
        assert len(set(made)) == 100
        assert list(await store.children("/q")) == sorted(p.rpartition("/")[2] for p in made)

    async def test_only_one_creates(self, store: MetadataStore) -> None:
        won: list[int] = []
        epoch = store.session.epoch

        async def try_it(number: int) -> None:
            try:
                await store.put("/leader", b"%d" % number, MUST_NOT_EXIST, epoch=epoch)
            except BadVersion:
                return
            won.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(try_it, number)
        assert len(won) == 1
        node = await store.get("/leader")
        assert node is not None
        assert node.value == b"%d" % won[0]

    async def test_cancelled_calls_leave_the_store_usable(self, store: MetadataStore) -> None:
        for _ in range(20):
            with trio.move_on_after(0):
                await store.put("/a", b"")
            with trio.move_on_after(0):
                await store.children("/")
        await store.put("/b", b"")
        assert await store.exists("/b")

    @settings(max_examples=25, deadline=None)
    @given(
        operations=st.lists(
            st.tuples(
                st.sampled_from(["put", "put", "delete", "sequential", "get", "children"]),
                st.sampled_from(["/a", "/a/b", "/a/b/c", "/d", "/d/e"]),
                st.sampled_from([None, None, -1, 0, 1]),
            ),
            max_size=25,
        )
    )
    async def test_against_the_dumb_oracle(
        self, operations: list[tuple[str, str, int | None]]
    ) -> None:
        root = "/example"
        with tempfile.TemporaryDirectory() as folder:
            store = await self.open_store(Path(folder))
            await store.put(root, b"")
            oracle = Oracle(root)
            for number, (kind, path, version) in enumerate(operations):
                value = b"%d" % number
                expected = oracle.do(kind, root + path, version, value)
                assert await self.do(store, kind, root + path, version, value) == expected
            await store.aclose()

    async def do(
        self, store: MetadataStore, kind: str, path: str, version: int | None, value: bytes
    ) -> object:
        try:
            if kind == "put":
                return (await store.put(path, value, version))[1].version
            if kind == "sequential":
                return len((await store.put(path, value, sequential=True))[0])
            if kind == "delete":
                return await store.delete(path, version)
            if kind == "get":
                node = await store.get(path)
                return None if node is None else (node.value, node.stat.version)
            return [name for name in await store.children(path) if not name[-10:].isdigit()]
        except MetadataError as error:
            return type(error)
