"""Calls of the admin API and what Apache Pulsar 4.0.7 answers, in the order in which they are made.

`{t}` in a path or body is a tenant made for the run. An expected body is compared whole when it is
JSON; `KEYS(...)` asks
only for the names of its fields, `ANY` for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from compat_tests.clients import policy_calls


@dataclass(frozen=True)
class Keys:
    """The answer is an object with exactly these fields."""

    names: frozenset[str]


@dataclass(frozen=True)
class Members:
    """A list in any order: Apache's brokers answer sets as they are hashed."""

    names: list[str]


@dataclass(frozen=True)
class Text:
    """The answer is this text itself, though its type says JSON."""

    text: str


ANY = policy_calls.ANY
EMPTY = ""


def keys(text: str) -> Keys:
    return Keys(frozenset(text.split()))


def reason(text: str) -> dict[str, str]:
    return {"reason": text}


def ended(ledger_entries: int = 0) -> Keys:
    del ledger_entries
    return keys("ledgerId entryId partitionIndex batchIndex batchSize")


TENANT_INFO = '{"adminRoles":["a"],"allowedClusters":["standalone"]}'
T = "/admin/v2/persistent/{t}/n1"
OPEN = "/admin/v2/non-persistent/{t}/n1"
OPEN_EXPIRY = reason("Expire messages on a non-persistent topic is not allowed")

STATS = keys(
    "msgRateIn msgThroughputIn msgRateOut msgThroughputOut bytesInCounter msgInCounter "
    "systemTopicBytesInCounter bytesOutCounter msgOutCounter bytesOutInternalCounter "
    "averageMsgSize msgChunkPublished storageSize backlogSize backlogQuotaLimitSize "
    "backlogQuotaLimitTime "
    "oldestBacklogMessageAgeSeconds publishRateLimitedTimes earliestMsgPublishTimeInBacklogs "
    "offloadedStorageSize lastOffloadLedgerId lastOffloadSuccessTimeStamp "
    "lastOffloadFailureTimeStamp ongoingTxnCount abortedTxnCount committedTxnCount publishers "
    "waitingPublishers subscriptions replication deduplicationStatus "
    "nonContiguousDeletedMessagesRanges nonContiguousDeletedMessagesRangesSerializedSize "
    "delayedMessageIndexSizeInBytes compaction ownerBroker"
)
PARTITIONED_STATS = Keys(
    STATS.names - {"ownerBroker", "deduplicationStatus"} | {"metadata", "partitions"}
)
INTERNAL_STATS = keys(
    "entriesAddedCounter numberOfEntries totalSize currentLedgerEntries currentLedgerSize "
    "lastLedgerCreatedTimestamp waitingCursorsCount pendingAddEntriesCount lastConfirmedEntry "
    "state ledgers cursors schemaLedgers compactedLedger"
)

NO_LOG: dict[str, object] = {
    **dict.fromkeys(
        (
            *("entriesAddedCounter", "numberOfEntries", "totalSize", "currentLedgerEntries"),
            *("currentLedgerSize", "waitingCursorsCount", "pendingAddEntriesCount"),
        ),
        0,
    ),
    "cursors": {},
}

# method, path, body, status, expected body
CALLS: list[tuple[str, str, str | None, int, object]] = [
    ("GET", "/admin/v2/clusters", None, 200, ["standalone"]),
    ("GET", "/admin/v2/clusters/standalone", None, 200, keys(
        "serviceUrl brokerServiceUrl brokerClientTlsEnabled tlsAllowInsecureConnection "
        "brokerClientTlsEnabledWithKeyStore brokerClientTlsTrustStoreType "
        "brokerClientTlsKeyStoreType brokerClientSslFactoryPlugin")),
    ("GET", "/admin/v2/clusters/nope", None, 404, reason("Cluster does not exist")),
    ("PUT", "/admin/v2/clusters/{t}c", '{"serviceUrl":"http://x:8080"}', 200, EMPTY),
    ("PUT", "/admin/v2/clusters/{t}c", '{"serviceUrl":"http://x:8080"}', 409,
     reason("Cluster already exists")),
    ("POST", "/admin/v2/clusters/{t}c", '{"serviceUrl":"http://y:8080"}', 200, EMPTY),
    ("DELETE", "/admin/v2/clusters/{t}c", None, 204, EMPTY),
    ("DELETE", "/admin/v2/clusters/{t}c", None, 404, reason("Cluster does not exist")),
    ("GET", "/admin/v2/tenants/public", None, 200,
     {"adminRoles": [], "allowedClusters": ["standalone"]}),
    ("GET", "/admin/v2/tenants/nope", None, 404, reason("Tenant does not exist")),
    ("PUT", "/admin/v2/tenants/{t}", TENANT_INFO, 204, EMPTY),
    ("PUT", "/admin/v2/tenants/{t}", TENANT_INFO, 409, reason("Tenant already exist")),
    ("PUT", "/admin/v2/tenants/{t}2", '{"adminRoles":["a"],"allowedClusters":["none"]}', 412,
     reason("Clusters do not exist")),
    ("PUT", "/admin/v2/tenants/{t}2", '{"adminRoles":["a"]}', 412,
     reason("Clusters cannot be null")),
    ("PUT", "/admin/v2/tenants/{t}2", None, 412, reason("TenantInfo is null")),
    ("POST", "/admin/v2/tenants/{t}", TENANT_INFO.replace('"a"', '"b"'), 204, EMPTY),
    ("GET", "/admin/v2/tenants/{t}", None, 200,
     {"adminRoles": ["b"], "allowedClusters": ["standalone"]}),
    ("POST", "/admin/v2/tenants/nope", TENANT_INFO, 404, reason("Tenant nope not found")),
    ("PUT", "/admin/v2/tenants/bad@name", TENANT_INFO, 412, reason("Tenant name is not valid")),
    ("GET", "/admin/v2/namespaces/nope", None, 404, reason("Tenant not found")),
    ("GET", "/admin/v2/namespaces/{t}", None, 200, []),
    ("PUT", "/admin/v2/namespaces/{t}/n1", None, 204, EMPTY),
    ("GET", "/admin/v2/namespaces/{t}", None, 200, ["{t}/n1"]),
    ("PUT", "/admin/v2/namespaces/{t}/n1", None, 409, reason("Namespace already exists")),
    ("PUT", "/admin/v2/namespaces/nope/n1", None, 404, reason("Tenant does not exist")),
    ("PUT", "/admin/v2/namespaces/{t}/n2", '{"bundles":{"numBundles":8}}', 204, EMPTY),
    ("GET", "/admin/v2/namespaces/{t}/n1", None, 200, {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {},
                          "subscription_auth_roles": {}},
        "replication_clusters": ["standalone"], "allowed_clusters": [],
        "bundles": {"boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000",
                                   "0xffffffff"], "numBundles": 4},
        "backlog_quota_map": {}, "clusterDispatchRate": {}, "topicDispatchRate": {},
        "subscriptionDispatchRate": {}, "replicatorDispatchRate": {}, "clusterSubscribeRate": {},
        "publishMaxMessageRate": {}, "latency_stats_sample_rate": {}, "deleted": False,
        "encryption_required": False, "subscription_auth_mode": "None", "offload_threshold": -1,
        "offload_threshold_in_seconds": -1, "schema_compatibility_strategy": "UNDEFINED",
        "is_allow_auto_update_schema": True, "schema_validation_enforced": False,
        "subscription_types_enabled": [], "properties": {}, "migrated": False}),
    ("GET", "/admin/v2/namespaces/{t}/nope", None, 404, reason("Namespace does not exist")),
    ("GET", "/admin/v2/namespaces/{t}/n2/bundles", None, 200, {
        "boundaries": ["0x00000000", "0x20000000", "0x40000000", "0x60000000", "0x80000000",
                       "0xa0000000", "0xc0000000", "0xe0000000", "0xffffffff"],
        "numBundles": 8}),
    ("GET", "/admin/v2/namespaces/{t}/n1/topics", None, 200, []),
    ("GET", "/admin/v2/namespaces/{t}/nope/topics", None, 404,
     reason("Namespace does not exist")),
    ("GET", T, None, 200, []),
    ("PUT", T + "/a", None, 204, EMPTY),
    ("PUT", T + "/a", None, 409, reason("This topic already exists")),
    ("PUT", "/admin/v2/persistent/{t}/nope/a", None, 404, reason("Namespace not found")),
    ("PUT", T + "/p/partitions", "3", 204, EMPTY),
    ("PUT", T + "/p/partitions", "3", 409, reason("This topic already exists")),
    ("PUT", T + "/a/partitions", "3", 409, reason("This topic already exists")),
    ("PUT", T + "/q/partitions", "0", 406, reason("Number of partitions should be more than 0")),
    ("PUT", T + "/q/partitions", '"x"', 400, ANY),
    ("PUT", T + "/q-partition-0/partitions", "2", 412,
     reason("Partitioned Topic Name should not contain '-partition-'")),
    ("PUT", T + "/q-partition-0", None, 412,
     reason("Can't create topic q-partition-0 with \"-partition-\" followed by numeric value if "
            "there isn't a partitioned topic q created.")),
    ("GET", T + "/p/partitions", None, 200, {"partitions": 3, "deleted": False}),
    ("GET", T + "/a/partitions", None, 200, {"partitions": 0, "deleted": False}),
    ("GET", T + "/nope/partitions", None, 404,
     reason("Topic persistent://{t}/n1/nope not found")),
    ("POST", T + "/p/partitions", "5", 204, EMPTY),
    ("POST", T + "/p/partitions", "2", 422,
     reason("Desired partitions 2 can't be less than the current partitions 5.")),
    ("POST", T + "/a/partitions", "2", 409,
     reason("Topic persistent://{t}/n1/a is not the partitioned topic.")),
    ("GET", T, None, 200, ["persistent://{t}/n1/a", *(
        f"persistent://{{t}}/n1/p-partition-{i}" for i in range(5))]),
    ("GET", T + "/partitioned", None, 200, ["persistent://{t}/n1/p"]),
    ("GET", T + "/a/stats", None, 200, STATS),
    ("GET", T + "/nope/stats", None, 404, reason("Topic persistent://{t}/n1/nope not found")),
    ("GET", T + "/p/stats", None, 404, reason("Topic persistent://{t}/n1/p not found")),
    ("GET", T + "/a/internalStats", None, 200, INTERNAL_STATS),
    ("GET", T + "/p/partitioned-stats", None, 200, PARTITIONED_STATS),
    ("GET", T + "/p/partitioned-internalStats", None, 200, keys("metadata partitions")),
    ("GET", T + "/a/partitioned-stats", None, 404,
     reason("Partitioned Topic persistent://{t}/n1/a not found")),
    ("GET", T + "/a/subscriptions", None, 200, []),
    ("PUT", T + "/a/subscription/s1", None, 204, EMPTY),
    ("PUT", T + "/a/subscription/s1", None, 409, reason("Subscription already exists for topic")),
    ("GET", T + "/a/subscriptions", None, 200, ["s1"]),
    ("GET", T + "/a/lastMessageId", None, 200, ended()),
    ("GET", T + "/a/subscription/s1/properties", None, 200, {}),
    ("PUT", T + "/a/subscription/s1/properties", '{"a":"b"}', 204, EMPTY),
    ("GET", T + "/a/subscription/s1/properties", None, 200, {"a": "b"}),
    ("PUT", T + "/a/subscription/s1/properties", None, 204, EMPTY),
    ("GET", T + "/a/subscription/s1/properties", None, 200, {}),
    ("GET", T + "/a/subscription/nope/properties", None, 404,
     reason("Subscription nope not found for topic persistent://{t}/n1/a")),
    ("PUT", T + "/a/subscription/nope/properties", "{}", 404,
     reason("Subscription nope not found for topic persistent://{t}/n1/a")),
    ("PUT", T.replace("persistent", "non-persistent") + "/new1/subscription/keep", None, 400,
     reason("Create subscription on non-persistent topic can only be done through client")),
    ("PUT", T + "/new1/subscription/keep", None, 204, EMPTY),
    ("GET", T + "/new1/subscriptions", None, 200, ["keep"]),
    ("DELETE", T + "/new1/subscription/keep", None, 204, EMPTY),
    ("DELETE", T + "/new1", None, 204, EMPTY),
    ("PUT", T + "/new2/subscription/keep", '"latest"', 204, EMPTY),
    ("DELETE", T + "/new2/subscription/keep", None, 204, EMPTY),
    ("DELETE", T + "/new2", None, 204, EMPTY),
    ("PUT", T + "/p-partition-9/subscription/s2", None, 412,
     reason("Topic does not exist and cannot be auto-created")),
    ("PUT", "/admin/v2/persistent/{t}/nope/a/subscription/s2", None, 404,
     reason("Namespace not found")),
    ("PUT", T + "/p/subscription/s2", None, 204, EMPTY),
    ("PUT", T + "/p/subscription/s2/properties", '{"c":"d"}', 204, EMPTY),
    ("GET", T + "/p/subscription/s2/properties", None, 200, {"c": "d"}),
    ("POST", T + "/a/subscription/s1/skip_all", None, 204, EMPTY),
    ("POST", T + "/a/subscription/nope/skip_all", None, 404,
     reason("Subscription nope not found for topic persistent://{t}/n1/a")),
    ("POST", T + "/a/subscription/s1/resetcursor/1000", None, 204, EMPTY),
    ("POST", T + "/a/subscription/s1/skip/3", None, 204, EMPTY),
    ("POST", T + "/a/subscription/s1/skip/-1", None, 204, EMPTY),
    ("POST", T + "/a/subscription/s1/skip/99999999999", None, 404, ANY),
    ("POST", T + "/a/subscription/s1/expireMessages/30", None, 409, ANY),
    ("POST", T + "/a/subscription/s1/expireMessages/99999999999", None, 404, ANY),
    ("PUT", OPEN + "/o", None, 204, EMPTY),
    ("GET", OPEN + "/o/internalStats", None, 200, NO_LOG),
    ("POST", OPEN + "/o/subscription/nope/expireMessages/1", None, 405, OPEN_EXPIRY),
    ("DELETE", OPEN + "/o", None, 204, EMPTY),
    ("POST", OPEN + "/o/subscription/nope/expireMessages/1", None, 404,
     reason("Topic non-persistent://{t}/n1/o not found")),
    ("PUT", OPEN + "/op/partitions", "2", 204, EMPTY),
    ("POST", OPEN + "/op/subscription/nope/expireMessages/1", None, 405, OPEN_EXPIRY),
    ("DELETE", OPEN + "/op/partitions", None, 204, EMPTY),
    ("DELETE", T + "/a/subscription/s1", None, 204, EMPTY),
    ("DELETE", T + "/a/subscription/s1", None, 404,
     reason("Subscription s1 not found for topic persistent://{t}/n1/a")),
    ("PUT", T + "/a/unload", None, 204, EMPTY),
    ("PUT", T + "/nope/unload", None, 404, reason("Topic persistent://{t}/n1/nope not found")),
    ("POST", T + "/a/terminate", None, 200, ended()),
    ("POST", T + "/a/terminate", None, 200, ended()),
    ("POST", T + "/nope/terminate", None, 404, reason("Topic persistent://{t}/n1/nope not found")),
    ("POST", T + "/p/terminate", None, 405,
     reason("Termination of a partitioned topic is not allowed")),
    ("POST", T + "/p/terminate/partitions", None, 200, keys("0 1 2 3 4")),
    ("DELETE", T + "/p", None, 409,
     reason("persistent://{t}/n1/p is a partitioned topic, instead of calling delete topic, please "
            "call delete-partitioned-topic.")),
    ("DELETE", T + "/p/partitions", None, 204, EMPTY),
    ("DELETE", T + "/p/partitions", None, 404, reason("Topic persistent://{t}/n1/p not found.")),
    ("DELETE", T + "/a", None, 204, EMPTY),
    ("DELETE", T + "/a", None, 404, reason("Topic persistent://{t}/n1/a not found")),
    ("PUT", "/admin/v2/namespaces/{t}/n1/unload", None, 204, EMPTY),
    *policy_calls.CALLS,
    ("GET", "/lookup/v2/topic/persistent/{t}/n1/a", None, 200,
     keys("brokerUrl httpUrl nativeUrl brokerUrlSsl")),
    ("GET", "/lookup/v2/topic/persistent/{t}/nope/a", None, 404, reason("Namespace not found")),
    ("GET", "/lookup/v2/topic/persistent/public/default/a/bundle", None, 200, ANY),
    ("DELETE", "/admin/v2/tenants/{t}", None, 409,
     reason("The tenant still has active namespaces")),
    ("DELETE", "/admin/v2/namespaces/{t}/n2", None, 204, EMPTY),
    ("DELETE", "/admin/v2/namespaces/{t}/n1?force=true", None, 405,
     reason("Broker doesn't allow forced deletion of namespaces")),
    ("DELETE", "/admin/v2/namespaces/{t}/n1", None, 204, EMPTY),
    ("DELETE", "/admin/v2/namespaces/{t}/n2", None, 404,
     reason("Namespace {t}/n2 does not exist.")),
    ("DELETE", "/admin/v2/tenants/{t}", None, 204, EMPTY),
    ("DELETE", "/admin/v2/tenants/{t}", None, 404, reason("Tenant doesn't exist")),
    ("GET", "/admin/v2/brokers/health", None, 200, ANY),
    ("GET", "/admin/v2/brokers/leaderBroker", None, 200, keys("serviceUrl brokerId")),
    ("GET", "/admin/v2/brokers/ready", None, 200, ANY),
    ("GET", "/admin/v2/nothing", None, 404, ANY),
    ("POST", "/admin/v2/clusters", None, 405, ANY),
    ("GET", "/metrics", None, 302, ANY),
    ("GET", "/metrics/", None, 200, ANY),
]  # fmt: skip
