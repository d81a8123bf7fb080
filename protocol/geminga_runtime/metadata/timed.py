"""A metadata store whose calls are timed (spec OP-05; Apache's MetadataStoreStats)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

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

    @contextmanager
    def _timed(self, call: str) -> Iterator[None]:
        """Count a call, unless it is cancelled. An answer such as BadVersion is a failure, as to
        Apache.
        """
        began_s = perf_counter()
        try:
            yield
        except Exception:
            self._own_times.ended(call, perf_counter() - began_s, failed=True)
            raise
        self._own_times.ended(call, perf_counter() - began_s)
