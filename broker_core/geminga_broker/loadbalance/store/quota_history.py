"""The quotas of bundles in the metadata store (spec CL-07; Apache's BundlesQuotas, and
writeResourceQuotasToZooKeeper of SimpleLoadManagerImpl).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from math import isfinite

import msgspec

from geminga_broker.loadbalance.model import (
    DEFAULT_QUOTA_PATH,
    QUOTA_PATH,
    ResourceQuota,
    decode_quota,
    encode,
    initial_quota,
    quota_path,
)
from geminga_broker.loadbalance.names import namespace_of, range_of
from geminga_broker.loadbalance.strategies.quotas import Quotas, differs
from geminga_runtime.background import side_by_side
from geminga_runtime.json_text import read_json
from geminga_runtime.metadata.api import MetadataStore

_log = logging.getLogger(__name__)

CALLS_MAX = 16
"""Calls to the store at a time."""
SETTINGS = "/loadbalance/settings"
CPU = ("load_factor_cpu", "loadFactorCPU")
MEMORY = ("load_factor_mem", "loadFactorMemory")
"""A node's name, and that of the text in it."""


class QuotaHistory:
    """Reads and writes quotas. All methods raise MetadataError."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def recall_common(self, quotas: Quotas) -> None:
        """What concerns all bundles."""
        quotas.cpu_factor = await self._factor(CPU, quotas.cpu_factor)
        quotas.memory_factor = await self._factor(MEMORY, quotas.memory_factor)
        quotas.average = await self._quota(DEFAULT_QUOTA_PATH) or quotas.average

    async def _factor(self, name: tuple[str, str], default: float) -> float:
        node = await self._store.get(f"{SETTINGS}/{name[0]}")
        try:
            found = read_json(node.value if node else b"{}", dict[str, str])
            value = float(found.get(name[1], default))
        except ValueError as error:
            _log.warning("%s/%s can't be read: %s", SETTINGS, name[0], error)
            return default
        return value if isfinite(value) and value > 0 else default

    async def _quota(self, path: str) -> ResourceQuota | None:
        node = await self._store.get(path)
        if node is None or not node.value:
            return None
        try:
            quota = decode_quota(node.value)
        except ValueError as error:
            _log.warning("%s can't be read: %s", path, error)
            return None
        return quota if quota.is_valid() else None

    async def recall(self, quotas: Quotas, bundles: Iterable[str]) -> None:
        """The quotas of those bundles that have none yet."""
        wanted: dict[str, list[str]] = {}
        for bundle in bundles:
            if not quotas.has(bundle):
                wanted.setdefault(namespace_of(bundle), []).append(bundle)
        jobs = (partial(self._recall, quotas, *each) for each in wanted.items())
        await side_by_side(jobs, CALLS_MAX)

    async def _recall(self, quotas: Quotas, namespace: str, bundles: list[str]) -> None:
        there = set(await self._store.children(f"{QUOTA_PATH}/{namespace}"))
        for bundle in bundles:
            if range_of(bundle) in there:
                quota = await self._quota(quota_path(bundle))
                if quota is not None:
                    quotas.learn(bundle, quota)

    async def write(self, quotas: Quotas) -> None:
        """All that has changed by more than a little."""
        for (node, name), factor in ((CPU, quotas.cpu_factor), (MEMORY, quotas.memory_factor)):
            await self._store.put(f"{SETTINGS}/{node}", msgspec.json.encode({name: str(factor)}))
        await self._write(DEFAULT_QUOTA_PATH, quotas.average)
        jobs = (partial(self._write, quota_path(bundle), each) for bundle, each in quotas.items())
        await side_by_side(jobs, CALLS_MAX)

    async def _write(self, path: str, quota: ResourceQuota) -> None:
        # What an administrator has written meanwhile counts.
        if differs(await self._quota(path) or initial_quota(), quota):
            await self._store.put(path, encode(quota))
