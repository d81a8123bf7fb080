"""A cached store under many interleavings: no read is older than its beginning (CL-01)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
import trio

from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.api import MetadataStore, Notification
from geminga_runtime.metadata.cached import CachedMetadataStore
from geminga_runtime.metadata.watches import WatchHub


class Jittery(SteppedStore):
    """Requests and answers take turns of the loop, drawn anew for each."""

    chance = random.Random(0)

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        if operation == "delete":
            yield
            return
        await self._late()
        yield
        await self._late()

    async def _late(self) -> None:
        for _ in range(self.chance.randrange(6)):
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("seed", range(40))
async def test_no_read_is_older_than_its_beginning(seed: int) -> None:
    """Reads, writes of both sessions, missed changes, lost sessions and cancelled reads at once."""
    chance = random.Random(seed)
    store = Jittery()
    store.chance = chance
    other = store.another_session()
    cached = await CachedMetadataStore.open(
        store,
        "/a",
        bytes_max=chance.choice((1000, 3000, 1 << 20)),
        events_max=chance.choice((1, 4)),
    )
    paths = ("/a/x", "/a/y", "/a/x/z")
    newest = dict.fromkeys(paths, -1)

    async def read() -> None:
        for _ in range(60):
            path = chance.choice(paths)
            at_least = newest[path]
            with trio.CancelScope() as scope:
                if chance.random() < 0.1:
                    scope.deadline = trio.current_time() + chance.random() * 1e-4
                if (known := cached.remembered(path)) is not None:
                    version = -1 if known.node is None else known.node.stat.version
                    assert at_least <= version <= newest[path], path
                node = await cached.get(path)
                found = -1 if node is None else node.stat.version
                assert at_least <= found <= newest[path], path

    async def write(through: MetadataStore) -> None:
        for _ in range(30):
            path = chance.choice(paths)
            _, stat = await through.put(path, b"")
            newest[path] = max(newest[path], stat.version)
            if chance.random() < 0.1:
                store.expire_session()

    class Watching(WatchHub):
        """What is there is known when it is written, not when that is answered."""

        def publish(self, notifications: Iterable[Notification]) -> None:
            for path in paths:
                row = store._rows.read(path)
                newest[path] = max(newest[path], -1 if row is None else row.stat(0).version)

    store._rows.hubs.insert(0, Watching())
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(read)
            nursery.start_soon(write, cached)
            nursery.start_soon(write, other)
        found = cached.statistics()
        assert found.hits > 20
        assert found.loads < 240
        assert not cached._loads
    finally:
        await cached.aclose()
