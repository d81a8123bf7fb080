"""The policies of Apache Pulsar 4.0.7 (spec BR-60), by the paths of its `Namespaces` and
`PersistentTopics`: `test_forms` and `test_effects` hold the broker to it, docs/POLICIES.md is made
from it.

Values differ between the levels, so that it shows which one holds.
"""

from __future__ import annotations

from compat_tests.policies.model import JSON, Level, Policy

OFFLOADING = "none: there is no tiered storage"


def limit(
    name: str,
    effect: str,
    space: str,
    topic: str = "",
    *,
    keys: tuple[str, ...] = (),
    applied: JSON = None,
    absent: int = 200,
) -> Policy:
    """A number. `applied` and `absent` are those of topics."""
    own = Level(topic, 5, absent=absent, applied=applied) if topic else None
    return Policy(name, effect, Level(space, 3), own, keys or (name,))


def dispatch(messages: int, period: int) -> JSON:
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": 0,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": period,
    }


def rate(name: str, effect: str, *keys: str, period: int = 2, kept: bool = False) -> Policy:
    """A dispatch rate; `period` is the namespace's."""
    return Policy(
        name,
        effect,
        Level(name, dispatch(5, period)),
        Level(name, dispatch(10, 1), applied=dispatch(0, 1)),
        keys,
        kept=kept,
    )


def retention(minutes: int, megabytes: int) -> JSON:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


def quota(size: int, age: int, policy: str) -> JSON:
    return {"limit": size, "limitSize": size, "limitTime": age, "policy": policy}


NO_QUOTA = quota(-1, -1, "producer_request_hold")


def quotas(name: str, effect: str, kind: str, keys: tuple[str, ...]) -> Policy:
    """A backlog quota of one kind."""
    if kind == "message_age":
        values = (quota(0, 100, "producer_exception"), quota(0, 50, "consumer_backlog_eviction"))
    else:
        values = (
            quota(5000, 0, "producer_exception"),
            quota(4000, 0, "consumer_backlog_eviction"),
        )
    setting = f"backlogQuota?backlogQuotaType={kind}"
    none = {"destination_storage": NO_QUOTA, "message_age": NO_QUOTA}
    space, topic = (
        Level("backlogQuotaMap", value, {kind: value}, {}, setting=setting, applied=none)
        for value in values
    )
    return Policy(name, effect, space, topic, (*keys, "backlogQuotaDefaultRetentionPolicy"))


def delayed(tick_ms: int, most_ms: int = 0, *, active: bool = True) -> JSON:
    return {"tickTime": tick_ms, "active": active, "maxDeliveryDelayInMillis": most_ms}


def inactive(seconds: int, mode: str = "delete_when_no_subscriptions") -> JSON:
    return {
        "inactiveTopicDeleteMode": mode,
        "maxInactiveDurationSeconds": seconds,
        "deleteWhileInactive": True,
    }


def copies(rate: float) -> JSON:
    return {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": rate,
    }


def flag(path: str, value: bool, unset: bool) -> Level:
    """A switch of namespaces without a removal: it is set to what it was."""
    return Level(path, value, unset=unset, removal=("POST", path, unset), lasting=True)


LIMITS = (
    limit("maxProducersPerTopic", "another producer is refused",
          "maxProducersPerTopic", "maxProducers", applied=0),
    limit("maxConsumersPerTopic", "another consumer is refused",
          "maxConsumersPerTopic", "maxConsumers", applied=0),
    limit("maxConsumersPerSubscription", "another consumer is refused",
          "maxConsumersPerSubscription", "maxConsumersPerSubscription", absent=204),
    limit("maxSubscriptionsPerTopic", "another subscription is refused",
          "maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", absent=204),
    limit("maxUnackedMessagesPerConsumer",
          "a consumer with so many unacknowledged messages gets no more",
          "maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer", applied=50_000),
    limit("maxUnackedMessagesPerSubscription",
          "a subscription with so many unacknowledged messages gets no more",
          "maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription",
          applied=200_000),
    Policy("maxTopicsPerNamespace", "another topic isn't made",
           Level("maxTopicsPerNamespace", 3, unset=0), keys=("maxTopicsPerNamespace",)),
    Policy("maxMessageSize",
           "a larger message is refused, its metadata (some 40 bytes) counted; those of the "
           "broker's limit anyway",
           topic=Level("maxMessageSize", 500, absent=204)),
)  # fmt: skip
RATES = (
    Policy("publishRate", "producers wait",
           Level("publishRate",
                 {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}),
           Level("publishRate",
                 {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 9999},
                 absent=204),
           ("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes")),
    rate("dispatchRate", "all subscriptions of the topic together wait",
         "dispatchThrottlingRatePerTopicInMsg", "dispatchThrottlingRatePerTopicInByte"),
    rate("subscriptionDispatchRate", "each subscription waits",
         "dispatchThrottlingRatePerSubscriptionInMsg",
         "dispatchThrottlingRatePerSubscriptionInByte", period=0),
    Policy("dispatchRate of one subscription", "this subscription waits",
           topic=Level("s1/dispatchRate", dispatch(9, 4), applied=dispatch(0, 1))),
    Policy("subscribeRate", "a consumer that subscribes more often is refused",
           Level("subscribeRate",
                 {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 20}),
           Level("subscribeRate",
                 {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 30},
                 applied={"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30}),
           ("subscribeThrottlingRatePerConsumer", "subscribeRatePeriodPerConsumerInSecond")),
    rate("replicatorDispatchRate", "none: nothing is copied to other clusters", kept=True),
)  # fmt: skip
LIFE = (
    Policy("messageTTL",
           "older messages count as acknowledged, looked for every five minutes "
           "(`messageExpiryCheckIntervalInMinutes`)",
           Level("messageTTL", 50),
           Level("messageTTL", None, 150, setting="messageTTL?messageTTL=150", applied=0,
                 removal=("DELETE", "messageTTL", None)),
           ("ttlDurationDefaultInSeconds",)),
    Policy("retention", "acknowledged messages are kept so long and so many",
           Level("retention", retention(-1, -1)),
           Level("retention", retention(-1, 1), applied=retention(0, 0)),
           ("defaultRetentionTimeInMinutes", "defaultRetentionSizeInMB")),
    quotas("backlogQuota by size", "producers are closed and refused, or the oldest messages of "
           "the slowest subscription are skipped", "destination_storage",
           ("backlogQuotaDefaultLimitBytes", "backlogQuotaDefaultLimitGB")),
    quotas("backlogQuota by age", "the same", "message_age",
           ("backlogQuotaDefaultLimitSecond",)),
    Policy("subscriptionExpirationTime",
           "durable subscriptions without consumers for so many minutes, restarts of the "
           "broker included, are deleted",
           Level("subscriptionExpirationTime", 10), keys=("subscriptionExpirationTimeMinutes",)),
    Policy("inactiveTopicPolicies", "a topic without clients is deleted",
           Level("inactiveTopicPolicies", inactive(30)),
           Level("inactiveTopicPolicies", inactive(5000, "delete_when_subscriptions_caught_up"),
                 applied=inactive(60)),
           ("brokerDeleteInactiveTopicsEnabled", "brokerDeleteInactiveTopicsMode",
            "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds")),
    Policy("compactionThreshold", "a topic with so many new bytes is compacted",
           Level("compactionThreshold", 1000, verb="PUT"),
           Level("compactionThreshold", 10_000_000, applied=0),
           ("brokerServiceCompactionThresholdInBytes",)),
    Policy("persistence", "ledgers that are made afterwards have so many copies, cursors are "
           "written so often", Level("persistence", copies(20.0)),
           Level("persistence", copies(5.0), applied={
               "bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1,
               "managedLedgerMaxMarkDeleteRate": 1.0}),
           ("managedLedgerDefaultEnsembleSize", "managedLedgerDefaultWriteQuorum",
            "managedLedgerDefaultAckQuorum", "managedLedgerDefaultMarkDeleteRateLimit")),
)  # fmt: skip
CLIENTS = (
    Policy("deduplication", "a message that was published before isn't stored again",
           Level("deduplication", True), Level("deduplicationEnabled", False, applied=False),
           ("brokerDeduplicationEnabled",)),
    Policy("deduplicationSnapshotInterval",
           "so often the producers' last messages are written, in seconds",
           Level("deduplicationSnapshotInterval", 20,
                 removal=("POST", "deduplicationSnapshotInterval", None)),
           Level("deduplicationSnapshotInterval", 60),
           ("brokerDeduplicationSnapshotIntervalSeconds",)),
    Policy("delayedDelivery", "whether messages wait for their time, and for how long at most; "
           "`tickTime` is kept: delivery is exact to the millisecond",
           Level("delayedDelivery", delayed(2000, active=False)),
           Level("delayedDelivery", delayed(3000, 60_000), applied=delayed(1000)),
           ("delayedDeliveryEnabled", "delayedDeliveryMaxDelayInMillis")),
    Policy("subscriptionTypesEnabled", "consumers of other types are refused",
           Level("subscriptionTypesEnabled", ["Shared"], unset=[]),
           Level("subscriptionTypesEnabled", ["Failover"], unset=[], applied=[]),
           ("subscriptionTypesEnabled",)),
    Policy("autoTopicCreation", "whether use makes a topic, and with how many partitions",
           Level("autoTopicCreation", {"allowAutoTopicCreation": False}),
           keys=("allowAutoTopicCreation", "allowAutoTopicCreationType", "defaultNumPartitions")),
    Policy("autoSubscriptionCreation", "whether a consumer makes its subscription",
           Level("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}),
           Level("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": True},
                 applied={"allowAutoSubscriptionCreation": True}),
           ("allowAutoSubscriptionCreation",)),
    Policy("encryptionRequired", "producers that don't encrypt are closed and refused",
           flag("encryptionRequired", True, False), keys=("encryptionRequireOnProducer",)),
    Policy("entryFilters", "installed filters leave entries out; of namespaces and topics with "
           "`allowOverrideEntryFilters`",
           Level("entryFilters", {"entryFilterNames": "f"}),
           Level("entryFilters", {"entryFilterNames": "g"}, applied={"entryFilterNames": ""}),
           ("entryFilterNames",)),
    Policy("dispatcherPauseOnAckStatePersistent",
           "none: all acknowledgements are written, so that nothing has to wait",
           Level("dispatcherPauseOnAckStatePersistent", None, True, False),
           Level("dispatcherPauseOnAckStatePersistent", None, True, False, applied=False),
           kept=True),
)  # fmt: skip
SCHEMAS = (
    Policy("schemaCompatibilityStrategy", "what a new version of a schema must fit",
           Level("schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE", unset="UNDEFINED", verb="PUT",
                 removal=("PUT", "schemaCompatibilityStrategy", "UNDEFINED")),
           Level("schemaCompatibilityStrategy", "ALWAYS_INCOMPATIBLE", verb="PUT",
                 applied="FULL"),
           ("schemaCompatibilityStrategy",)),
    Policy("schemaAutoUpdateCompatibilityStrategy", "the same, by older names",
           Level("schemaAutoUpdateCompatibilityStrategy", "AlwaysCompatible", absent=204,
                 verb="PUT", removal=("PUT", "schemaAutoUpdateCompatibilityStrategy", None))),
    Policy("isAllowAutoUpdateSchema", "whether clients may add schemas",
           flag("isAllowAutoUpdateSchema", False, True), keys=("isAllowAutoUpdateSchemaEnabled",)),
    Policy("schemaValidationEnforced",
           "producers without a schema are refused if the topic has one",
           flag("schemaValidationEnforced", True, False),
           Level("schemaValidationEnforced", False, unset=False, applied=False,
                 removal=("DELETE", "policies", None)),
           ("isSchemaValidationEnforced",)),
)  # fmt: skip
PLACES = (
    Policy("subscriptionAuthMode", "`Prefix`: names of subscriptions begin with the role",
           Level("subscriptionAuthMode", "Prefix", unset="None",
                 removal=("POST", "subscriptionAuthMode", "None")),
           shown_by="geminga_broker/authz/_tests/test_revocation.py"),
    Policy("permissions", "who may produce, consume and administer",
           Level("permissions", ["produce"], {"r": ["produce"]}, {}, setting="permissions/r"),
           Level("permissions"),
           shown_by="geminga_broker/authz/_tests/test_revocation.py"),
    Policy("antiAffinity", "namespaces of a group are on different brokers, if there are enough",
           Level("antiAffinity"), shown_by="geminga_broker/loadbalance/_tests"),
    Policy("persistence/bookieAffinity", "on which bookies ledgers are made",
           Level("persistence/bookieAffinity",
                 {"bookkeeperAffinityGroupPrimary": "default",
                  "bookkeeperAffinityGroupSecondary": "default"}, absent=204),
           shown_by="compat_tests/apache/test_bookie_affinity.py"),
    Policy("properties", "none: texts of the users", Level(
        "properties", {"a": "b"}, unset={}, verb="PUT"), Level("properties"), kept=True),
    Policy("replication", "to other clusters: refused (501)",
           Level("replication", ["standalone"], unset=["standalone"], done=200,
                 removal=("POST", "replication", ["standalone"])),
           Level("replication", ["standalone"], applied=["standalone"]), refused=True),
    Policy("allowedClusters", "none: clusters that the namespace may be copied to",
           Level("allowedClusters"), kept=True),
    Policy("shadowTopics", "refused (501)", topic=Level("shadowTopics"), refused=True),
    Policy("migration", "refused (501)", Level("migration"), refused=True),
    Policy("resourcegroup", "none: its rates are not enforced", Level("resourcegroup"), kept=True),
    Policy("offloadPolicies", OFFLOADING, Level("offloadPolicies"), Level("offloadPolicies"),
           kept=True),
    Policy("offloadThreshold", OFFLOADING,
           Level("offloadThreshold", 1000, unset=-1, verb="PUT",
                 removal=("DELETE", "removeOffloadPolicies", None)), kept=True),
    Policy("offloadThresholdInSeconds", OFFLOADING,
           Level("offloadThresholdInSeconds", 20, unset=-1, verb="PUT", done=200,
                 removal=("DELETE", "removeOffloadPolicies", None)), kept=True),
    Policy("offloadDeletionLagMs", OFFLOADING,
           Level("offloadDeletionLagMs", 30, verb="PUT"), kept=True),
)  # fmt: skip
POLICIES = (*LIMITS, *RATES, *LIFE, *CLIENTS, *SCHEMAS, *PLACES)
"""All, in the order of the documents."""
_OTHERS = """
backlogQuota bundles clearBacklog clearBacklog/{} unload unsubscribe/{} topics
permissions/subscription permissions/{} permissions/subscription/{} permissions/{}/{}
removeOffloadPolicies scanOffloadedLedgers resourcegroup/{} property/{} property/{}/{}
partitions createMissedPartitions terminate terminate/partitions trim truncate offload
compaction messageid/{} backlogSize policies partitioned internal-info internalStats
lastMessageId partitioned-internalStats partitioned-stats stats subscriptions backlog
examinemessage ledger/{}/entry/{}
"""
ACTIONS = frozenset(_OTHERS.split())
"""Ends of paths of a namespace or topic that are no policies, or belong to one of the table."""
