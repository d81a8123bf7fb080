"""What administrators say about placement, read from the metadata store and kept until it changes
(spec CL-08; Apache's SimpleResourceAllocationPolicies, and refreshBrokerToFailureDomainMap of
LoadManagerShared).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import msgspec
import trio

from geminga_broker.loadbalance.candidates import Rules
from geminga_broker.loadbalance.isolation import IsolationPolicies, decode_policies
from geminga_runtime.background import side_by_side
from geminga_runtime.json_text import BadJson, read_json
from geminga_runtime.metadata.api import Change, MetadataStore, Node, Notification

_log = logging.getLogger(__name__)

CALLS_MAX = 16
"""Calls to the store at a time."""
LOCAL_POLICIES = "/admin/local-policies"
CLUSTERS = "/admin/clusters"

T = TypeVar("T")


class _LocalPolicies(msgspec.Struct, rename="camel"):
    namespace_anti_affinity_group: str | None = None


class _FailureDomain(msgspec.Struct):
    brokers: set[str] = set()


class RuleReader:
    """Makes `Rules` of the records."""

    def __init__(self, store: MetadataStore, cluster: str) -> None:
        self._store = store
        self._base = f"{CLUSTERS}/{cluster}"
        self._changes: list[trio.MemoryReceiveChannel[Notification]] = []
        self._rules = Rules()
        self._isolation = IsolationPolicies()
        self._domains: dict[str, str] = {}
        self._groups: dict[str, str] = {}
        self._known: set[str] = set()
        """Namespaces whose group, or that they have none, was read and hasn't changed."""
        self._stale: set[str] = set()
        """Namespaces whose group has changed."""
        self._has_cluster = False
        self._with_domains = False
        self._mutex = trio.Lock()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Hear of changes while the context is open; without that, `current` reads all anew."""
        async with self._store.watch(LOCAL_POLICIES) as local, self._store.watch(CLUSTERS) as own:
            self._forget()
            self._changes = [local, own]
            try:
                yield
            finally:
                self._changes = []

    async def current(self, namespaces: Iterable[str], *, with_domains: bool) -> Rules:
        """The rules of now, with the groups of these namespaces and those that were asked for
        before. Raises MetadataError.
        """
        # Nobody may be answered by rules that are only half read.
        async with self._mutex:
            self._hear()
            wanted = (set(namespaces) | self._stale) - self._known
            if wanted or not self._has_cluster or self._with_domains != with_domains:
                if not self._has_cluster:
                    await self._read_cluster()
                jobs = (partial(self._read_group, namespace) for namespace in wanted)
                await side_by_side(jobs, CALLS_MAX)
                self._with_domains = with_domains
                domains = self._domains if with_domains else {}
                self._rules = Rules(self._isolation, dict(self._groups), domains)
            return self._rules

    def _hear(self) -> None:
        """Forget what has changed."""
        if not self._changes:
            self._forget()
        for channel in self._changes:
            while channel.statistics().current_buffer_used:
                change = channel.receive_nowait()
                if change.kind is Change.LOST:
                    self._forget()
                elif change.path.startswith(self._base):
                    self._has_cluster = False
                elif change.kind is not Change.CHILDREN:
                    namespace = change.path.removeprefix(f"{LOCAL_POLICIES}/")
                    if namespace in self._known:
                        self._known.discard(namespace)
                        self._stale.add(namespace)
                    if change.kind is Change.DELETED:
                        self._stale.discard(namespace)
                        self._groups.pop(namespace, None)

    def _forget(self) -> None:
        self._has_cluster = False
        self._stale |= self._known
        self._known.clear()

    async def _read_group(self, namespace: str) -> None:
        path = f"{LOCAL_POLICIES}/{namespace}"
        found = _decoded(path, await self._store.get(path), _LocalPolicies)
        # A change that came meanwhile is heard next: then it is read again.
        self._known.add(namespace)
        self._stale.discard(namespace)
        group = found.namespace_anti_affinity_group if found is not None else None
        if group:
            self._groups[namespace] = group
        else:
            self._groups.pop(namespace, None)

    async def _read_cluster(self) -> None:
        """Isolation policies and failure domains."""
        domains: dict[str, str] = {}
        base = f"{self._base}/failureDomain"
        for name in await self._store.children(base):
            path = f"{base}/{name}"
            domain = _decoded(path, await self._store.get(path), _FailureDomain)
            if domain is not None:
                domains.update(dict.fromkeys(domain.brokers, name))
        path = f"{self._base}/namespaceIsolationPolicies"
        node = await self._store.get(path)
        self._has_cluster = True
        self._domains = domains
        if node is None or not node.value:
            self._isolation = IsolationPolicies()
        else:
            try:
                self._isolation = decode_policies(node.value)
            except ValueError as error:
                # Without them bundles would go where they must not: the last ones hold on.
                _log.warning("%s can't be read, so what it said before holds: %s", path, error)


def _decoded(path: str, node: Node | None, kind: type[T]) -> T | None:
    if node is None or not node.value:
        return None
    try:
        return read_json(node.value, kind)
    except BadJson as error:
        _log.warning("%s can't be read, so it is passed over: %s", path, error)
        return None
