"""Clusters, tenants and namespaces (spec CL-03; Apache's `PulsarResources` and `Policies`).

Records: `/admin/clusters/{cluster}`, `/admin/policies/{tenant}`,
`/admin/policies/{tenant}/{namespace}` and the bundles at `/admin/local-
policies/{tenant}/{namespace}`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from itertools import pairwise
from typing import cast

import msgspec

from geminga_broker.cluster.deletions import Deletions, Resumed, is_marked
from geminga_broker.cluster.records import (
    JsonObject,
    Records,
    ResourceExists,
    ResourceInUse,
    ResourceMissing,
    check_name,
    decode,
)
from geminga_broker.ownership.bundle import HASH_MAX, BundleId, range_text
from geminga_protocol.keys import bundle_hash
from geminga_protocol.topic_name import TopicName
from geminga_runtime.json_text import read_json
from geminga_runtime.metadata.api import BadVersion, MetadataStore, NoNode


class _Facts(msgspec.Struct):
    """What lookups, and what makes topics, need of a namespace's policies."""

    deleted: object = False
    max_topics_per_namespace: object = None
    auto_creation: object = msgspec.field(name="autoTopicCreationOverride", default=None)


_NO_FACTS = _Facts()

POLICIES = "/admin/policies"
"""Where tenants stand, and beneath them their namespaces."""

LOCAL_POLICIES = "/admin/local-policies"
"""What only this cluster says of namespaces."""

BUNDLES_KEPT_MAX = 1000
"""Namespaces whose bundles and facts stay decoded: each lookup asks for them."""


class Bundles:
    """The hash ranges of a namespace's topics."""

    def __init__(self, boundaries: Sequence[int]) -> None:
        if len(boundaries) < 2 or boundaries[0] != 0 or boundaries[-1] != HASH_MAX:
            raise ValueError("bundles must cover 0x00000000 to 0xffffffff")
        if any(low >= high for low, high in pairwise(boundaries)):
            raise ValueError("bundle boundaries must ascend")
        self.boundaries = tuple(boundaries)

    @classmethod
    def even(cls, count: int) -> Bundles:
        """`count` ranges of equal size, as by Apache's `PoliciesUtil.getBundles`."""
        size = (HASH_MAX + 1) // count
        return cls([index * size for index in range(count)] + [HASH_MAX])

    @classmethod
    def from_json(cls, record: JsonObject) -> Bundles:
        """Raises ValueError when the record holds no bundles."""
        inner = record.get("bundles")
        texts = inner.get("boundaries") if isinstance(inner, dict) else None
        if not isinstance(texts, list):
            raise ValueError("no boundaries")
        return cls([int(str(text), 16) for text in texts])

    def to_json(self) -> JsonObject:
        """Apache's `BundlesData`."""
        texts = [f"0x{boundary:08x}" for boundary in self.boundaries]
        return {"boundaries": texts, "numBundles": len(texts) - 1}

    def names(self) -> list[str]:
        """Every range as `0xlow_0xhigh`."""
        return [range_text(low, high) for low, high in pairwise(self.boundaries)]

    def of_topic(self, topic: str) -> str:
        """The range of a topic's full name; the last one includes its upper end."""
        index = bisect_right(self.boundaries, bundle_hash(topic)) - 1
        index = min(index, len(self.boundaries) - 2)
        return range_text(self.boundaries[index], self.boundaries[index + 1])


def new_policies(bundles: Bundles, clusters: Sequence[str]) -> JsonObject:
    """Policies of a new namespace, with Apache's fields; those that aren't there are the broker's
    defaults.
    """
    return {
        "auth_policies": {
            "namespace_auth": {},
            "destination_auth": {},
            "subscription_auth_roles": {},
        },
        "replication_clusters": list(clusters),
        "allowed_clusters": [],
        "bundles": bundles.to_json(),
        "backlog_quota_map": {},
        "clusterDispatchRate": {},
        "topicDispatchRate": {},
        "subscriptionDispatchRate": {},
        "replicatorDispatchRate": {},
        "clusterSubscribeRate": {},
        "publishMaxMessageRate": {},
        "latency_stats_sample_rate": {},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": {},
        "migrated": False,
    }


class Namespaces:
    """Clusters, tenants and namespaces of the configuration store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.deletions = Deletions(store)
        self.clusters = Records(store, "/admin/clusters")
        self.tenants = Records(store, POLICIES)
        self.local_policies = Records(store, LOCAL_POLICIES)
        self.partitioned = Records(store, "/admin/partitioned-topics")
        self.resource_groups = Records(store, "/admin/resourcegroups")
        self._bundles: dict[str, tuple[bytes | None, Bundles]] = {}
        """By namespace, with the record that they were decoded from."""
        self._known_facts: dict[str, tuple[bytes, _Facts]] = {}
        """By namespace, with the policies that they were decoded from."""

    async def create_tenant(
        self, tenant: str, roles: Sequence[str], clusters: Sequence[str]
    ) -> None:
        """Raises BadName, ResourceExists."""
        record: JsonObject = {"adminRoles": list(roles), "allowedClusters": list(clusters)}
        await self.tenants.create(check_name(tenant), record)

    async def delete_tenant(self, tenant: str) -> None:
        """Raises ResourceMissing, ResourceInUse."""
        if await self.list(tenant):
            raise ResourceInUse(tenant)
        await self.tenants.delete(tenant)

    async def list(self, tenant: str) -> list[str]:
        """Full names (`tenant/namespace`) of a tenant's namespaces."""
        return [f"{tenant}/{name}" for name in await self.tenants.names(tenant)]

    async def exists(self, namespace: str) -> bool:
        """Whether the namespace exists and isn't being deleted."""
        return self._is_living(namespace, await self.tenants.value(namespace))

    async def is_recorded(self, namespace: str) -> bool:
        """Whether the namespace exists, also while it is being deleted. Raises MetadataError."""
        return await self.tenants.value(namespace) is not None

    def _is_living(self, namespace: str, value: bytes | None) -> bool:
        return value is not None and self._facts(namespace, value).deleted is not True

    def _facts(self, namespace: str, value: bytes | None) -> _Facts:
        if value is None:
            return _NO_FACTS
        known = self._known_facts.get(namespace)
        if known is not None and known[0] == value:
            return known[1]
        found = read_json(value, _Facts)
        if len(self._known_facts) >= BUNDLES_KEPT_MAX:
            self._known_facts.clear()
        self._known_facts[namespace] = value, found
        return found

    async def policies(self, namespace: str) -> JsonObject:
        """Raises ResourceMissing."""
        record = await self.tenants.get(namespace)
        if record is None:
            raise ResourceMissing(namespace)
        return record

    async def create(
        self,
        namespace: str,
        *,
        bundles: int,
        clusters: Sequence[str],
        policies: JsonObject | None = None,
    ) -> None:
        """Create a namespace of an existing tenant; `policies` override the defaults.
        Raises BadName, ResourceMissing (of the tenant), ResourceExists.
        """
        tenant, _, name = namespace.partition("/")
        check_name(name)
        if not await self.tenants.exists(tenant):
            raise ResourceMissing(tenant)
        cut = Bundles.even(bundles)
        record = new_policies(cut, clusters) | (policies or {})
        record["bundles"] = cut.to_json()
        await self.tenants.create(namespace, record)
        local: JsonObject = {"bundles": cut.to_json()}
        try:
            await self.local_policies.create(namespace, local)
        except ResourceExists:  # of an earlier namespace of that name
            await self.local_policies.update(namespace, lambda _: local)

    async def delete(self, namespace: str) -> None:
        """Remove an empty namespace. Raises ResourceMissing, ResourceInUse."""
        await self._require_no_partitioned(namespace)
        await self.tenants.delete(namespace)
        await self._delete_local_policies(namespace)

    async def delete_marked(self, namespace: str) -> None:
        """Remove an empty namespace in `being_deleted`. Raises also ResourceChanged if it isn't
        marked any more.
        """
        await self._require_no_partitioned(namespace)
        await self.tenants.delete_where(namespace, is_marked)
        await self._delete_local_policies(namespace)

    async def _require_no_partitioned(self, namespace: str) -> None:
        for domain in ("persistent", "non-persistent"):
            if await self.partitioned.names(f"{namespace}/{domain}"):
                raise ResourceInUse(namespace)

    async def _delete_local_policies(self, namespace: str) -> None:
        with suppress(ResourceMissing):
            await self.local_policies.delete(namespace)

    async def forget_missing(self, namespace: str) -> None:
        """Remove what a deletion that was interrupted left of a namespace that is gone."""
        node = await self._store.get(self.local_policies.path(namespace))
        if node is not None and await self.tenants.value(namespace) is None:
            with suppress(NoNode, BadVersion):  # a new one has them now
                await self._store.delete(self.local_policies.path(namespace), node.stat.version)

    def being_deleted(
        self, namespace: str, *, force: bool = False, resumed: Resumed | None = None
    ) -> AbstractAsyncContextManager[JsonObject]:
        """In the block the namespace counts as missing for everything that would make something in
        it, at every broker (Apache's `Policies.deleted`). If the block fails, it is there again.
        Raises as `Deletions.marked`.
        """
        return self.deletions.marked(
            self.tenants, namespace, namespace, force=force, resumed=resumed
        )

    async def check_being_deleted(self, namespace: str) -> None:
        """See `Deletions.check`."""
        await self.deletions.check(self.tenants, namespace)

    async def bundles(self, namespace: str) -> Bundles:
        """The bundles, by the local policies first (splits change them). Raises ResourceMissing."""
        known = self._bundles.get(namespace)
        value = await self.local_policies.value(namespace)
        if known is not None and known[0] == value:
            return known[1]
        record = None if value is None else decode(value)
        if record is None or "bundles" not in record:
            return Bundles.from_json(await self.policies(namespace))
        found = Bundles.from_json(record)
        if len(self._bundles) >= BUNDLES_KEPT_MAX:
            self._bundles.clear()
        self._bundles[namespace] = value, found
        return found

    async def has_bundle(self, bundle: BundleId) -> bool:
        """Whether there is such a bundle now. Raises MetadataError."""
        try:
            return bundle.range in (await self.bundles(bundle.namespace)).names()
        except ResourceMissing:
            return False

    async def bundle_of(self, topic: TopicName) -> BundleId:
        """The bundle of a topic. Raises ResourceMissing without its namespace."""
        bundles = await self.bundles(topic.namespace)
        return BundleId(topic.namespace, bundles.of_topic(str(topic)))

    def known_bundle_of(self, topic: TopicName) -> BundleId | None:
        """The bundle of a topic whose namespace exists, if no record needs to be read for it."""
        namespace = topic.namespace
        policies = self.tenants.known(namespace)
        local = self.local_policies.known(namespace)
        kept = self._bundles.get(namespace)
        if policies is None or local is None or kept is None or kept[0] != local[0]:
            return None
        if not self._is_living(namespace, policies[0]):
            return None
        return BundleId(namespace, kept[1].of_topic(str(topic)))

    async def change_local_policies(
        self, namespace: str, change: Callable[[JsonObject], JsonObject]
    ) -> None:
        """Change what only this cluster says of a namespace; made first if nothing was said yet,
        as for those that another cluster made. Raises ResourceMissing (of the namespace).
        """
        while True:
            try:
                await self.local_policies.update(namespace, change)
            except ResourceMissing:
                bundles = await self.bundles(namespace)
                try:
                    await self.local_policies.create(
                        namespace, change({"bundles": bundles.to_json()})
                    )
                except ResourceExists:
                    continue
            return

    async def topics_max(self, namespace: str, default: int) -> int:
        """The namespace's limit of topics: its own, or the default."""
        value = await self.tenants.value(namespace)
        found = self._facts(namespace, value).max_topics_per_namespace
        return found if isinstance(found, int) else default

    async def auto_creation(self, namespace: str) -> JsonObject | None:
        """The namespace's `autoTopicCreationOverride`, or None; don't change it."""
        override = self._facts(namespace, await self.tenants.value(namespace)).auto_creation
        return cast(JsonObject, override) if isinstance(override, dict) else None

    async def bootstrap(self, cluster: str, cluster_data: JsonObject, bundles: int) -> None:
        """Create the records of Apache's standalone; later starts only renew addresses."""
        if await self.clusters.exists(cluster):
            await self.clusters.update(cluster, lambda old: old | cluster_data)
        else:
            await self.clusters.create(cluster, cluster_data)
        for tenant, namespace in (("public", "default"), ("pulsar", "system")):
            if not await self.tenants.exists(tenant):
                await self.create_tenant(tenant, (), (cluster,))
            if not await self.exists(f"{tenant}/{namespace}"):
                await self.create(f"{tenant}/{namespace}", bundles=bundles, clusters=(cluster,))
