"""The Avro schema of the messages in `__change_events`, to the byte as Apache's brokers register it
(`PulsarEvent`, `TopicPoliciesEvent`, `TopicPolicies`): schemas of one text have one version.

A text is what Java's Avro makes of a class: fields by their names, objects with a null branch,
primitive ones without, a namespace where it differs from the enclosing one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from geminga_broker.cluster.records import JsonObject

_DATA = "org.apache.pulsar.common.policies.data"
_IMPL = f"{_DATA}.impl"

Type = str | JsonObject


def _record(name: str, fields: dict[str, object], namespace: str | None = None) -> JsonObject:
    return {
        **_named("record", name, namespace),
        "fields": [_field(each, kind) for each, kind in fields.items()],
    }


def _enum(name: str, symbols: str, namespace: str | None = None) -> JsonObject:
    return {**_named("enum", name, namespace), "symbols": symbols.split()}


def _named(kind: str, name: str, namespace: str | None) -> JsonObject:
    return {"type": kind, "name": name, **({"namespace": namespace} if namespace else {})}


def _field(name: str, kind: object) -> JsonObject:
    """A list of one type is nullable, with null as default."""
    if isinstance(kind, list):
        return {"name": name, "type": ["null", *kind], "default": None}
    return {"name": name, "type": kind}


def _list_of(items: Type, java_class: str = "java.util.List") -> JsonObject:
    return {"type": "array", "items": items, "java-class": java_class}


_TEXT: Final = ["string"]
_INT: Final = ["int"]
_LONG: Final = ["long"]
_BOOL: Final = ["boolean"]
_RATE: Final = [f"{_IMPL}.DispatchRateImpl"]
"""After its first use, which defines it."""

_BACKLOG_QUOTA = _record(
    "BacklogQuotaImpl",
    {
        "limit": "long",
        "limitSize": _LONG,
        "limitTime": "int",
        "policy": [
            _enum(
                "RetentionPolicy",
                "producer_request_hold producer_exception consumer_backlog_eviction",
                f"{_DATA}.BacklogQuota",
            )
        ],
    },
    _IMPL,
)
_DISPATCH_RATE = _record(
    "DispatchRateImpl",
    {
        "dispatchThrottlingRateInByte": "long",
        "dispatchThrottlingRateInMsg": "int",
        "ratePeriodInSecond": "int",
        "relativeToPublishRate": "boolean",
    },
    _IMPL,
)
_INACTIVE = _record(
    "InactiveTopicPolicies",
    {
        "deleteWhileInactive": "boolean",
        "inactiveTopicDeleteMode": [
            _enum(
                "InactiveTopicDeleteMode",
                "delete_when_no_subscriptions delete_when_subscriptions_caught_up",
            )
        ],
        "maxInactiveDurationSeconds": "int",
    },
)
_OFFLOAD = _record(
    "OffloadPoliciesImpl",
    {
        "fileSystemProfilePath": _TEXT,
        "fileSystemURI": _TEXT,
        "gcsManagedLedgerOffloadBucket": _TEXT,
        "gcsManagedLedgerOffloadMaxBlockSizeInBytes": _INT,
        "gcsManagedLedgerOffloadReadBufferSizeInBytes": _INT,
        "gcsManagedLedgerOffloadRegion": _TEXT,
        "gcsManagedLedgerOffloadServiceAccountKeyFile": _TEXT,
        "managedLedgerExtraConfigurations": [{"type": "map", "values": "string"}],
        "managedLedgerOffloadBucket": _TEXT,
        "managedLedgerOffloadDeletionLagInMillis": _LONG,
        "managedLedgerOffloadDriver": _TEXT,
        "managedLedgerOffloadMaxBlockSizeInBytes": _INT,
        "managedLedgerOffloadMaxThreads": _INT,
        "managedLedgerOffloadPrefetchRounds": _INT,
        "managedLedgerOffloadReadBufferSizeInBytes": _INT,
        "managedLedgerOffloadRegion": _TEXT,
        "managedLedgerOffloadServiceEndpoint": _TEXT,
        "managedLedgerOffloadThresholdInBytes": _LONG,
        "managedLedgerOffloadThresholdInSeconds": _LONG,
        "managedLedgerOffloadedReadPriority": [
            _enum("OffloadedReadPriority", "BOOKKEEPER_FIRST TIERED_STORAGE_FIRST")
        ],
        "offloadersDirectory": _TEXT,
        "s3ManagedLedgerOffloadBucket": _TEXT,
        "s3ManagedLedgerOffloadCredentialId": _TEXT,
        "s3ManagedLedgerOffloadCredentialSecret": _TEXT,
        "s3ManagedLedgerOffloadMaxBlockSizeInBytes": _INT,
        "s3ManagedLedgerOffloadReadBufferSizeInBytes": _INT,
        "s3ManagedLedgerOffloadRegion": _TEXT,
        "s3ManagedLedgerOffloadRole": _TEXT,
        "s3ManagedLedgerOffloadRoleSessionName": _TEXT,
        "s3ManagedLedgerOffloadServiceEndpoint": _TEXT,
    },
)
_PERSISTENCE = _record(
    "PersistencePolicies",
    {
        "bookkeeperAckQuorum": "int",
        "bookkeeperEnsemble": "int",
        "bookkeeperWriteQuorum": "int",
        "managedLedgerMaxMarkDeleteRate": "double",
        "managedLedgerStorageClassName": _TEXT,
    },
)
_COMPATIBILITY = _enum(
    "SchemaCompatibilityStrategy",
    "UNDEFINED ALWAYS_INCOMPATIBLE ALWAYS_COMPATIBLE BACKWARD FORWARD FULL "
    "BACKWARD_TRANSITIVE FORWARD_TRANSITIVE FULL_TRANSITIVE",
)
_SUBSCRIPTION_TYPE = _enum(
    "SubType",
    "Exclusive Shared Failover Key_Shared",
    "org.apache.pulsar.common.api.proto.CommandSubscribe",
)

TOPIC_POLICIES: Final = _record(
    "TopicPolicies",
    {
        "autoSubscriptionCreationOverride": [
            _record(
                "AutoSubscriptionCreationOverrideImpl",
                {"allowAutoSubscriptionCreation": "boolean"},
                _IMPL,
            )
        ],
        "backLogQuotaMap": [{"type": "map", "values": _BACKLOG_QUOTA}],
        "compactionThreshold": _LONG,
        "deduplicationEnabled": _BOOL,
        "deduplicationSnapshotIntervalSeconds": _INT,
        "delayedDeliveryEnabled": _BOOL,
        "delayedDeliveryMaxDelayInMillis": _LONG,
        "delayedDeliveryTickTimeMillis": _LONG,
        "dispatchRate": [_DISPATCH_RATE],
        "dispatcherPauseOnAckStatePersistentEnabled": _BOOL,
        "entryFilters": [_record("EntryFilters", {"entryFilterNames": _TEXT})],
        "inactiveTopicPolicies": [_INACTIVE],
        "isGlobal": _BOOL,
        "maxConsumerPerTopic": _INT,
        "maxConsumersPerSubscription": _INT,
        "maxMessageSize": _INT,
        "maxProducerPerTopic": _INT,
        "maxSubscriptionsPerTopic": _INT,
        "maxUnackedMessagesOnConsumer": _INT,
        "maxUnackedMessagesOnSubscription": _INT,
        "messageTTLInSeconds": _INT,
        "offloadPolicies": [_OFFLOAD],
        "persistence": [_PERSISTENCE],
        "publishRate": [
            _record(
                "PublishRate",
                {"publishThrottlingRateInByte": "long", "publishThrottlingRateInMsg": "int"},
            )
        ],
        "replicationClusters": [_list_of("string")],
        "replicatorDispatchRate": _RATE,
        "retentionPolicies": [
            _record(
                "RetentionPolicies",
                {"retentionSizeInMB": "long", "retentionTimeInMinutes": "int"},
            )
        ],
        "schemaCompatibilityStrategy": [_COMPATIBILITY],
        "schemaValidationEnforced": _BOOL,
        "shadowTopics": [_list_of("string")],
        "subscribeRate": [
            _record(
                "SubscribeRate",
                {"ratePeriodInSecond": "int", "subscribeThrottlingRatePerConsumer": "int"},
            )
        ],
        "subscriptionDispatchRate": _RATE,
        "subscriptionPolicies": [
            {"type": "map", "values": _record("SubscriptionPolicies", {"dispatchRate": _RATE})}
        ],
        "subscriptionTypesEnabled": [_list_of(_SUBSCRIPTION_TYPE)],
    },
    _DATA,
)

EVENT: Final = _record(
    "PulsarEvent",
    {
        "actionType": [_enum("ActionType", "INSERT DELETE UPDATE NONE")],
        "eventType": [
            _enum(
                "EventType",
                "TOPIC_POLICY TRANSACTION_BUFFER_SNAPSHOT TRANSACTION_BUFFER_SNAPSHOT_SEGMENTS "
                "TRANSACTION_BUFFER_SNAPSHOT_INDEXES",
            )
        ],
        "replicateTo": [_list_of("string", "java.util.HashSet")],
        "topicPoliciesEvent": [
            _record(
                "TopicPoliciesEvent",
                {
                    "domain": _TEXT,
                    "namespace": _TEXT,
                    "policies": [TOPIC_POLICIES],
                    "tenant": _TEXT,
                    "topic": _TEXT,
                },
            )
        ],
    },
    "org.apache.pulsar.common.events",
)

EVENT_TEXT: Final = msgspec.json.encode(EVENT)
PROPERTIES: Final = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}
"""What Java's schema has beside its text."""
