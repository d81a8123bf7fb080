"""`geminga.admin` against our server and Apache's: clusters, tenants, namespaces, brokers."""

from __future__ import annotations

import uuid
from typing import TypeVar

import pytest
import trio

import geminga
import geminga.admin
import geminga.blocking.admin
from compat_tests.clients.admin_calls import settled
from compat_tests.processes import ServerProcess
from geminga.blocking.admin import (
    AdminClient,
    AutoSubscriptionCreationOverride,
    AutoTopicCreationOverride,
    BacklogQuota,
    BookieInfo,
    ClusterData,
    ConflictError,
    DelayedDeliveryPolicies,
    DispatchRate,
    FailureDomain,
    InactiveTopicPolicies,
    NamespaceIsolationData,
    NewNamespace,
    NotFoundError,
    OffloadPolicies,
    PersistencePolicies,
    PreconditionFailedError,
    PublishRate,
    ResourceGroup,
    ResourceQuota,
    RetentionPolicies,
    SubscribeRate,
    TenantInfo,
)

T = TypeVar("T")


def test_tenants(admin: AdminClient) -> None:
    name = f"adm{uuid.uuid4().hex[:8]}"
    assert {"public", "pulsar"} <= set(admin.tenants.list())
    admin.tenants.create(name, TenantInfo(admin_roles=["a"], allowed_clusters=["standalone"]))
    with pytest.raises(ConflictError) as caught:
        admin.tenants.create(name, TenantInfo(allowed_clusters=["standalone"]))
    assert (caught.value.status, caught.value.reason) == (409, "Tenant already exist")
    assert admin.tenants.get(name).admin_roles == ["a"]
    admin.tenants.update(name, TenantInfo(admin_roles=["b"], allowed_clusters=["standalone"]))
    assert admin.tenants.get(name) == TenantInfo(admin_roles=["b"], allowed_clusters=["standalone"])
    with pytest.raises(PreconditionFailedError):
        admin.tenants.create("bad@name", TenantInfo(allowed_clusters=["standalone"]))
    admin.tenants.delete(name)
    with pytest.raises(NotFoundError, match="Tenant does not exist"):
        admin.tenants.get(name)


def test_clusters(admin: AdminClient) -> None:
    name = f"adm{uuid.uuid4().hex[:8]}"
    assert "standalone" in admin.clusters.list()
    assert admin.clusters.get("standalone").service_url is not None
    admin.clusters.create(name, ClusterData(service_url="http://x:8080"))
    admin.clusters.update(name, ClusterData(service_url="http://y:8080"))
    assert admin.clusters.get(name).service_url == "http://y:8080"
    admin.clusters.delete(name)
    with pytest.raises(NotFoundError):
        admin.clusters.get(name)


def test_failure_domains_and_isolation_policies(admin: AdminClient) -> None:
    admin.clusters.set_failure_domain("standalone", "d", FailureDomain(brokers=["b1:8080"]))
    assert admin.clusters.get_failure_domain("standalone", "d").brokers == ["b1:8080"]
    assert "d" in admin.clusters.list_failure_domains("standalone")
    admin.clusters.delete_failure_domain("standalone", "d")
    policy = NamespaceIsolationData(
        namespaces=["public/never.*"],
        primary=["b.*"],
        secondary=["c.*"],
        auto_failover_policy=geminga.admin.AutoFailoverPolicy(
            parameters={"min_limit": "1", "usage_threshold": "80"}
        ),
    )
    admin.isolation_policies.set("standalone", "p", policy)
    found = admin.isolation_policies.get("standalone", "p")
    assert (found.namespaces, found.primary) == (["public/never.*"], ["b.*"])
    assert "p" in admin.isolation_policies.list("standalone")
    assert admin.isolation_policies.brokers("standalone") is not None
    admin.isolation_policies.delete("standalone", "p")


def test_namespaces(admin: AdminClient, namespace: str) -> None:
    tenant = namespace.partition("/")[0]
    admin.namespaces.create(
        f"{tenant}/eight", NewNamespace(bundles=geminga.admin.BundlesData(num_bundles=8))
    )
    assert sorted(admin.namespaces.list(tenant)) == [f"{tenant}/eight", namespace]
    assert admin.bundles.list(f"{tenant}/eight").num_bundles == 8
    policies = admin.namespaces.get_policies(namespace)
    assert policies.replication_clusters == ["standalone"]
    admin.namespaces.grant_permission(namespace, "role", ["produce", "consume"])
    assert sorted(admin.namespaces.permissions(namespace)["role"]) == ["consume", "produce"]
    admin.namespaces.revoke_permissions(namespace, "role")
    assert admin.namespaces.permissions(namespace) == {}
    admin.topics.create(f"{namespace}/t")
    admin.namespaces.grant_subscription_permission(namespace, "s", ["r"])
    assert admin.namespaces.subscription_permissions(namespace) == {"s": ["r"]}
    admin.namespaces.revoke_subscription_permission(namespace, "s", "r")
    assert admin.namespaces.list_topics(namespace) == [f"persistent://{namespace}/t"]
    admin.namespaces.unload(namespace)
    with pytest.raises(ConflictError):
        admin.namespaces.delete(namespace)
    admin.topics.delete(f"{namespace}/t")
    admin.namespaces.delete(f"{tenant}/eight")


def test_properties_of_namespaces(admin: AdminClient, namespace: str) -> None:
    admin.namespaces.set_properties(namespace, {"a": "b", "c": "d"})
    admin.namespaces.set_property(namespace, "e", "f g")
    assert admin.namespaces.get_properties(namespace) == {"a": "b", "c": "d", "e": "f g"}
    assert admin.namespaces.get_property(namespace, "e") == "f g"
    assert admin.namespaces.remove_property(namespace, "e") == "f g"
    admin.namespaces.clear_properties(namespace)
    assert admin.namespaces.get_properties(namespace) == {}


def test_bundles(admin: AdminClient, namespace: str) -> None:
    first = "0x00000000_0x40000000"
    admin.bundles.unload(namespace, first)
    admin.bundles.split(namespace, first, algorithm="range_equally_divide")
    found = settled(lambda: admin.bundles.list(namespace).num_bundles, lambda count: count == 5)
    assert found == 5
    admin.topics.create(f"{namespace}/t")
    own = admin.lookups.bundle(f"{namespace}/t")
    admin.lookups.broker(f"{namespace}/t")
    admin.bundles.clear_backlog(namespace, own)
    positions = settled(
        lambda: list(admin.bundles.topic_hash_positions(namespace, own).topic_hash_positions),
        lambda found: f"persistent://{namespace}/t" in found,
    )
    # Apache's broker may have made the namespace's system topic, in the same bundle by chance.
    made_by_itself = f"persistent://{namespace}/__change_events"
    assert sorted(positions) in (
        [f"persistent://{namespace}/t"], [made_by_itself, f"persistent://{namespace}/t"]
    )  # fmt: skip


def test_policies_of_namespaces(admin: AdminClient, namespace: str) -> None:
    policies = admin.namespace_policies

    def kept(policy: geminga.blocking.admin.NamespacePolicy[T], value: T) -> None:
        policy.set(namespace, value)
        assert policy.get(namespace) == value
        policy.remove(namespace)
        assert policy.get(namespace) is None

    kept(
        policies.retention,
        RetentionPolicies(retention_time_in_minutes=10, retention_size_in_mb=20),
    )
    kept(policies.message_ttl, 3600)
    kept(policies.max_producers_per_topic, 3)
    kept(policies.max_consumers_per_topic, 4)
    kept(policies.max_consumers_per_subscription, 5)
    kept(policies.max_subscriptions_per_topic, 6)
    kept(policies.max_unacked_messages_per_consumer, 7)
    kept(policies.max_unacked_messages_per_subscription, 8)
    kept(policies.dispatch_rate, DispatchRate(dispatch_throttling_rate_in_msg=100))
    kept(policies.subscription_dispatch_rate, DispatchRate(dispatch_throttling_rate_in_byte=9))
    kept(policies.publish_rate, PublishRate(publish_throttling_rate_in_msg=1000))
    kept(policies.subscribe_rate, SubscribeRate(subscribe_throttling_rate_per_consumer=5))
    kept(policies.deduplication, True)
    kept(policies.deduplication_snapshot_interval, 60)
    kept(policies.compaction_threshold, 1 << 20)
    kept(policies.auto_topic_creation, AutoTopicCreationOverride(allow_auto_topic_creation=False))
    kept(
        policies.auto_subscription_creation,
        AutoSubscriptionCreationOverride(allow_auto_subscription_creation=False),
    )
    kept(policies.delayed_delivery, DelayedDeliveryPolicies(active=True, tick_time=2000))
    kept(
        policies.inactive_topic_policies,
        InactiveTopicPolicies(
            inactive_topic_delete_mode="delete_when_no_subscriptions",
            max_inactive_duration_seconds=60,
            delete_while_inactive=True,
        ),
    )
    policies.encryption_required.set(namespace, True)
    assert policies.encryption_required.get(namespace) is True
    policies.schema_compatibility_strategy.set(namespace, "FULL")
    assert policies.schema_compatibility_strategy.get(namespace) == "FULL"
    policies.subscription_types_enabled.set(namespace, ["Shared"])
    assert policies.subscription_types_enabled.get(namespace) == ["Shared"]
    policies.subscription_types_enabled.remove(namespace)
    policies.subscription_expiration_time.set(namespace, 30)
    assert policies.subscription_expiration_time.get(namespace) == 30


def test_more_policies_of_namespaces(admin: AdminClient, namespace: str) -> None:
    policies = admin.namespace_policies
    stored = PersistencePolicies(
        bookkeeper_ensemble=1, bookkeeper_write_quorum=1, bookkeeper_ack_quorum=1,
        managed_ledger_max_mark_delete_rate=2.0,
    )  # fmt: skip
    policies.persistence.set(namespace, stored)
    assert policies.persistence.get(namespace) == stored
    assert policies.replication_clusters.get(namespace) == ["standalone"]
    policies.anti_affinity_group.set(namespace, "apart")
    assert policies.anti_affinity_group.get(namespace) == "apart"
    tenant = namespace.partition("/")[0]
    found = admin.namespaces.anti_affinity_namespaces("standalone", "apart", tenant=tenant)
    assert found == [namespace]
    policies.anti_affinity_group.remove(namespace)
    assert policies.anti_affinity_group.get(namespace) is None
    quota = BacklogQuota(policy="producer_exception", limit_size=1 << 30)
    policies.set_backlog_quota(namespace, quota)
    assert policies.get_backlog_quotas(namespace)["destination_storage"].limit_size == 1 << 30
    policies.remove_backlog_quota(namespace)
    assert policies.get_backlog_quotas(namespace) == {}


def test_brokers(admin: AdminClient, server: ServerProcess) -> None:
    own = server.web_url.removeprefix("http://")
    [broker] = admin.brokers.list()
    assert broker.rpartition(":")[2] == own.rpartition(":")[2]
    assert admin.brokers.list_of("standalone") == [broker]
    assert admin.brokers.version().startswith("4.0")
    assert admin.brokers.healthcheck(topic_version="V2") == "ok"
    assert admin.brokers.ready() == "ok"
    assert admin.brokers.leader().broker_id == broker
    assert admin.brokers.get_runtime_configuration()["clusterName"] == "standalone"
    assert admin.brokers.list_dynamic_configuration()
    assert isinstance(admin.brokers.get_dynamic_configuration(), dict)
    assert admin.brokers.get_internal_configuration().metadata_store_url is not None
    admin.brokers.check_backlog_quotas()
    with pytest.raises(PreconditionFailedError):
        admin.brokers.update_dynamic_configuration("noSuchSetting", "1")


def test_owned_bundles(admin: AdminClient, namespace: str) -> None:
    admin.topics.create(f"{namespace}/t")
    admin.lookups.broker(f"{namespace}/t")
    [broker] = admin.brokers.list()
    owned = admin.brokers.owned_namespaces("standalone", broker)
    assert [each for each in owned if each.startswith(f"{namespace}/")]


def test_broker_statistics(admin: AdminClient) -> None:
    assert isinstance(admin.broker_stats.metrics(), list)
    assert isinstance(admin.broker_stats.topics(), dict)
    assert admin.broker_stats.load_report()


def test_resource_quotas(admin: AdminClient, namespace: str) -> None:
    quota = ResourceQuota(msg_rate_in=10.0, bandwidth_in=1e6, memory=5.0, dynamic=False)
    before = admin.resource_quotas.get_default()
    admin.resource_quotas.set_default(before)
    bundle = "0x00000000_0x40000000"
    admin.resource_quotas.set(namespace, bundle, quota)
    assert admin.resource_quotas.get(namespace, bundle).memory == 5.0
    admin.resource_quotas.reset(namespace, bundle)


def test_resource_groups(admin: AdminClient, namespace: str) -> None:
    name = f"adm{uuid.uuid4().hex[:8]}"
    admin.resource_groups.set(name, ResourceGroup(publish_rate_in_msgs=10))
    assert name in admin.resource_groups.list()
    admin.resource_groups.set(name, ResourceGroup(dispatch_rate_in_bytes=20))
    found = admin.resource_groups.get(name)
    assert found == ResourceGroup(
        publish_rate_in_msgs=10, publish_rate_in_bytes=-1,
        dispatch_rate_in_msgs=-1, dispatch_rate_in_bytes=20,
    )  # fmt: skip
    admin.namespace_policies.resource_group.set(namespace, name)
    assert admin.namespace_policies.resource_group.get(namespace) == name
    with pytest.raises(PreconditionFailedError, match="ResourceGroup is in use"):
        admin.resource_groups.delete(name)
    admin.namespace_policies.resource_group.remove(namespace)
    assert admin.namespace_policies.resource_group.get(namespace) is None
    admin.resource_groups.delete(name)
    with pytest.raises(NotFoundError):
        admin.resource_groups.get(name)


def test_offloading(admin: AdminClient, namespace: str) -> None:
    policies = admin.namespace_policies
    policies.offload_threshold.set(namespace, 10 << 20)
    policies.offload_threshold_in_seconds.set(namespace, 300)
    policies.offload_deletion_lag.set(namespace, 1000)
    found = policies.offload_policies.get(namespace)
    assert found is not None
    assert found.managed_ledger_offload_threshold_in_bytes == 10 << 20
    assert found.managed_ledger_offload_threshold_in_seconds == 300
    assert policies.offload_deletion_lag.get(namespace) == 1000
    policies.offload_deletion_lag.remove(namespace)
    assert policies.offload_deletion_lag.get(namespace) is None
    chosen = OffloadPolicies(
        managed_ledger_offload_driver="aws-s3", managed_ledger_offload_bucket="b"
    )
    policies.offload_policies.set(namespace, chosen)
    found = policies.offload_policies.get(namespace)
    assert found is not None
    assert found.managed_ledger_offload_bucket == "b"
    policies.offload_policies.remove(namespace)
    assert policies.offload_policies.get(namespace) is None


def test_pending_calls_to_bookies(admin: AdminClient, namespace: str) -> None:
    admin.topics.create(f"{namespace}/t")
    told = admin.broker_stats.pending_bookie_operations()[namespace]
    assert set(told[f"persistent://{namespace}/t"]) == {
        f"{of}Ledger{what}Op"
        for of in ("data", "cursor")
        for what in ("Open", "Close", "Create", "Delete")
    }


def test_bookies(admin: AdminClient) -> None:
    assert admin.bookies.list().bookies is not None
    admin.bookies.set_rack("127.0.0.1:3999", "default", BookieInfo(rack="/r", hostname="h"))
    assert admin.bookies.get_rack("127.0.0.1:3999").rack == "/r"
    assert "127.0.0.1:3999" in admin.bookies.racks()["default"]
    admin.bookies.delete_rack("127.0.0.1:3999")


def test_a_whole_run_in_trio(server: ServerProcess) -> None:
    async def main() -> list[str]:
        async with geminga.admin.connect(server.web_url) as admin:
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(admin.topics.create, f"public/default/adm-trio-{number}")
            names = await admin.topics.list("public/default")
            for number in range(20):
                await admin.topics.delete(f"public/default/adm-trio-{number}")
            return [name for name in names if "adm-trio" in name]

    assert len(trio.run(main)) == 20
