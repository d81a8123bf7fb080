"""Splits a bundle into smaller ones (spec CL-10; Apache's
NamespaceService.splitAndOwnBundleOnceAndRetry).

The new bundles are owned before the namespace's boundaries change: the topics stay loaded, and no
other broker can take one in between. What a kill interrupts before the change ends with the
session; behind it the old bundle's node, which nobody looks at any more, does.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise

from geminga_broker.cluster.namespaces import Bundles, Namespaces
from geminga_broker.cluster.records import JsonObject
from geminga_broker.ownership.bundle import HASH_MAX, BundleId, range_text
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.ownership.unloading import BundleUnloader, UnloadRunning
from geminga_runtime.metadata.api import StoreUnavailable

_log = logging.getLogger(__name__)


class NotOwned(Exception):
    """The bundle belongs to another broker, or to nobody."""


class BundleGone(Exception):
    """The namespace has no such bundle any more."""


class BundleSplitter:
    """Splits bundles of one broker."""

    def __init__(
        self, namespaces: Namespaces, ownership: BundleOwnership, unloader: BundleUnloader
    ) -> None:
        self._namespaces = namespaces
        self._ownership = ownership
        self._unloader = unloader

    async def split(
        self, bundle: BundleId, boundaries: Sequence[int], *, unload: bool = False
    ) -> list[BundleId]:
        """Cut the bundle at these hashes, which must lie within it; returns the new bundles. With
        `unload` they are given up afterwards, so that the load manager places them.

        Raises ValueError, NotOwned, BundleGone, MetadataError.
        """
        if not self._ownership.holds(bundle):
            raise NotOwned(f"bundle {bundle} is not owned by this broker")
        parts = _parts(bundle, boundaries)
        await self._own(parts)
        try:
            await self._namespaces.change_local_policies(
                bundle.namespace, lambda record: _with_cuts(record, bundle, boundaries)
            )
        except BaseException:
            for part in parts:
                await self._ownership.forget(part)
            raise
        await self._ownership.forget(bundle)
        _log.info("bundle=%s was split into %s", bundle, ", ".join(p.range for p in parts))
        if unload:
            for part in parts:
                try:
                    await self._unloader.unload(part)
                except UnloadRunning:
                    continue
        return parts

    async def _own(self, parts: Sequence[BundleId]) -> None:
        for number, part in enumerate(parts):
            owner = await self._ownership.acquire(part)
            if owner.addresses != self._ownership.addresses:
                for taken in parts[:number]:
                    await self._ownership.forget(taken)
                raise StoreUnavailable(f"bundle {part} is owned by {owner.http_url} already")


def _parts(bundle: BundleId, boundaries: Sequence[int]) -> list[BundleId]:
    low, end = bundle.bounds
    last = HASH_MAX if end > HASH_MAX else end
    cuts = [low, *sorted(set(boundaries)), last]
    if not boundaries or any(not low < cut < last for cut in boundaries):
        raise ValueError(f"bundle {bundle} can only be cut at hashes within it")
    return [BundleId(bundle.namespace, range_text(one, other)) for one, other in pairwise(cuts)]


def _with_cuts(record: JsonObject, bundle: BundleId, boundaries: Sequence[int]) -> JsonObject:
    bundles = Bundles.from_json(record)
    if bundle.range not in bundles.names():
        raise BundleGone(f"there is no bundle {bundle} any more")
    found = Bundles(sorted({*bundles.boundaries, *boundaries}))
    return record | {"bundles": found.to_json()}
