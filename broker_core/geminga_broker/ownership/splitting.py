"""Splits a bundle into smaller ones (spec CL-10; Apache's
NamespaceService.splitAndOwnBundleOnceAndRetry).

The new bundles are owned before the namespace's boundaries change: the topics stay loaded, and no
other broker can take one in between. What a kill interrupts before the change ends with the
session; behind it the old bundle's node, which nobody looks at any more, does. Nothing else begins
with a bundle that is being split nor with its parts, and a split that has begun ends: a change of
the boundaries without an answer is asked for until it is known.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise

import trio

from geminga_broker.cluster.namespaces import Bundles, Namespaces
from geminga_broker.cluster.records import JsonObject, ResourceMissing
from geminga_broker.ownership.bundle import HASH_MAX, BundleId, range_text
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.ownership.unloading import BundleUnloader, UnloadRunning
from geminga_runtime.metadata.api import MetadataError, StoreUnavailable, ValueTooLarge

_log = logging.getLogger(__name__)

RETRY_S = 0.5


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
        `unload` they are given up afterwards, so that the load manager places them. Ends even if
        cancelled.

        Raises ValueError, NotOwned, BundleGone, UnloadRunning (also if it is being split),
        MetadataError.
        """
        if not self._ownership.holds(bundle):
            raise NotOwned(f"bundle {bundle} is not owned by this broker")
        parts = _parts(bundle, boundaries)
        with self._unloader.keep([bundle, *parts]), trio.CancelScope(shield=True):
            if not await self._namespaces.has_bundle(bundle):
                raise BundleGone(f"there is no bundle {bundle} any more")
            await self._split(bundle, parts, boundaries)
        _log.info("bundle=%s was split into %s", bundle, ", ".join(p.range for p in parts))
        if unload:
            for part in parts:
                try:
                    await self._unloader.unload(part)
                except UnloadRunning:
                    continue
        return parts

    async def _split(
        self, bundle: BundleId, parts: Sequence[BundleId], boundaries: Sequence[int]
    ) -> None:
        taken: list[BundleId] = []
        try:
            for part in parts:
                owner = await self._ownership.acquire(part)
                if owner.addresses != self._ownership.addresses:
                    raise StoreUnavailable(f"bundle {part} is owned by {owner.http_url} already")
                taken.append(part)
            await self._cut(bundle, boundaries)
        except Exception:
            for part in taken:
                await self._ownership.forget(part)  # noqa: ASYNC120 - shielded there
            raise
        await self._ownership.forget(bundle)

    async def _cut(self, bundle: BundleId, boundaries: Sequence[int]) -> None:
        """Change the boundaries; while the store can't say whether they are, again."""

        def cut(record: JsonObject) -> JsonObject:
            if not self._ownership.holds(bundle):  # to read the record may have taken long
                raise NotOwned(f"bundle {bundle} was lost while it was split")
            return _with_cuts(record, bundle, boundaries)

        while True:
            try:
                await self._namespaces.change_local_policies(bundle.namespace, cut)
            except ValueTooLarge:
                raise  # it was refused for sure, and would be again
            except ResourceMissing:
                raise BundleGone(f"there is no namespace {bundle.namespace} any more") from None
            except MetadataError:
                if not self._ownership.holds(bundle):
                    raise  # whoever has it now goes by what stands there
                await trio.sleep(RETRY_S)
            else:
                return


def _parts(bundle: BundleId, boundaries: Sequence[int]) -> list[BundleId]:
    low, end = bundle.bounds
    last = HASH_MAX if end > HASH_MAX else end
    cuts = [low, *sorted(set(boundaries)), last]
    if not boundaries or any(not low < cut < last for cut in boundaries):
        raise ValueError(f"bundle {bundle} can only be cut at hashes within it")
    return [BundleId(bundle.namespace, range_text(one, other)) for one, other in pairwise(cuts)]


def _with_cuts(record: JsonObject, bundle: BundleId, boundaries: Sequence[int]) -> JsonObject:
    bundles = Bundles.from_json(record)
    if bundle.range not in bundles.names() and not set(boundaries) <= set(bundles.boundaries):
        raise BundleGone(f"there is no bundle {bundle} any more")
    found = Bundles(sorted({*bundles.boundaries, *boundaries}))
    return record | {"bundles": found.to_json()}
