"""Decoded values of a metadata store, kept in memory until a watch says that they changed
(spec CL-01).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import trio

from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    MetadataStore,
    NoNode,
    Notification,
    Stat,
)
from geminga_runtime.waiters import Promise

T = TypeVar("T")

VALUES_MAX = 10_000
TRIES_MAX = 50
"""Of `read_modify_write`: each lost race means that another writer got on, so this many is a
defect.
"""


class Cached(NamedTuple, Generic[T]):
    """A decoded value and its stat."""

    value: T
    stat: Stat


class MetadataCache(Generic[T]):
    """Values at and beneath `prefix`, as Apache's MetadataCache.

    `run` must be running for anything to be kept; without it every `get` asks the store. Values
    that `get` answers are shared: never change them. Those that `read_modify_write` hands out are
    fresh ones.
    """

    def __init__(
        self,
        store: MetadataStore,
        prefix: str,
        *,
        decode: Callable[[bytes], T],
        encode: Callable[[T], bytes],
        values_max: int = VALUES_MAX,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._decode = decode
        self._encode = encode
        self._values_max = values_max
        self._values: dict[str, Cached[T] | None] = {}
        self._loading: dict[str, Promise[Cached[T] | None]] = {}
        self._watching = False

    def __repr__(self) -> str:
        return f"<MetadataCache {self._prefix}: {len(self._values)} values>"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the store's changes; started once, by the owner, before the cache is of use."""
        async with self._store.watch(self._prefix) as changes:
            self._watching = True
            task_status.started()
            try:
                async for change in changes:
                    self._hear(change)
            finally:
                self._watching = False
                self._forget_all()

    def _hear(self, change: Notification) -> None:
        if change.kind is Change.LOST:
            self._forget_all()
        elif change.kind is not Change.CHILDREN:
            self.invalidate(change.path)

    def _forget_all(self) -> None:
        self._values.clear()
        self._loading.clear()

    def invalidate(self, path: str) -> None:
        """Read it anew next time; a load on its way is not kept."""
        self._values.pop(path, None)
        self._loading.pop(path, None)

    async def get(self, path: str) -> T | None:
        """The value, or None if there is no node. Raises what `decode` and the store raise."""
        cached = await self.get_with_stat(path)
        return None if cached is None else cached.value

    async def get_with_stat(self, path: str) -> Cached[T] | None:
        """The value and its stat; many who ask at once cause one read."""
        if path in self._values:
            cached = self._values[path]
            await trio.lowlevel.checkpoint()
            return cached
        while (loading := self._loading.get(path)) is not None:
            try:
                return await loading.wait()
            except _LoaderCancelled:
                continue
        return await self._load(path)

    async def _load(self, path: str) -> Cached[T] | None:
        promise: Promise[Cached[T] | None] = Promise()
        self._loading[path] = promise
        error: BaseException = _LoaderCancelled()
        try:
            cached = await self._read(path)
            promise.resolve(cached)
            if self._watching and self._loading.get(path) is promise:
                self._keep(path, cached)
            return cached
        except Exception as failure:
            error = failure
            raise
        finally:
            if self._loading.get(path) is promise:
                del self._loading[path]
            promise.reject(error)

    async def _read(self, path: str) -> Cached[T] | None:
        node = await self._store.get(path)
        return None if node is None else Cached(self._decode(node.value), node.stat)

    def _keep(self, path: str, cached: Cached[T] | None) -> None:
        while len(self._values) >= self._values_max:
            del self._values[next(iter(self._values))]
        self._values[path] = cached

    async def children(self, path: str) -> list[str]:
        """Names of the direct children, from the store."""
        return list(await self._store.children(path))

    async def create(self, path: str, value: T) -> Stat:
        """Make a node. Raises BadVersion if it is there."""
        _, stat = await self._store.put(path, self._encode(value), MUST_NOT_EXIST)
        self.invalidate(path)
        return stat

    async def put(self, path: str, value: T, expected_version: int | None = None) -> Stat:
        """Write a node. Raises BadVersion."""
        _, stat = await self._store.put(path, self._encode(value), expected_version)
        self.invalidate(path)
        return stat

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """Remove a node. Raises NoNode, NotEmpty, BadVersion."""
        await self._store.delete(path, expected_version)
        self.invalidate(path)

    async def read_modify_write(self, path: str, change: Callable[[T], T]) -> T:
        """Write what `change` makes of the present value; again if another writer was first.

        `change` gets its own copy, and may raise to leave it. Raises NoNode if nothing is there.
        """
        return await self._change(path, lambda value: change(_present(path, value)))

    async def read_modify_write_or_create(self, path: str, change: Callable[[T | None], T]) -> T:
        """The same, but `change` gets None if nothing is there."""
        return await self._change(path, change)

    async def _change(self, path: str, change: Callable[[T | None], T]) -> T:
        for _ in range(TRIES_MAX):
            found = await self._read(path)
            version = MUST_NOT_EXIST if found is None else found.stat.version
            value = change(None if found is None else found.value)
            try:
                await self.put(path, value, version)
            except BadVersion:
                continue
            return value
        raise BadVersion(f"{path}: {TRIES_MAX} tries in a row met a change")


class _LoaderCancelled(Exception):
    """Who was loading was cancelled: one of those who waited for it loads instead."""


def _present(path: str, value: T | None) -> T:
    if value is None:
        raise NoNode(path)
    return value
