"""A metadata store whose calls are timed (spec OP-05; Apache's MetadataStoreStats)."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from types import TracebackType

from geminga_runtime.metadata.api import (
    ANY_VERSION,
    MetadataStore,
    Node,
    Stat,
    Write,
    Writes,
)
from geminga_runtime.metadata.beneath import SessionBeneath
from geminga_runtime.metrics.store_times import StoreTimes


class TimedMetadataStore(SessionBeneath):
    """Implements MetadataStore over another one; `times` ends with those of this one. What a cache
    above it remembers is no call.
    """

    def __init__(self, store: MetadataStore, name: str) -> None:
        super().__init__(store)
        self._own_times = StoreTimes(name)
        self.times = (*self.times, self._own_times)

    async def get(self, path: str) -> Node | None:
        """MetadataStore.get."""
        with self._timed("get"):
            return await self._beneath.get(path)

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """MetadataStore.put."""
        with self._timed("put"):
            answer = await self._beneath.put(
                path, value, expected_version, epoch=epoch, sequential=sequential
            )
        self._own_times.put_bytes += len(value)
        return answer

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        """MetadataStore.put_numbered, as one put."""
        sizes: list[int] = []

        def weighed(number: int) -> Sequence[Write]:
            found = writes(number)
            sizes.append(sum(len(each.value) for each in found))
            return found

        with self._timed("put"):
            answer = await self._beneath.put_numbered(at, weighed)
        self._own_times.put_bytes += sum(sizes)
        return answer

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """MetadataStore.delete."""
        with self._timed("del"):
            await self._beneath.delete(path, expected_version)

    async def exists(self, path: str) -> bool:
        """MetadataStore.exists, which Apache doesn't time."""
        return await self._beneath.exists(path)

    async def children(self, path: str) -> Sequence[str]:
        """MetadataStore.children, which Apache doesn't time."""
        return await self._beneath.children(path)

    def _timed(self, call: str) -> _Call:
        return _Call(self._own_times, call)


class _Call:
    """Counts a call, unless it is cancelled. An answer such as BadVersion is a failure, as to
    Apache.
    """

    __slots__ = ("_began_s", "_call", "_times")

    def __init__(self, times: StoreTimes, call: str) -> None:
        self._times = times
        self._call = call
        self._began_s = 0.0

    def __enter__(self) -> None:
        self._began_s = perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        took_s = perf_counter() - self._began_s
        if error is None:
            self._times.ended(self._call, took_s)
        elif isinstance(error, Exception):
            self._times.ended(self._call, took_s, failed=True)
