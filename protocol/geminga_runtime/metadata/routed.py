"""One metadata store made of two: the cluster's own, and the one that clusters share (spec CL-02;
Apache's PulsarResources with a local and a configuration store).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import trio

from geminga_runtime.metadata.api import (
    ANY_VERSION,
    MetadataStore,
    Node,
    Notification,
    Stat,
    Write,
    Writes,
)
from geminga_runtime.metadata.beneath import SessionBeneath
from geminga_runtime.metadata.cached import Known, Remembering
from geminga_runtime.metadata.paths import check_path
from geminga_runtime.metrics.store_times import times_of

SHARED = ("/admin",)
"""Subtrees of the configuration store."""
OWN = ("/admin/local-policies", "/admin/configuration", "/admin/topic-policies")
"""Subtrees beneath them that are the cluster's own (the last one: what Apache keeps in topics)."""


class RoutedMetadataStore(SessionBeneath):
    """Implements MetadataStore. Its session is that of the cluster's own store, where alone there
    may be ephemeral nodes.
    """

    def __init__(self, own: MetadataStore, configuration: MetadataStore) -> None:
        super().__init__(own)
        self._own = own
        self._configuration = configuration
        self.times = (*times_of(own), *times_of(configuration))

    def _of(self, path: str) -> MetadataStore:
        return (
            self._configuration if _within(path, SHARED) and not _within(path, OWN) else self._own
        )

    async def get(self, path: str) -> Node | None:
        """MetadataStore.get."""
        return await self._of(path).get(path)

    def remembered(self, path: str) -> Known | None:
        """See `Remembering`."""
        store = self._of(path)
        return store.remembered(path) if isinstance(store, Remembering) else None

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """MetadataStore.put. Raises ValueError for an ephemeral node that clusters would share."""
        store = self._of(path)
        if epoch is not None and store is not self._own:
            raise ValueError(f"{path}: nodes that clusters share are not ephemeral")
        return await store.put(path, value, expected_version, epoch=epoch, sequential=sequential)

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        """MetadataStore.put_numbered. All nodes must be in the store of the numbers."""
        store = self._of(at)

        def within(number: int) -> Sequence[Write]:
            found = writes(number)
            assert all(self._of(each.path) is store for each in found), "of two stores"
            return found

        return await store.put_numbered(at, within)

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """MetadataStore.delete."""
        await self._of(path).delete(path, expected_version)

    async def exists(self, path: str) -> bool:
        """MetadataStore.exists."""
        return await self._of(path).exists(path)

    async def children(self, path: str) -> Sequence[str]:
        """MetadataStore.children. Above a border the children of both."""
        found = set(await self._of(path).children(path))
        if _has_border(path):
            for store in (self._own, self._configuration):
                found.update(await store.children(path))
        return sorted(found)

    def watch(
        self, prefix: str, *, events_max: int = 1024
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Notification]]:
        """MetadataStore.watch. Raises ValueError above a border."""
        if _has_border(prefix):
            raise ValueError(f"{prefix}: parts of it are in two stores, watch one of them")
        return self._of(prefix).watch(prefix, events_max=events_max)

    async def aclose(self) -> None:
        """MetadataStore.aclose, of both."""
        try:
            await self._configuration.aclose()
        finally:
            await super().aclose()


def _within(path: str, subtrees: tuple[str, ...]) -> bool:
    check_path(path)
    return any(path == each or path.startswith(f"{each}/") for each in subtrees)


def _has_border(path: str) -> bool:
    """Whether parts of the subtree are in the other store."""
    check_path(path)
    beneath = path.rstrip("/") + "/"
    return any(each.startswith(beneath) for each in (*SHARED, *OWN))
