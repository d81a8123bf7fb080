"""`geminga.admin` against our server and Apache's: topics, subscriptions, messages, schemas."""

from __future__ import annotations

from typing import TypeVar

import pytest

import geminga
import geminga.admin
import geminga.blocking.admin
from compat_tests.clients.admin_calls import settled
from compat_tests.processes import ServerProcess
from geminga.blocking.admin import (
    AdminClient,
    BacklogQuota,
    BadRequestError,
    ConflictError,
    DelayedDeliveryPolicies,
    DispatchRate,
    NotAllowedError,
    NotFoundError,
    PostSchemaPayload,
    PublishRate,
    ResetCursorData,
    RetentionPolicies,
)

T = TypeVar("T")


def test_topics(admin: AdminClient, namespace: str) -> None:
    topic = f"{namespace}/t"
    admin.topics.create(topic)
    with pytest.raises(ConflictError):
        admin.topics.create(topic)
    admin.topics.create_partitioned(f"{namespace}/p", 2)
    admin.topics.update_partitions(f"{namespace}/p", 3)
    assert admin.topics.get_partitions(f"{namespace}/p").partitions == 3
    assert admin.topics.get_partitions(topic).partitions == 0
    assert len(admin.topics.list(namespace)) == 4
    assert admin.topics.list_partitioned(namespace) == [f"persistent://{namespace}/p"]
    assert admin.topics.list(namespace, domain="non-persistent") == []
    admin.topics.create_missed_partitions(f"{namespace}/p")
    admin.topics.grant_permission(topic, "r", ["consume"])
    assert admin.topics.permissions(topic)["r"] == ["consume"]
    admin.topics.revoke_permissions(topic, "r")
    assert admin.lookups.broker(topic).broker_url is not None
    assert admin.lookups.bundle(topic).startswith("0x")
    admin.topics.unload(topic)
    assert admin.topics.terminate(topic).entry_id == -1
    assert set(admin.topics.terminate_partitioned(f"{namespace}/p")) == {"0", "1", "2"}
    with pytest.raises(ConflictError):
        admin.topics.delete(f"{namespace}/p")
    admin.topics.delete_partitioned(f"{namespace}/p")
    admin.topics.delete(topic)
    with pytest.raises(NotFoundError):
        admin.stats.get(topic)


def test_properties_of_topics(admin: AdminClient, namespace: str) -> None:
    admin.topics.create(f"{namespace}/t", properties={"a": "b"})
    admin.topics.update_properties(f"{namespace}/t", {"c": "d"})
    assert admin.topics.get_properties(f"{namespace}/t") == {"a": "b", "c": "d"}
    admin.topics.remove_property(f"{namespace}/t", "a")
    assert admin.topics.get_properties(f"{namespace}/t") == {"c": "d"}
    admin.topics.create_partitioned(f"{namespace}/p", 2, properties={"e": "f"})
    assert admin.topics.get_properties(f"{namespace}/p") == {"e": "f"}
    assert admin.topics.get_partitions(f"{namespace}/p").properties == {"e": "f"}


def test_statistics(admin: AdminClient, server: ServerProcess, namespace: str) -> None:
    topic = f"persistent://{namespace}/t"
    with geminga.blocking.connect(server.service_url) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, producer_name="p")
        for _ in range(3):
            producer.send(b"x")
        stats = settled(
            lambda: admin.stats.get(topic, get_precise_backlog=True),
            lambda stats: stats.msg_in_counter == 3,
        )
        assert stats.msg_in_counter == 3
        assert [each.producer_name for each in stats.publishers] == ["p"]
        assert stats.subscriptions["s"].msg_backlog == 3
        assert stats.subscriptions["s"].consumers[0].available_permits > 0
        internal = admin.stats.get_internal(topic)
        assert internal.number_of_entries == 3
        assert internal.cursors["s"].mark_delete_position
        assert admin.stats.last_message_id(topic).entry_id == 2
        assert admin.subscriptions.list(topic) == ["s"]
        admin.namespaces.clear_backlog(namespace)
        cleared = settled(
            lambda: admin.stats.get(topic).subscriptions["s"].msg_backlog, lambda left: left == 0
        )
        assert cleared == 0
        consumer.close()
        producer.close()
    admin.topics.create_partitioned(f"{namespace}/p", 2)
    admin.subscriptions.create(f"{namespace}/p", "s")
    parts = admin.stats.get_partitioned(f"{namespace}/p")
    assert sorted(parts.partitions) == [
        f"persistent://{namespace}/p-partition-{number}" for number in range(2)
    ]
    assert parts.metadata is not None
    assert parts.metadata.partitions == 2
    inner = admin.stats.get_partitioned_internal(f"{namespace}/p")
    assert len(inner.partitions) == 2


def test_subscriptions(admin: AdminClient, namespace: str) -> None:
    check_subscription(admin, namespace, "s")


@pytest.mark.parametrize("name", ["a b", "a+b", "a%2Fb", "a/b", "ä?#"])
def test_odd_names_of_subscriptions(admin: AdminClient, namespace: str, name: str) -> None:
    check_subscription(admin, namespace, name)


def check_subscription(admin: AdminClient, namespace: str, name: str) -> None:
    topic = f"{namespace}/t"
    admin.topics.create(topic)
    admin.subscriptions.create(topic, name, geminga.admin.EARLIEST)
    with pytest.raises(ConflictError):
        admin.subscriptions.create(topic, name)
    assert admin.subscriptions.list(topic) == [name]
    admin.subscriptions.update_properties(topic, name, {"a": "b"})
    assert admin.subscriptions.get_properties(topic, name) == {"a": "b"}
    admin.subscriptions.skip(topic, name, 3)
    admin.subscriptions.skip_all(topic, name)
    admin.subscriptions.reset_to_time(topic, name, 1000)
    admin.subscriptions.delete(topic, name)
    assert admin.subscriptions.list(topic) == []
    with pytest.raises(NotFoundError):
        admin.subscriptions.delete(topic, name)


def test_places_of_subscriptions(admin: AdminClient, server: ServerProcess, namespace: str) -> None:
    topic = f"persistent://{namespace}/t"
    admin.topics.create(topic)
    admin.subscriptions.create(topic, "s", geminga.admin.EARLIEST)
    with geminga.blocking.connect(server.service_url) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        ids = [producer.send(f"m{number}".encode()) for number in range(5)]
        producer.close()
    second = ResetCursorData(ledger_id=ids[1].ledger_id, entry_id=ids[1].entry_id)

    def backlog() -> int:
        return admin.stats.get(topic, get_precise_backlog=True).subscriptions["s"].msg_backlog

    assert backlog() == 5
    admin.subscriptions.skip(topic, "s", 2)
    assert backlog() == 3
    admin.subscriptions.reset(topic, "s", second)
    assert backlog() == 4
    admin.subscriptions.reset(
        topic,
        "s",
        ResetCursorData(ledger_id=second.ledger_id, entry_id=second.entry_id, is_excluded=True),
    )
    assert backlog() == 3
    admin.subscriptions.reset(topic, "s", geminga.admin.EARLIEST)
    assert backlog() == 5
    assert admin.stats.backlog_size(topic, geminga.admin.EARLIEST) > 0
    result = admin.subscriptions.analyze_backlog(topic, "s")
    assert (result.entries, result.messages) == (5, 5)
    place = admin.messages.id_at(topic, 0)
    assert place is not None
    assert (place.ledger_id, place.entry_id) == (ids[0].ledger_id, ids[0].entry_id)


def test_messages(admin: AdminClient, server: ServerProcess, namespace: str) -> None:
    topic = f"persistent://{namespace}/t"
    admin.topics.create(topic)
    admin.subscriptions.create(topic, "s", geminga.admin.EARLIEST)
    with geminga.blocking.connect(server.service_url) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        id_ = producer.send(b"one", partition_key="k", properties={"Name": "Value"})
        producer.close()
        batching = client.create_producer(topic, batching_max_publish_delay_s=1.0)
        receipts = [batching.submit(f"b{number}".encode(), properties={"n": str(number)})
                    for number in range(3)]  # fmt: skip
        batching.flush()
        entries = {receipt.wait().entry_id for receipt in receipts}
        batching.close()
    [first] = admin.subscriptions.peek(topic, "s", 1)
    assert (first.data, first.key, first.properties) == (b"one", "k", {"Name": "Value"})
    assert first.message_id == f"{id_.ledger_id}:{id_.entry_id}"
    [stored] = admin.messages.get(topic, id_.ledger_id, id_.entry_id)
    # Apache's broker says of either call now and then that the message is encrypted.
    assert (stored.message_id, stored.data, stored.key) == (first.message_id, b"one", "k")
    assert (stored.properties, stored.publish_time) == (first.properties, first.publish_time)
    [examined] = admin.messages.examine(topic, initial_position="earliest")
    assert examined.data == b"one"
    if len(entries) == 1:
        batch = admin.subscriptions.peek(topic, "s", 2)
        assert [each.data for each in batch] == [b"b0", b"b1", b"b2"]
        assert batch[1].properties == {"n": "1"}
        assert batch[1].message_id.endswith(":1:1")


def test_compaction(admin: AdminClient, namespace: str) -> None:
    topic = f"{namespace}/t"
    admin.topics.create(topic)
    assert admin.topics.compaction_status(topic).status == "NOT_RUN"
    admin.topics.compact(topic)
    ended = settled(
        lambda: admin.topics.compaction_status(topic).status, lambda status: status != "RUNNING"
    )
    assert ended == "SUCCESS"


def test_policies_of_topics(admin: AdminClient, namespace: str) -> None:
    topic = f"{namespace}/t"
    admin.topics.create(topic)
    policies = admin.topic_policies

    def kept(policy: geminga.blocking.admin.TopicPolicy[T], value: T) -> None:
        policy.set(topic, value)
        assert settled(lambda: policy.get(topic), lambda found: found == value) == value
        policy.remove(topic)
        assert settled(lambda: policy.get(topic), lambda found: found is None) is None

    kept(
        policies.retention,
        RetentionPolicies(retention_time_in_minutes=10, retention_size_in_mb=20),
    )
    kept(policies.message_ttl, 3600)
    kept(policies.max_producers, 3)
    kept(policies.max_consumers, 4)
    kept(policies.max_message_size, 1024)
    kept(policies.dispatch_rate, DispatchRate(dispatch_throttling_rate_in_msg=100))
    kept(policies.publish_rate, PublishRate(publish_throttling_rate_in_msg=1000))
    kept(policies.compaction_threshold, 1 << 20)
    kept(policies.deduplication, True)
    kept(policies.delayed_delivery, DelayedDeliveryPolicies(active=True, tick_time=2000))
    kept(policies.schema_compatibility_strategy, "FULL")
    quota = BacklogQuota(policy="producer_exception", limit_size=1 << 30)
    policies.set_backlog_quota(topic, quota)
    found = settled(
        lambda: policies.get_backlog_quotas(topic), lambda quotas: "destination_storage" in quotas
    )
    assert found["destination_storage"].limit_size == 1 << 30
    policies.set_dispatch_rate_of(topic, "s", DispatchRate(dispatch_throttling_rate_in_msg=9))
    rate = settled(lambda: policies.get_dispatch_rate_of(topic, "s"), lambda found: bool(found))
    assert rate is not None
    assert rate.dispatch_throttling_rate_in_msg == 9


def test_schemas(admin: AdminClient, namespace: str) -> None:
    topic = f"{namespace}/t"
    admin.topics.create(topic)
    with pytest.raises(NotFoundError):
        admin.schemas.get(topic)
    definition = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
    payload = PostSchemaPayload(type="AVRO", schema=definition)
    assert admin.schemas.compatibility(topic, payload).is_compatibility
    assert admin.schemas.upload(topic, payload).version == 0
    found = admin.schemas.get(topic)
    assert (found.version, found.type) == (0, "AVRO")
    assert '"name":"R"' in found.data.replace(" ", "")
    assert admin.schemas.get_version(topic, 0).version == 0
    assert len(admin.schemas.get_all(topic).get_schema_responses) == 1
    assert admin.schemas.version_of(topic, payload).version == 0
    assert admin.schemas.delete(topic).version >= 0


def test_non_persistent_topics(admin: AdminClient, server: ServerProcess, namespace: str) -> None:
    topic = f"non-persistent://{namespace}/t"
    with geminga.blocking.connect(server.service_url) as client, client.subscribe(topic, "s"):
        assert "s" in admin.stats.get(topic).subscriptions
        assert topic in admin.topics.list(namespace, domain="non-persistent")
    with pytest.raises((BadRequestError, NotAllowedError)):
        admin.topics.terminate(topic)
