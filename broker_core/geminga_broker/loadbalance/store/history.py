"""The averages of bundles and brokers in the metadata store, by which a new leader knows what the
one before had learnt (spec CL-07; Apache's LoadBalanceResources, and writeBundleDataOnZooKeeper of
ModularLoadManagerImpl).
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

import trio

from geminga_broker.loadbalance.broker_load import BrokerLoad
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.model import (
    BROKER_AVERAGE_PATH,
    BUNDLE_DATA_PATH,
    QUOTA_PATH,
    BundleData,
    broker_average_path,
    bundle_data_of_quota,
    bundle_data_path,
    decode_bundle_data,
    decode_quota,
    encode,
    quota_path,
)
from geminga_broker.loadbalance.names import namespace_of, range_of
from geminga_broker.loadbalance.store.quota_history import QuotaHistory
from geminga_runtime.background import side_by_side
from geminga_runtime.metadata.api import MetadataStore, NoNode, NotEmpty

_log = logging.getLogger(__name__)

CALLS_MAX = 16
"""Calls to the store at a time."""


class LoadHistory:
    """Reads and writes the averages. All methods raise MetadataError."""

    def __init__(self, store: MetadataStore) -> None:
        self.quotas = QuotaHistory(store)
        """Those of the simple load manager."""
        self._store = store

    async def recall(self, load: LoadData, bundles: Iterable[str]) -> None:
        """Give `load` what the store has of those that it doesn't know: averages, else a quota."""
        unknown: dict[str, list[str]] = {}
        for bundle in load.unknown(bundles):
            unknown.setdefault(namespace_of(bundle), []).append(bundle)
        await side_by_side(
            (partial(self._recall, load, *each) for each in unknown.items()), CALLS_MAX
        )

    async def _recall(self, load: LoadData, namespace: str, bundles: list[str]) -> None:
        """Of one namespace. Its list says which there are: most bundles have none."""
        for base, path, decode in (
            (BUNDLE_DATA_PATH, bundle_data_path, decode_bundle_data),
            (QUOTA_PATH, quota_path, _of_quota),
        ):
            there = set(await self._store.children(f"{base}/{namespace}"))
            for bundle in bundles:
                if range_of(bundle) not in there or not load.unknown([bundle]):
                    continue
                node = await self._store.get(path(bundle))
                if node is None or not node.value:
                    continue
                data = _decoded(path(bundle), node.value, decode)
                if data is not None:
                    load.learn(bundle, data)

    async def write(self, load: LoadData, bundles_per_broker: int) -> None:
        """Write the averages of brokers, and of the most loaded bundles of each (0: of all). Those
        of other bundles and brokers are removed, so that no more nodes stay than these.
        """
        kept: set[str] = set()
        jobs: list[Callable[[], Awaitable[object]]] = []
        for broker_id, broker in list(load.brokers.items()):
            jobs.append(
                partial(self._store.put, broker_average_path(broker_id), encode(broker.averages))
            )
            for bundle in most_loaded(load, broker, bundles_per_broker):
                kept.add(bundle)
                data = load.bundle(bundle)
                jobs.append(partial(self._put_bundle, bundle, data))
            await trio.lowlevel.checkpoint()
        await side_by_side(jobs, CALLS_MAX)
        await self._prune(load, kept)

    async def _put_bundle(self, bundle: str, data: BundleData) -> None:
        await self._store.put(bundle_data_path(bundle), encode(data))

    async def _prune(self, load: LoadData, kept: Collection[str]) -> None:
        """Remove what stands for others."""
        for broker_id in await self._store.children(BROKER_AVERAGE_PATH):
            if broker_id not in load.brokers:
                await self.forget_broker(broker_id)
        for tenant in await self._store.children(BUNDLE_DATA_PATH):
            for name in await self._store.children(f"{BUNDLE_DATA_PATH}/{tenant}"):
                namespace = f"{tenant}/{name}"
                await self._prune_namespace(namespace, kept)

    async def _prune_namespace(self, namespace: str, kept: Collection[str]) -> None:
        left = False
        for each in await self._store.children(f"{BUNDLE_DATA_PATH}/{namespace}"):
            bundle = f"{namespace}/{each}"
            if bundle in kept:
                left = True
            else:
                await self.forget_bundle(bundle)
        if not left:
            with suppress(NoNode, NotEmpty):
                await self._store.delete(f"{BUNDLE_DATA_PATH}/{namespace}")

    async def forget_bundle(self, bundle: str) -> None:
        """Remove a bundle's averages: it was split, or is gone."""
        with suppress(NoNode, NotEmpty):
            await self._store.delete(bundle_data_path(bundle))

    async def forget_broker(self, broker_id: str) -> None:
        """Remove a broker's averages: it is gone."""
        with suppress(NoNode):
            await self._store.delete(broker_average_path(broker_id))


def _of_quota(raw: bytes) -> BundleData:
    quota = decode_quota(raw)
    if not quota.is_valid():
        raise ValueError("a quota that is not above zero")
    return bundle_data_of_quota(quota)


def _decoded(path: str, value: bytes, decode: Callable[[bytes], BundleData]) -> BundleData | None:
    try:
        return decode(value)
    except ValueError as error:
        _log.warning("%s can't be read, so it is passed over: %s", path, error)
        return None


def most_loaded(load: LoadData, broker: BrokerLoad, count: int) -> list[str]:
    """A broker's most loaded bundles by their averages; all for 0 (Apache's TopKBundles)."""
    bundles = list(broker.report.last_stats)
    if count <= 0 or count >= len(bundles):
        return bundles

    def loaded(bundle: str) -> tuple[float, float]:
        average = load.bundle(bundle).short_term_data
        return average.throughput, average.rate

    return heapq.nlargest(count, bundles, key=loaded)
