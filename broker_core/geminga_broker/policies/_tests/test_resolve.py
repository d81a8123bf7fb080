"""Resolution of policies of broker, namespace and topic."""

from __future__ import annotations

import pytest

from geminga_broker.cluster.records import JsonObject
from geminga_broker.config import BrokerConfig, ClientLimits, LogConfig, PolicyConfig, TopicConfig
from geminga_broker.log.options import Persistence, Retention
from geminga_broker.policies.levels import Levels, topic_options, topic_policies
from geminga_broker.policies.model import Inactivity, TopicOptions
from geminga_broker.policies.quota import BacklogQuota, QuotaPolicy
from geminga_broker.policies.rate_limit import Rate
from geminga_broker.topic.api import SubType

CONFIG = BrokerConfig(
    log=LogConfig(retention_minutes=5, retention_mb=7),
    policies=PolicyConfig(
        message_ttl_s=9,
        quota_gb=0.5,
        quota_age_s=8,
        quota_policy="producer_exception",
        topic_dispatch_rate_messages=4,
        publish_rate_bytes=3,
        subscribe_rate=2,
    ),
    topics=TopicConfig(delete_inactive_after_s=11),
    clients=ClientLimits(allow_auto_subscription=False),
)
NAMESPACE: JsonObject = {
    "message_ttl_in_seconds": 20,
    "retention_policies": {"retentionTimeInMinutes": 2, "retentionSizeInMB": 3},
    "backlog_quota_map": {"message_age": {"limitTime": 6, "policy": "consumer_backlog_eviction"}},
    "topicDispatchRate": {"here": {"dispatchThrottlingRateInMsg": 40}, "there": {}},
    "publishMaxMessageRate": {"here": {"publishThrottlingRateInMsg": 30}},
    "clusterSubscribeRate": {"here": {"subscribeThrottlingRatePerConsumer": 20}},
    "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": True},
    "inactive_topic_policies": {"maxInactiveDurationSeconds": 12},
    "deduplicationEnabled": True,
    "max_producers_per_topic": 50,
    "max_consumers_per_topic": 60,
    "subscription_types_enabled": ["Shared"],
    "encryption_required": True,
}
TOPIC: JsonObject = {
    "messageTTLInSeconds": 0,
    "retentionPolicies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
    "backLogQuotaMap": {"destination_storage": {"limit": 5, "policy": "producer_request_hold"}},
    "dispatchRate": {"dispatchThrottlingRateInByte": 400, "ratePeriodInSecond": 2},
    "subscriptionPolicies": {"s": {"dispatchRate": {"dispatchThrottlingRateInMsg": 1}}},
    "deduplicationEnabled": False,
    "maxMessageSize": 100,
    "maxProducerPerTopic": 500,
    "subscriptionTypesEnabled": ["Failover", "Nonsense"],
    "inactiveTopicPolicies": {"deleteWhileInactive": False},
}


def test_the_brokers_settings_are_the_default() -> None:
    found = topic_policies(Levels(None, None, "here"), CONFIG)
    quota = BacklogQuota(1 << 29, 8, QuotaPolicy.EXCEPTION)
    assert found.message_ttl_s == 9
    assert found.retention == Retention(300, 7 << 20)
    assert (found.quotas.size, found.quotas.age) == (quota, quota)
    assert found.dispatch_rate == Rate(4, 0)
    assert found.publish_rate == Rate(0, 3)
    assert found.subscribe_rate == Rate(2, 0, 30)
    assert found.inactivity == Inactivity(True, 11)
    assert found.deduplication is None
    assert not found.auto_subscription


def test_namespace_policies_override_the_brokers() -> None:
    found = topic_policies(Levels({}, NAMESPACE, "here"), CONFIG)
    assert found.message_ttl_s == 20
    assert found.retention == Retention(120, 3 << 20)
    assert found.quotas.size.size_bytes == 1 << 29
    assert found.quotas.age == BacklogQuota(0, 6, QuotaPolicy.EVICTION)
    assert found.dispatch_rate == Rate(40, 0)
    assert found.publish_rate == Rate(30, 0)
    assert found.subscribe_rate == Rate(20, 0, 30)
    assert found.inactivity == Inactivity(True, 12)
    assert found.deduplication is not None
    assert found.auto_subscription
    assert topic_policies(Levels({}, NAMESPACE, "elsewhere"), CONFIG).dispatch_rate == Rate(4, 0)


def test_topic_policies_override_all_others() -> None:
    found = topic_policies(Levels(TOPIC, NAMESPACE, "here"), CONFIG)
    assert found.message_ttl_s == 0
    assert found.retention == Retention(-60, -(1 << 20))
    assert found.quotas.size == BacklogQuota(5, 0, QuotaPolicy.HOLD)
    assert found.quotas.age == BacklogQuota(0, 6, QuotaPolicy.EVICTION)
    assert found.dispatch_rate == Rate(0, 400, 2)
    assert found.dispatch_rates == {"s": Rate(1, 0)}
    assert found.publish_rate == Rate(30, 0)
    assert found.inactivity == Inactivity(False, 11)
    assert found.deduplication is None
    assert found.message_bytes_max == 100


def test_options_follow_the_same_order() -> None:
    broker = TopicOptions(producers_max=5, consumers_max=6, subscriptions_max=7)
    found = topic_options(Levels(TOPIC, NAMESPACE, "here"), broker)
    assert (found.producers_max, found.consumers_max, found.subscriptions_max) == (500, 60, 7)
    assert found.subscription_types == {SubType.Failover}
    assert found.encryption_required
    assert topic_options(Levels({}, {}, "here"), broker) == broker


@pytest.mark.parametrize(
    "record",
    [
        {"retention_policies": {"retentionTimeInMinutes": "x"}},
        {"message_ttl_in_seconds": "9"},
        {"backlog_quota_map": {"message_age": {"limitTime": 6}}},
        {"backlog_quota_map": [], "topicDispatchRate": 3, "inactive_topic_policies": None},
    ],
)
def test_values_of_a_wrong_type_count_as_not_set(record: JsonObject) -> None:
    assert topic_policies(Levels({}, record, "here"), CONFIG) == topic_policies(
        Levels({}, {}, "here"), CONFIG
    )


def persistence(ensemble: int, write: int, ack: int, rate: object = 1.5) -> JsonObject:
    return {
        "persistence": {
            "bookkeeperEnsemble": ensemble,
            "bookkeeperWriteQuorum": write,
            "bookkeeperAckQuorum": ack,
            "managedLedgerMaxMarkDeleteRate": rate,
        }
    }


@pytest.mark.parametrize(
    ("topic", "namespace", "found"),
    [
        (None, None, None),
        (None, persistence(3, 2, 1), Persistence(3, 2, 1, 1.5)),
        (persistence(1, 1, 1, 0), persistence(3, 2, 1), Persistence(1, 1, 1, 0.0)),
        (persistence(2, 2, 2, None), None, Persistence(2, 2, 2, 0.0)),
        # What no ledger could be made by counts as not set.
        (None, persistence(1, 2, 1), None),
        (None, persistence(2, 1, 2), None),
        (None, persistence(1, 1, 0), None),
        (None, {"persistence": "3"}, None),
        (None, {"persistence": {}}, None),
    ],
)
def test_persistence(
    topic: JsonObject | None, namespace: JsonObject | None, found: Persistence | None
) -> None:
    assert topic_policies(Levels(topic, namespace, "here"), CONFIG).persistence == found
