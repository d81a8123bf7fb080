"""The right that each REST call needs, recorded from Apache Pulsar 4.0.

A route without a rule is for superusers; a test checks that there is none.
"""

from __future__ import annotations

from geminga_broker.authz.needs import Need, Scope

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_PRODUCE = "/topics/{0}/{{tenant}}/{{namespace}}/{{topic}}"
_TOPIC_BASES = tuple(
    f"/admin/v2/{domain}/{{tenant}}/{{namespace}}" for domain in ("persistent", "non-persistent")
)
_ISOLATION = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies"
_QUOTA = "/admin/v2/resource-quotas/{tenant}/{namespace}/{bundle}"

PLAIN: dict[str, Need] = {
    "GET /metrics": Need(Scope.PUBLIC),
    "GET /metrics/": Need(Scope.PUBLIC),
    "GET /status.html": Need(Scope.PUBLIC),
    **{
        f"POST {_PRODUCE.format(domain)}{rest}": Need(Scope.TOPIC, "PRODUCE")
        for domain in ("persistent", "non-persistent")
        for rest in ("", "/partitions/{partition}")
    },
    **{
        f"GET /admin/v2/{name}.json": Need(Scope.ROLE)
        for name in ("openapi", "swagger", "swaggerlookup", "swaggertransactions")
    },
    "GET /admin/v2/clusters": Need(Scope.ROLE),
    "GET /admin/v2/clusters/{cluster}": Need(Scope.CLUSTER, "GET_CLUSTER"),
    "PUT /admin/v2/clusters/{cluster}": Need(Scope.CLUSTER, "CREATE_CLUSTER"),
    "POST /admin/v2/clusters/{cluster}": Need(Scope.CLUSTER, "UPDATE_CLUSTER"),
    "DELETE /admin/v2/clusters/{cluster}": Need(Scope.CLUSTER, "DELETE_CLUSTER"),
    "GET /admin/v2/clusters/{cluster}/migrate": Need(Scope.CLUSTER, "READ", "CLUSTER_MIGRATION"),
    "POST /admin/v2/clusters/{cluster}/migrate": Need(Scope.CLUSTER, "WRITE", "CLUSTER_MIGRATION"),
    "GET /admin/v2/clusters/{cluster}/peers": Need(Scope.CLUSTER, "GET_PEER_CLUSTER"),
    "POST /admin/v2/clusters/{cluster}/peers": Need(Scope.CLUSTER, "UPDATE_PEER_CLUSTER"),
    "GET /admin/v2/clusters/{cluster}/failureDomains": Need(Scope.CLUSTER, "GET_FAILURE_DOMAIN"),
    "GET /admin/v2/clusters/{cluster}/failureDomains/{domain}": Need(
        Scope.CLUSTER, "GET_FAILURE_DOMAIN"
    ),
    "POST /admin/v2/clusters/{cluster}/failureDomains/{domain}": Need(
        Scope.CLUSTER, "UPDATE_FAILURE_DOMAIN"
    ),
    "DELETE /admin/v2/clusters/{cluster}/failureDomains/{domain}": Need(
        Scope.CLUSTER, "DELETE_FAILURE_DOMAIN"
    ),
    f"GET {_ISOLATION}": Need(Scope.CLUSTER, "READ", "NAMESPACE_ISOLATION"),
    f"GET {_ISOLATION}/brokers": Need(Scope.CLUSTER, "READ", "NAMESPACE_ISOLATION"),
    f"GET {_ISOLATION}/brokers/{{broker}}": Need(Scope.CLUSTER, "READ", "NAMESPACE_ISOLATION"),
    f"GET {_ISOLATION}/{{policy}}": Need(Scope.CLUSTER, "READ", "NAMESPACE_ISOLATION"),
    f"POST {_ISOLATION}/{{policy}}": Need(Scope.CLUSTER, "WRITE", "NAMESPACE_ISOLATION"),
    f"DELETE {_ISOLATION}/{{policy}}": Need(Scope.CLUSTER, "WRITE", "NAMESPACE_ISOLATION"),
    # Apache's broker fails here with a null pointer if authorization is on.
    "GET /admin/v2/namespaces/{cluster}/antiAffinity/{group}": Need(Scope.SUPER_USER),
    "GET /admin/namespaces/{cluster}/antiAffinity/{group}": Need(Scope.SUPER_USER),
    "GET /admin/namespaces/{tenant}/{cluster}": Need(Scope.TENANT, "LIST_NAMESPACES"),
    "GET /admin/v2/resource-quotas": Need(Scope.SUPER_USER),
    "POST /admin/v2/resource-quotas": Need(Scope.SUPER_USER),
    f"GET {_QUOTA}": Need(Scope.SUPER_USER),
    f"POST {_QUOTA}": Need(Scope.SUPER_USER),
    f"DELETE {_QUOTA}": Need(Scope.SUPER_USER),
    "GET /admin/v2/tenants": Need(Scope.TENANT, "LIST_TENANTS"),
    "GET /admin/v2/tenants/{tenant}": Need(Scope.TENANT, "GET_TENANT"),
    "PUT /admin/v2/tenants/{tenant}": Need(Scope.TENANT, "CREATE_TENANT"),
    "POST /admin/v2/tenants/{tenant}": Need(Scope.TENANT, "UPDATE_TENANT"),
    "DELETE /admin/v2/tenants/{tenant}": Need(Scope.TENANT, "DELETE_TENANT"),
    # The tenant is in the body.
    "POST /admin/v2/namespaces/grantPermissionsOnTopics": Need(Scope.ROLE),
    "POST /admin/v2/namespaces/revokePermissionsOnTopics": Need(Scope.ROLE),
    "GET /admin/v2/namespaces/{tenant}": Need(Scope.TENANT, "LIST_NAMESPACES"),
    "GET /admin/v2/bookies/all": Need(Scope.SUPER_USER),
    "GET /admin/v2/bookies/space": Need(Scope.SUPER_USER),
    "GET /admin/v2/bookies/racks-info": Need(Scope.SUPER_USER),
    "GET /admin/v2/bookies/racks-info/{bookie}": Need(Scope.SUPER_USER),
    "POST /admin/v2/bookies/racks-info/{bookie}": Need(Scope.SUPER_USER),
    "DELETE /admin/v2/bookies/racks-info/{bookie}": Need(Scope.SUPER_USER),
    "GET /admin/v2/brokers": Need(Scope.BROKER, "LIST_BROKERS"),
    "GET /admin/v2/brokers/{cluster}": Need(Scope.BROKER, "LIST_BROKERS"),
    "GET /admin/v2/brokers/health": Need(Scope.BROKER, "HEALTH_CHECK"),
    "GET /admin/v2/brokers/ready": Need(Scope.ROLE),
    "GET /admin/v2/brokers/version": Need(Scope.ROLE),
    "GET /admin/v2/brokers/leaderBroker": Need(Scope.BROKER, "GET_LEADER_BROKER"),
    "GET /admin/v2/brokers/{cluster}/{broker}/ownedNamespaces": Need(
        Scope.BROKER, "LIST_OWNED_NAMESPACES"
    ),
    "GET /admin/v2/brokers/internal-configuration": Need(
        Scope.BROKER, "GET_INTERNAL_CONFIGURATION_DATA"
    ),
    "GET /admin/v2/brokers/backlog-quota-check": Need(Scope.BROKER, "CHECK_BACKLOG_QUOTA"),
    "POST /admin/v2/brokers/shutdown": Need(Scope.BROKER, "SHUTDOWN"),
    "GET /admin/v2/brokers/configuration/values": Need(Scope.BROKER, "LIST_DYNAMIC_CONFIGURATIONS"),
    "POST /admin/v2/brokers/configuration/{name}/{value}": Need(
        Scope.BROKER, "UPDATE_DYNAMIC_CONFIGURATION"
    ),
    "DELETE /admin/v2/brokers/configuration/{name}": Need(
        Scope.BROKER, "DELETE_DYNAMIC_CONFIGURATION"
    ),
    "GET /admin/v2/broker-stats/topics": Need(Scope.SUPER_USER),
    "GET /admin/v2/broker-stats/metrics": Need(Scope.SUPER_USER),
    "GET /admin/v2/broker-stats/load-report": Need(Scope.SUPER_USER),
    "GET /admin/v2/broker-stats/bookieops": Need(Scope.SUPER_USER),
    "GET /admin/v2/broker-stats/mbeans": Need(Scope.SUPER_USER),
    "GET /admin/v2/resourcegroups": Need(Scope.SUPER_USER),
    "GET /admin/v2/resourcegroups/{resourcegroup}": Need(Scope.SUPER_USER),
    "PUT /admin/v2/resourcegroups/{resourcegroup}": Need(Scope.SUPER_USER),
    "DELETE /admin/v2/resourcegroups/{resourcegroup}": Need(Scope.SUPER_USER),
    "GET /admin/v2/broker-stats/allocator-stats/{allocator}": Need(Scope.SUPER_USER),
    "GET /admin/v2/broker-stats/broker-resource-availability/{tenant}/{namespace}": Need(
        Scope.SUPER_USER
    ),
    "GET /admin/v2/brokers/configuration": Need(Scope.BROKER, "LIST_DYNAMIC_CONFIGURATIONS"),
    "GET /admin/v2/brokers/configuration/runtime": Need(
        Scope.BROKER, "LIST_RUNTIME_CONFIGURATIONS"
    ),
    "GET /admin/v2/non-persistent/{tenant}/{namespace}/{bundle}": Need(
        Scope.NAMESPACE, "GET_BUNDLE"
    ),
    "GET /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}": Need(Scope.TOPIC, "LOOKUP"),
    "GET /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle": Need(
        Scope.NAMESPACE, "GET_BUNDLE"
    ),
}

NAMESPACES: dict[str, Need] = {
    "GET ": Need(Scope.NAMESPACE_POLICY, "READ", "ALL"),
    "PUT ": Need(Scope.TENANT, "CREATE_NAMESPACE"),
    "DELETE ": Need(Scope.TENANT, "DELETE_NAMESPACE"),
    "GET /topics": Need(Scope.NAMESPACE, "GET_TOPICS"),
    "GET /bundles": Need(Scope.NAMESPACE, "GET_BUNDLE"),
    "PUT /unload": Need(Scope.SUPER_USER),
    "DELETE /{bundle}": Need(Scope.NAMESPACE, "DELETE_BUNDLE"),
    "PUT /{bundle}/unload": Need(Scope.SUPER_USER),
    "PUT /{bundle}/split": Need(Scope.SUPER_USER),
    "GET /{bundle}/topicHashPositions": Need(Scope.NAMESPACE_POLICY, "READ", "PERSISTENCE"),
    "POST /{bundle}/clearBacklog": Need(Scope.NAMESPACE, "CLEAR_BACKLOG"),
    "POST /{bundle}/clearBacklog/{subscription}": Need(Scope.NAMESPACE, "CLEAR_BACKLOG"),
    "POST /{bundle}/unsubscribe/{subscription}": Need(Scope.NAMESPACE, "UNSUBSCRIBE"),
    "POST /clearBacklog": Need(Scope.NAMESPACE, "CLEAR_BACKLOG"),
    "POST /clearBacklog/{subscription}": Need(Scope.NAMESPACE, "CLEAR_BACKLOG"),
    "POST /unsubscribe/{subscription}": Need(Scope.NAMESPACE, "UNSUBSCRIBE"),
    "GET /persistence/bookieAffinity": Need(Scope.SUPER_USER),
    "POST /persistence/bookieAffinity": Need(Scope.SUPER_USER),
    "DELETE /persistence/bookieAffinity": Need(Scope.SUPER_USER),
    "GET /properties": Need(Scope.TENANT_ADMIN),
    "PUT /properties": Need(Scope.TENANT_ADMIN),
    "DELETE /properties": Need(Scope.TENANT_ADMIN),
    "GET /property/{key}": Need(Scope.TENANT_ADMIN),
    "DELETE /property/{key}": Need(Scope.TENANT_ADMIN),
    "PUT /property/{key}/{value}": Need(Scope.TENANT_ADMIN),
    "POST /migration": Need(Scope.SUPER_USER),
    "GET /permissions": Need(Scope.NAMESPACE, "GET_PERMISSION"),
    "POST /permissions/{role}": Need(Scope.NAMESPACE, "GRANT_PERMISSION"),
    "DELETE /permissions/{role}": Need(Scope.NAMESPACE, "REVOKE_PERMISSION"),
    "GET /permissions/subscription": Need(Scope.NAMESPACE, "GET_PERMISSION"),
    "POST /permissions/subscription/{subscription}": Need(Scope.NAMESPACE, "GRANT_PERMISSION"),
    "DELETE /permissions/{subscription}/{role}": Need(Scope.NAMESPACE, "REVOKE_PERMISSION"),
}
"""By method and the path after the namespace."""

POLICIES: dict[str, str] = {
    "allowedClusters": "ALLOW_CLUSTERS",
    "antiAffinity": "ANTI_AFFINITY",
    "autoSubscriptionCreation": "AUTO_SUBSCRIPTION_CREATION",
    "autoTopicCreation": "AUTO_TOPIC_CREATION",
    "backlogQuota": "BACKLOG",
    "backlogQuotaMap": "BACKLOG",
    "compactionThreshold": "COMPACTION",
    "deduplication": "DEDUPLICATION",
    "deduplicationEnabled": "DEDUPLICATION",
    "deduplicationSnapshotInterval": "DEDUPLICATION_SNAPSHOT",
    "delayedDelivery": "DELAYED_DELIVERY",
    "dispatcherPauseOnAckStatePersistent": "DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT",
    "dispatchRate": "RATE",
    "encryptionRequired": "ENCRYPTION",
    "entryFilters": "ENTRY_FILTERS",
    "inactiveTopicPolicies": "INACTIVE_TOPIC",
    "isAllowAutoUpdateSchema": "SCHEMA_COMPATIBILITY_STRATEGY",
    "maxConsumers": "MAX_CONSUMERS",
    "maxConsumersPerSubscription": "MAX_CONSUMERS",
    "maxConsumersPerTopic": "MAX_CONSUMERS",
    "maxMessageSize": "MAX_MESSAGE_SIZE",
    "maxProducers": "MAX_PRODUCERS",
    "maxProducersPerTopic": "MAX_PRODUCERS",
    "maxSubscriptionsPerTopic": "MAX_SUBSCRIPTIONS",
    "maxTopicsPerNamespace": "MAX_TOPICS",
    "maxUnackedMessagesOnConsumer": "MAX_UNACKED",
    "maxUnackedMessagesOnSubscription": "MAX_UNACKED",
    "maxUnackedMessagesPerConsumer": "MAX_UNACKED",
    "maxUnackedMessagesPerSubscription": "MAX_UNACKED",
    "messageTTL": "TTL",
    "offloadDeletionLagMs": "OFFLOAD",
    "offloadPolicies": "OFFLOAD",
    "offloadThreshold": "OFFLOAD",
    "offloadThresholdInSeconds": "OFFLOAD",
    "persistence": "PERSISTENCE",
    "publishRate": "RATE",
    "removeOffloadPolicies": "OFFLOAD",
    "replication": "REPLICATION",
    "replicatorDispatchRate": "REPLICATION_RATE",
    "resourcegroup": "RESOURCEGROUP",
    "retention": "RETENTION",
    "scanOffloadedLedgers": "OFFLOAD",
    "schemaAutoUpdateCompatibilityStrategy": "SCHEMA_COMPATIBILITY_STRATEGY",
    "schemaCompatibilityStrategy": "SCHEMA_COMPATIBILITY_STRATEGY",
    "schemaValidationEnforced": "SCHEMA_COMPATIBILITY_STRATEGY",
    "shadowTopics": "SHADOW_TOPIC",
    "subscribeRate": "RATE",
    "subscriptionAuthMode": "SUBSCRIPTION_AUTH_MODE",
    "subscriptionDispatchRate": "RATE",
    "subscriptionExpirationTime": "SUBSCRIPTION_EXPIRATION_TIME",
    "subscriptionTypesEnabled": "SUBSCRIPTION_AUTH_MODE",
}
"""Path -> policy of namespaces and topics; GET needs READ, other methods WRITE."""

TOPICS: dict[str, Need] = {
    "GET ": Need(Scope.NAMESPACE, "GET_TOPICS"),
    "GET /partitioned": Need(Scope.NAMESPACE, "GET_TOPICS"),
    "PUT /{topic}": Need(Scope.NAMESPACE, "CREATE_TOPIC"),
    "DELETE /{topic}": Need(Scope.NAMESPACE, "DELETE_TOPIC"),
    "GET /{topic}/partitions": Need(Scope.TOPIC, "LOOKUP"),
    "PUT /{topic}/partitions": Need(Scope.NAMESPACE, "CREATE_TOPIC"),
    "POST /{topic}/partitions": Need(Scope.TOPIC_POLICY, "WRITE", "PARTITION"),
    "DELETE /{topic}/partitions": Need(Scope.NAMESPACE, "DELETE_TOPIC"),
    "POST /{topic}/createMissedPartitions": Need(Scope.NAMESPACE, "CREATE_TOPIC"),
    "POST /{topic}/terminate": Need(Scope.TOPIC, "TERMINATE"),
    "POST /{topic}/terminate/partitions": Need(Scope.TOPIC, "TERMINATE"),
    "PUT /{topic}/unload": Need(Scope.TOPIC, "UNLOAD"),
    "PUT /{topic}/compaction": Need(Scope.TOPIC, "COMPACT"),
    "GET /{topic}/compaction": Need(Scope.TOPIC, "COMPACT"),
    "DELETE /{topic}/truncate": Need(Scope.TOPIC, "TRIM_TOPIC"),
    "GET /{topic}/lastMessageId": Need(Scope.TOPIC, "PEEK_MESSAGES"),
    "GET /{topic}/ledger/{ledger}/entry/{entry}": Need(Scope.TOPIC, "PEEK_MESSAGES"),
    "GET /{topic}/examinemessage": Need(Scope.TOPIC, "PEEK_MESSAGES"),
    "GET /{topic}/messageid/{timestamp}": Need(Scope.TOPIC, "PEEK_MESSAGES"),
    "PUT /{topic}/backlogSize": Need(Scope.TOPIC, "GET_BACKLOG_SIZE"),
    "GET /{topic}/properties": Need(Scope.TOPIC, "GET_METADATA"),
    "PUT /{topic}/properties": Need(Scope.TOPIC, "UPDATE_METADATA"),
    "DELETE /{topic}/properties": Need(Scope.TOPIC, "DELETE_METADATA"),
    "GET /{topic}/internal-info": Need(Scope.TOPIC, "GET_STATS"),
    "GET /{topic}/backlog": Need(Scope.TOPIC, "GET_BACKLOG_SIZE"),
    "PUT /{topic}/offload": Need(Scope.TOPIC, "OFFLOAD"),
    "GET /{topic}/offload": Need(Scope.TOPIC, "OFFLOAD"),
    "DELETE /{topic}/policies": Need(Scope.TENANT_ADMIN),
    "POST /{topic}/trim": Need(Scope.TOPIC, "TRIM_TOPIC"),
    "POST /{topic}/all_subscription/expireMessages/{seconds}": Need(Scope.TOPIC, "EXPIRE_MESSAGES"),
    "GET /{topic}/stats": Need(Scope.TOPIC, "GET_STATS"),
    "GET /{topic}/internalStats": Need(Scope.TOPIC, "GET_STATS"),
    "GET /{topic}/partitioned-stats": Need(Scope.TOPIC, "GET_STATS"),
    "GET /{topic}/partitioned-internalStats": Need(Scope.TOPIC, "GET_STATS"),
    "GET /{topic}/subscriptions": Need(Scope.TOPIC, "GET_SUBSCRIPTIONS"),
    "GET /{topic}/permissions": Need(Scope.TENANT_ADMIN),
    "POST /{topic}/permissions/{role}": Need(Scope.TENANT_ADMIN),
    "DELETE /{topic}/permissions/{role}": Need(Scope.TENANT_ADMIN),
}
"""By method and the path after the namespace, for either domain."""

SUBSCRIPTIONS: dict[str, Need] = {
    "PUT ": Need(Scope.TOPIC, "SUBSCRIBE"),
    "DELETE ": Need(Scope.TOPIC, "UNSUBSCRIBE"),
    "GET /properties": Need(Scope.TOPIC, "CONSUME"),
    "PUT /properties": Need(Scope.TOPIC, "SUBSCRIBE"),
    "POST /skip_all": Need(Scope.TOPIC, "SKIP"),
    "POST /skip/{count}": Need(Scope.TOPIC, "SKIP"),
    "POST /resetcursor": Need(Scope.TOPIC, "RESET_CURSOR"),
    "POST /resetcursor/{timestamp}": Need(Scope.TOPIC, "RESET_CURSOR"),
    "POST /expireMessages/{seconds}": Need(Scope.TOPIC, "EXPIRE_MESSAGES"),
    "POST /expireMessages": Need(Scope.TOPIC, "EXPIRE_MESSAGES"),
    "GET /replicatedSubscriptionStatus": Need(Scope.TOPIC, "GET_REPLICATED_SUBSCRIPTION_STATUS"),
    "POST /replicatedSubscriptionStatus": Need(Scope.TOPIC, "SET_REPLICATED_SUBSCRIPTION_STATUS"),
    "GET /position/{position}": Need(Scope.TOPIC, "PEEK_MESSAGES"),
    "POST /analyzeBacklog": Need(Scope.TOPIC, "CONSUME"),
    "GET /why": Need(Scope.TOPIC, "GET_STATS"),
}
"""By method and the path after a subscription of a topic."""


_SCHEMAS = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"

SCHEMAS: dict[str, Need] = {
    "GET /schema": Need(Scope.TOPIC, "GET_METADATA"),
    "GET /schema/{version}": Need(Scope.TOPIC, "GET_METADATA"),
    "GET /schemas": Need(Scope.TOPIC, "GET_METADATA"),
    "GET /metadata": Need(Scope.TOPIC, "GET_METADATA"),
    "POST /schema": Need(Scope.TOPIC, "PRODUCE"),
    "POST /version": Need(Scope.TOPIC, "GET_METADATA"),
    "POST /compatibility": Need(Scope.TENANT_ADMIN),
    "DELETE /schema": Need(Scope.TENANT_ADMIN),
}
"""By method and the path after the topic."""


_TRANSACTIONS = "/admin/v3/transactions/"

_FUNCTIONS = (
    *(f"/admin/v2/{name}/" for name in ("functions", "worker", "worker-stats")),
    *(f"/admin/v3/{name}/" for name in ("functions", "sinks", "sources")),
)
"""What is switched off is told to every role."""
_PACKAGES = "/admin/v3/packages/"

TRANSACTIONS: dict[str, Need] = {
    "GET transactionBufferInternalStats": Need(Scope.TOPIC, "GET_STATS"),
    "POST transactionCoordinator": Need(Scope.SUPER_USER),
    "POST abortTransaction": Need(Scope.SUPER_USER),
}
"""By method and the first word of the path; all others, which say only that transactions are off,
are for everybody.
"""


def need_of(method: str, path: str) -> Need:
    """The right that a route needs; without an entry, only a superuser has it."""
    return rule_of(method, path) or Need(Scope.SUPER_USER)


def rule_of(method: str, path: str) -> Need | None:
    """The rule of a route, None if there is none."""
    if (plain := PLAIN.get(f"{method} {path}")) is not None:
        return plain
    found = None
    if path.startswith(_FUNCTIONS):
        return Need(Scope.ROLE)
    if path.startswith(_PACKAGES):
        return Need(Scope.NAMESPACE, "PACKAGES")
    if path.startswith(_TRANSACTIONS):
        word = path.removeprefix(_TRANSACTIONS).partition("/")[0]
        return TRANSACTIONS.get(f"{method} {word}", Need(Scope.ROLE))
    if path.startswith(_SCHEMAS):
        return SCHEMAS.get(f"{method} {path.removeprefix(_SCHEMAS)}")
    if path.startswith(_NAMESPACE):
        rest = path.removeprefix(_NAMESPACE)
        found = NAMESPACES.get(f"{method} {rest}") or _policy(
            Scope.NAMESPACE_POLICY, method, rest.removeprefix("/")
        )
    for base in _TOPIC_BASES:
        if path.startswith(base):
            found = _need_of_topic(method, path.removeprefix(base))
    return found


def _need_of_topic(method: str, rest: str) -> Need | None:
    if (found := TOPICS.get(f"{method} {rest}")) is not None:
        return found
    subscription = "/{topic}/subscription/{subscription}"
    if rest.startswith(subscription):
        return SUBSCRIPTIONS.get(f"{method} {rest.removeprefix(subscription)}")
    # A policy of one subscription follows its name in the path.
    name = rest.removeprefix("/{topic}/").removeprefix("{subscription}/")
    return _policy(Scope.TOPIC_POLICY, method, name)


def _policy(scope: Scope, method: str, name: str) -> Need | None:
    # The path after the name is an index into the policy.
    policy = POLICIES.get(name.partition("/")[0])
    return Need(scope, "READ" if method == "GET" else "WRITE", policy) if policy else None
