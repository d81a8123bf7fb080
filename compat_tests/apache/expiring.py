"""Sessions with the metadata store that end at a chosen write: before it, or when it is done and
its answer is under way.
"""

from __future__ import annotations

import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum

import trio

from geminga_runtime.metadata.api import (
    ANY_VERSION,
    MetadataStore,
    Notification,
    Session,
    Stat,
    StoreUnavailable,
    Writes,
)
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

EXPIRED_S = 30.0
_CLOSE = -11


class When(Enum):
    """When the session ends."""

    BEFORE = "before the write"
    UNSENT = "before the write, which fails"
    UNANSWERED = "behind the write, which fails all the same"
    ANSWERED = "behind the write's answer"


class ExpiringStore:
    """A process's `MetadataStore` whose session ends once."""

    def __init__(self, store: MetadataStore, expire: Callable[[], Awaitable[None]]) -> None:
        self.writes = 0
        self.at = 0
        """Number of the write, from 1 on; 0 is none."""
        self.when = When.BEFORE
        self.get, self.exists, self.children = store.get, store.exists, store.children
        self.wait_change, self.aclose = store.wait_change, store.aclose
        self._store = store
        self._expire = expire

    @property
    def session(self) -> Session:
        """See `MetadataStore.session`."""
        return self._store.session

    def watch(
        self, prefix: str, *, events_max: int = 1024
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Notification]]:
        """See `MetadataStore.watch`."""
        return self._store.watch(prefix, events_max=events_max)

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """See `MetadataStore.put`."""
        async with self._write():
            return await self._store.put(
                path, value, expected_version, epoch=epoch, sequential=sequential
            )

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        """See `MetadataStore.put_numbered`."""
        async with self._write():
            return await self._store.put_numbered(at, writes)

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """See `MetadataStore.delete`."""
        async with self._write():
            await self._store.delete(path, expected_version)

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[None]:
        self.writes += 1
        if self.writes != self.at:
            yield
            return
        if self.when in (When.BEFORE, When.UNSENT):
            await self._expire()
        if self.when is When.UNSENT:
            raise StoreUnavailable("the session ended; nothing was sent")
        yield
        if self.when in (When.UNANSWERED, When.ANSWERED):
            await self._expire()
        if self.when is When.UNANSWERED:
            raise StoreUnavailable("the session ended; it may have taken effect")


def expiring_in_memory(tree: MemoryMetadataStore) -> ExpiringStore:
    """Another session on the tree."""
    session = tree.another_session()

    async def expire() -> None:
        session.expire_session()
        await trio.lowlevel.checkpoint()

    return ExpiringStore(session, expire)


def expiring_on_zookeeper(store: ZooKeeperMetadataStore, port: int) -> ExpiringStore:
    """Whoever knows id and password of a session can close it: another connection does so."""

    async def expire() -> None:
        epoch = store.session.epoch
        session_id, password = store._calls._link._client.client_id
        with trio.fail_after(EXPIRED_S):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            async with stream:
                timeout_ms = 10_000
                body = struct.pack("!iqiqi16s?", 0, 0, timeout_ms, session_id, 16, password, False)
                close = struct.pack("!ii", 1, _CLOSE)
                for each in (body, close):
                    await stream.send_all(struct.pack("!i", len(each)) + each)
                async for _ in stream:
                    pass
            while store.session.epoch == epoch:
                await store.wait_change(epoch)

    return ExpiringStore(store, expire)


def share(count: int, most: int, seed: int) -> Sequence[int]:
    """Some of the numbers from 1 to `count`, drawn."""
    numbers = range(1, count + 1)
    return sorted(random.Random(seed).sample(numbers, min(most, count)))
