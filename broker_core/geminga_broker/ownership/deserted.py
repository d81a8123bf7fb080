"""Gives up bundles whose namespace was deleted while this broker took them.

A deletion has the bundles released before the namespace's record goes, and a lookup may take one
again in between. Nobody would look for such a bundle any more, but if there is a namespace of that
name again, whose bundles are split otherwise, its node refuses the split that would make it.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import trio

from geminga_broker.cluster.namespaces import LOCAL_POLICIES, POLICIES, Namespaces
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.ownership.unloading import BundleUnloader, UnloadRunning
from geminga_runtime.background import run_guarded
from geminga_runtime.metadata.api import Change, MetadataError, MetadataStore

_log = logging.getLogger(__name__)

RETRY_S = 0.5


class DesertedBundles:
    """One broker's."""

    def __init__(
        self,
        store: MetadataStore,
        namespaces: Namespaces,
        ownership: BundleOwnership,
        unloader: BundleUnloader,
    ) -> None:
        self._store = store
        self._namespaces = namespaces
        self._ownership = ownership
        self._unloader = unloader

    async def run(self) -> None:
        """Follow deletions of namespaces until cancelled."""
        async with trio.open_nursery() as nursery:
            # A namespace that another cluster made may have no policies of this one.
            for root in (POLICIES, LOCAL_POLICIES):
                nursery.start_soon(self._follow, root)

    async def _follow(self, root: str) -> None:
        async with trio.open_nursery() as nursery, self._store.watch(root) as changes:
            async for change in changes:
                if change.kind is Change.LOST:
                    nursery.start_soon(run_guarded, self._look)
                elif change.kind is Change.DELETED:
                    namespace = change.path.removeprefix(f"{root}/")
                    nursery.start_soon(run_guarded, self._deleted, namespace)

    async def _look(self) -> None:
        """After missed changes. A namespace that is there keeps all of its bundles."""
        for namespace in {bundle.namespace for bundle in self._ownership.owned()}:
            with suppress(MetadataError):  # changes are missed again, or the bundles are lost
                if not await self._namespaces.is_recorded(namespace):
                    await self._give_up(namespace)

    async def _deleted(self, namespace: str) -> None:
        """It was; there may be another one of its name by now."""
        with suppress(MetadataError):
            await self._give_up(namespace)

    async def _give_up(self, namespace: str) -> None:
        """The bundles that the namespace hasn't, whether it is there or not; also those that a
        split takes meanwhile.
        """
        seen: set[BundleId] = set()
        while more := [
            bundle
            for bundle in self._ownership.owned()
            if bundle.namespace == namespace and bundle not in seen
        ]:
            for bundle in more:
                await self._give_up_deserted(bundle)
            seen.update(more)

    async def _give_up_deserted(self, bundle: BundleId) -> None:
        while self._ownership.holds(bundle) and await self._is_deserted(bundle):
            try:
                await self._unloader.unload(bundle)
            except UnloadRunning:  # a split, which may make it the later namespace's, or fails
                await trio.sleep(RETRY_S)
            else:
                _log.info("bundle=%s its namespace was deleted while it was taken", bundle)

    async def _is_deserted(self, bundle: BundleId) -> bool:
        """Whether its namespace hasn't such a bundle. One whose deletion isn't over still has its
        local policies, and where clusters share a configuration store, keeps them. Raises
        MetadataError.
        """
        is_there = await self._namespaces.is_recorded(bundle.namespace)
        return not (is_there and await self._namespaces.has_bundle(bundle))
