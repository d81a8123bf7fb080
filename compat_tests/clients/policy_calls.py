"""Calls that set a namespace's policies, in the form of `rest_calls.CALLS`, as Apache answers."""

from __future__ import annotations

N = "/admin/v2/namespaces/{t}/n1"
MISSING = "/admin/v2/namespaces/{t}/nope"
NO_NAMESPACE = {"reason": "Namespace does not exist"}
EMPTY = ""
ANY = object()
P = "/admin/v2/persistent/{t}/n1/policed"
NO_TOPIC = "/admin/v2/persistent/{t}/n1/nope"
PARTED = "/admin/v2/persistent/{t}/n1/policed-parts"
TOPIC_NOT_FOUND = {"reason": "Topic persistent://{t}/n1/nope not found"}

Call = tuple[str, str, str | None, int, object]


def _life(
    path: str, value: str, told: object, unset: object = EMPTY, verb: str = "POST"
) -> list[Call]:
    """Not set, set, read, removed; and a namespace that isn't there."""
    return [
        ("GET", f"{N}/{path}", None, 200, unset),
        (verb, f"{N}/{path}", value, 204, EMPTY),
        ("GET", f"{N}/{path}", None, 200, told),
        ("DELETE", f"{N}/{path}", None, 204, EMPTY),
        ("GET", f"{N}/{path}", None, 200, unset),
        ("GET", f"{MISSING}/{path}", None, 404, NO_NAMESPACE),
        (verb, f"{MISSING}/{path}", value, 404, ANY),
    ]


def _limit(path: str, unset: object = EMPTY) -> list[Call]:
    return [
        *_life(path, "3", 3, unset),
        ("POST", f"{N}/{path}", "-1", 412, {"reason": f"{path} must be 0 or more"}),
    ]


def _topic_life(
    path: str, value: str, told: object, applied: object = EMPTY, absent: int = 200
) -> list[Call]:
    """The same for a topic, also with what holds in the end."""
    unset = EMPTY
    if path == "subscriptionTypesEnabled":
        unset = []
    return [
        ("GET", f"{P}/{path}", None, absent, unset),
        ("GET", f"{P}/{path}?applied=true", None, absent, applied),
        ("POST", f"{P}/{path}", value, 204, EMPTY),
        ("GET", f"{P}/{path}", None, 200, told),
        ("GET", f"{P}/{path}?applied=true", None, 200, told),
        ("DELETE", f"{P}/{path}", None, 204, EMPTY),
        ("GET", f"{P}/{path}", None, absent, unset),
        ("GET", f"{NO_TOPIC}/{path}", None, 404, TOPIC_NOT_FOUND),
        ("POST", f"{NO_TOPIC}/{path}", value, 404, TOPIC_NOT_FOUND),
        ("DELETE", f"{NO_TOPIC}/{path}", None, 404, TOPIC_NOT_FOUND),
    ]


def _topic_limit(path: str, reason: str, applied: object = EMPTY, absent: int = 200) -> list[Call]:
    return [
        *_topic_life(path, "3", 3, applied, absent),
        ("POST", f"{P}/{path}", "-1", 412, {"reason": reason}),
        ("POST", f"{P}/{path}", None, 204 if "Unacked" in path else 400, ANY),
    ]


def _quota(size: int, age: int, policy: str) -> dict[str, object]:
    return {"limit": size, "limitSize": size, "limitTime": age, "policy": policy}


DISPATCH_RATE = '{"dispatchThrottlingRateInMsg":5,"ratePeriodInSecond":2}'
DISPATCH_TOLD = {
    "dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False, "ratePeriodInSecond": 2}  # fmt: skip
NO_DISPATCH_RATE = {
    "dispatchThrottlingRateInMsg": 0, "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False, "ratePeriodInSecond": 1}  # fmt: skip
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
    "maxInactiveDurationSeconds": 30, "deleteWhileInactive": True}  # fmt: skip
INACTIVE_BODY = (
    '{"inactiveTopicDeleteMode":"delete_when_subscriptions_caught_up",'
    '"maxInactiveDurationSeconds":30,"deleteWhileInactive":true}'
)
RETENTION = '{"retentionTimeInMinutes":10,"retentionSizeInMB":20}'
RETENTION_TOLD = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20}
SUBSCRIBE_RATE = '{"subscribeThrottlingRatePerConsumer":5,"ratePeriodInSecond":20}'
SUBSCRIBE_TOLD = {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 20}
DELAYED = {"tickTime": 2000, "active": True, "maxDeliveryDelayInMillis": 0}
SMALL = '{"retentionTimeInMinutes":1,"retentionSizeInMB":1}'

NAMESPACE_QUOTAS: list[Call] = [
    ("GET", f"{N}/retention", None, 200, EMPTY),
    ("POST", f"{N}/retention", '{"retentionTimeInMinutes":0,"retentionSizeInMB":1}', 400, ANY),
    ("GET", f"{N}/backlogQuotaMap", None, 200, {}),
    ("POST", f"{N}/backlogQuota", '{"limitSize":5000000,"policy":"producer_exception"}', 204,
     EMPTY),
    ("POST", f"{N}/backlogQuota?backlogQuotaType=message_age",
     '{"limitTime":100,"policy":"consumer_backlog_eviction"}', 204, EMPTY),
    ("GET", f"{N}/backlogQuotaMap", None, 200, {
        "destination_storage": _quota(5000000, 0, "producer_exception"),
        "message_age": _quota(0, 100, "consumer_backlog_eviction")}),
    ("POST", f"{N}/backlogQuota?backlogQuotaType=nope", '{"limitTime":1}', 404, ANY),
    ("POST", f"{N}/backlogQuota", '{"limitSize":100}', 400,
     {"reason": "Set namespace[{t}/n1] backlog quota failed because the data validation failed. "
                "the attribute policy cannot be null"}),
    ("POST", f"{N}/retention", SMALL, 412,
     {"reason": "Retention Quota must exceed configured backlog quota for namespace."}),
    ("POST", f"{N}/retention", RETENTION, 204, EMPTY),
    ("GET", f"{N}/retention", None, 200, RETENTION_TOLD),
    ("POST", f"{N}/backlogQuota", '{"limitSize":20971520,"policy":"producer_exception"}', 412,
     {"reason": "Backlog Quota exceeds configured retention quota for namespace. Please increase "
                "retention quota and retry"}),
    ("POST", f"{N}/backlogQuota", '{"limitTime":600,"policy":"producer_exception"}', 412, ANY),
    ("POST", f"{N}/backlogQuota?backlogQuotaType=message_age",
     '{"limitTime":1000,"policy":"consumer_backlog_eviction"}', 204, EMPTY),
    ("DELETE", f"{N}/retention", None, 204, EMPTY),
    ("DELETE", f"{N}/backlogQuota", None, 204, EMPTY),
    ("GET", f"{N}/backlogQuotaMap", None, 200,
     {"message_age": _quota(0, 1000, "consumer_backlog_eviction")}),
    ("DELETE", f"{N}/backlogQuota?backlogQuotaType=message_age", None, 204, EMPTY),
    ("GET", f"{N}/backlogQuotaMap", None, 200, {}),
    ("GET", f"{MISSING}/backlogQuotaMap", None, 404, NO_NAMESPACE),
]  # fmt: skip
TOPIC_QUOTAS: list[Call] = [
    ("GET", f"{P}/backlogQuotaMap", None, 200, {}),
    ("GET", f"{P}/backlogQuotaMap?applied=true", None, 200, {
        "destination_storage": _quota(-1, -1, "producer_request_hold"),
        "message_age": _quota(-1, -1, "producer_request_hold")}),
    ("POST", f"{P}/backlogQuota", '{"limit":5000000,"policy":"producer_exception"}', 204, EMPTY),
    ("GET", f"{P}/backlogQuotaMap", None, 200,
     {"destination_storage": _quota(5000000, 0, "producer_exception")}),
    ("GET", f"{P}/backlogQuotaMap?applied=true", None, 200,
     {"destination_storage": _quota(5000000, 0, "producer_exception")}),
    ("POST", f"{P}/backlogQuota", '{"limitSize":100}', 400,
     {"reason": "Set namespace[{t}/n1] backlog quota failed because the data validation failed. "
                "the attribute policy cannot be null"}),
    ("POST", f"{P}/retention", SMALL, 412,
     {"reason": "Retention Quota must exceed configured backlog quota for topic. Please increase "
                "retention quota and retry"}),
    ("POST", f"{P}/retention", RETENTION, 204, EMPTY),
    ("GET", f"{P}/retention", None, 200, RETENTION_TOLD),
    ("POST", f"{P}/backlogQuota", '{"limitSize":20971520,"policy":"producer_exception"}', 412,
     {"reason": "Backlog Quota exceeds configured retention quota for topic. Please increase "
                "retention quota and retry"}),
    ("POST", f"{P}/backlogQuota?backlogQuotaType=message_age",
     '{"limitTime":600,"policy":"producer_exception"}', 412, ANY),
    ("POST", f"{P}/backlogQuota?backlogQuotaType=message_age",
     '{"limitTime":599,"policy":"producer_exception"}', 204, EMPTY),
    ("DELETE", f"{P}/backlogQuota", None, 204, EMPTY),
    ("GET", f"{P}/backlogQuotaMap", None, 200,
     {"message_age": _quota(0, 599, "producer_exception")}),
    ("DELETE", f"{P}/backlogQuota?backlogQuotaType=message_age", None, 204, EMPTY),
    ("GET", f"{P}/backlogQuotaMap", None, 200, {}),
    ("DELETE", f"{P}/retention", None, 204, EMPTY),
    ("GET", f"{P}/retention", None, 200, EMPTY),
    ("GET", f"{P}/retention?applied=true", None, 200,
     {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}),
    ("POST", f"{P}/retention", '{"retentionTimeInMinutes":0,"retentionSizeInMB":1}', 400, ANY),
    ("GET", f"{NO_TOPIC}/backlogQuotaMap", None, 404, TOPIC_NOT_FOUND),
    ("POST", f"{NO_TOPIC}/backlogQuota", '{"limitSize":1,"policy":"producer_exception"}', 404,
     TOPIC_NOT_FOUND),
]  # fmt: skip
UNACKED = "maxUnackedNum must be 0 or more"
TOPICS: list[Call] = [
    ("PUT", P, None, 204, EMPTY),
    ("DELETE", f"{P}/truncate", None, 204, EMPTY),
    ("DELETE", f"{NO_TOPIC}/truncate", None, 404, TOPIC_NOT_FOUND),
    *_topic_limit("maxProducers", "maxProducers must be 0 or more", 0),
    *_topic_limit("maxConsumers", "maxConsumers must be 0 or more", 0),
    *_topic_limit("maxConsumersPerSubscription", "Invalid value for maxConsumersPerSubscription",
                  absent=204),
    *_topic_limit("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic must be 0 or more",
                  absent=204),
    *_topic_limit("maxUnackedMessagesOnConsumer", UNACKED, 50000),
    *_topic_limit("maxUnackedMessagesOnSubscription", UNACKED, 200000),
    *_topic_limit("maxMessageSize",
                  "topic-level maxMessageSize must be greater than or equal to 0 and must be "
                  "smaller than that in the broker-level", absent=204),
    ("POST", f"{P}/maxMessageSize", "99999999", 412, ANY),
    *_topic_life("deduplicationEnabled", "true", True, False),
    *_topic_life("deduplicationSnapshotInterval", "10", 10),
    *_topic_limit("compactionThreshold", "Invalid value for compactionThreshold", 0),
    ("POST", f"{P}/deduplicationSnapshotInterval", "-1", 412,
     {"reason": "interval must be 0 or more"}),
    *_topic_life("publishRate", '{"publishThrottlingRateInMsg":5}',
                 {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1},
                 absent=204),
    *_topic_life("dispatchRate", DISPATCH_RATE, DISPATCH_TOLD, NO_DISPATCH_RATE),
    *_topic_life("subscriptionDispatchRate", DISPATCH_RATE, DISPATCH_TOLD, NO_DISPATCH_RATE),
    ("POST", f"{P}/s1/dispatchRate", DISPATCH_RATE, 204, EMPTY),
    ("GET", f"{P}/s1/dispatchRate", None, 200, DISPATCH_TOLD),
    ("DELETE", f"{P}/s1/dispatchRate", None, 204, EMPTY),
    ("GET", f"{P}/s1/dispatchRate", None, 200, EMPTY),
    *_topic_life("subscribeRate", SUBSCRIBE_RATE, SUBSCRIBE_TOLD,
                 {"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30}),
    *_topic_life("delayedDelivery", '{"active":true,"tickTime":2000}', DELAYED,
                 DELAYED | {"tickTime": 1000}),
    *_topic_life("inactiveTopicPolicies", INACTIVE_BODY, INACTIVE, {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 60, "deleteWhileInactive": True}),
    *_topic_life("subscriptionTypesEnabled", '["Shared"]', ["Shared"], []),
    ("POST", f"{P}/entryFilters", '{"entryFilterNames":"nope"}', 400,
     {"reason": "Entry filter 'nope' not found"}),
    ("POST", f"{P}/entryFilters", '{"entryFilterNames":""}', 400,
     {"reason": "entryFilterNames can't be empty. To remove entry filters use the remove "
                "method."}),
    ("GET", f"{P}/entryFilters", None, 200, EMPTY),
    ("GET", f"{P}/entryFilters?applied=true", None, 200, {"entryFilterNames": ""}),
    *_topic_life("autoSubscriptionCreation", '{"allowAutoSubscriptionCreation":false}',
                 {"allowAutoSubscriptionCreation": False},
                 {"allowAutoSubscriptionCreation": True}),
    ("GET", f"{P}/messageTTL?applied=true", None, 200, 0),
    ("POST", f"{P}/messageTTL?messageTTL=9", None, 204, EMPTY),
    ("GET", f"{P}/messageTTL", None, 200, 9),
    ("POST", f"{P}/messageTTL?messageTTL=-1", None, 412,
     {"reason": "Invalid value for message TTL"}),
    ("DELETE", f"{P}/messageTTL", None, 204, EMPTY),
    ("GET", f"{P}/messageTTL", None, 200, EMPTY),
    *TOPIC_QUOTAS,
    ("PUT", f"{PARTED}/partitions", "2", 204, EMPTY),
    ("DELETE", f"{PARTED}/truncate", None, 204, EMPTY),
    ("POST", f"{PARTED}/maxProducers", "3", 204, EMPTY),
    ("GET", f"{PARTED}/maxProducers", None, 200, 3),
    ("GET", f"{PARTED}-partition-0/maxProducers", None, 412,
     {"reason": "Not allowed to set/get topic policy for a partition"}),
    ("DELETE", f"{PARTED}/partitions", None, 204, EMPTY),
    ("POST", "/admin/v2/persistent/{t}/nope/a/maxProducers", "3", 404,
     {"reason": "Namespace not found"}),
    ("DELETE", P, None, 204, EMPTY),
]  # fmt: skip
CALLS: list[Call] = [
    *_life("deduplication", "true", True),
    ("POST", f"{N}/deduplication", None, 400, ANY),
    *_life("messageTTL", "5", 5),
    ("POST", f"{N}/messageTTL", "-1", 412,
     {"reason": "Invalid value for message TTL, message TTL must >= 0"}),
    ("POST", f"{N}/messageTTL", None, 400, ANY),
    *_life("subscriptionExpirationTime", "7", 7),
    *_life("compactionThreshold", "1000", 1000, verb="PUT"),
    ("PUT", f"{N}/compactionThreshold", "-1", 412,
     {"reason": "compactionThreshold must be 0 or more"}),
    ("POST", f"{N}/subscriptionExpirationTime", "-7", 412,
     {"reason": "Invalid value for subscription expiration time"}),
    *_life("publishRate", '{"publishThrottlingRateInMsg":5,"publishThrottlingRateInByte":6}',
           {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": 6}),
    ("POST", f"{N}/publishRate", None, 204, EMPTY),
    *_life("dispatchRate", '{"dispatchThrottlingRateInMsg":5,"ratePeriodInSecond":2}', {
        "dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": 0,
        "relativeToPublishRate": False, "ratePeriodInSecond": 2}),
    *_life("subscriptionDispatchRate", '{"dispatchThrottlingRateInByte":6}', {
        "dispatchThrottlingRateInMsg": 0, "dispatchThrottlingRateInByte": 6,
        "relativeToPublishRate": False, "ratePeriodInSecond": 0}),
    ("GET", f"{N}/deduplicationSnapshotInterval", None, 200, EMPTY),
    ("POST", f"{N}/deduplicationSnapshotInterval", "10", 204, EMPTY),
    ("GET", f"{N}/deduplicationSnapshotInterval", None, 200, 10),
    ("POST", f"{N}/deduplicationSnapshotInterval", None, 204, EMPTY),
    ("GET", f"{N}/deduplicationSnapshotInterval", None, 200, EMPTY),
    *_life("subscribeRate", SUBSCRIBE_RATE, SUBSCRIBE_TOLD),
    *_limit("maxProducersPerTopic"),
    ("POST", f"{N}/maxProducersPerTopic", None, 400, ANY),
    *_limit("maxConsumersPerTopic"),
    *_limit("maxConsumersPerSubscription"),
    *_limit("maxSubscriptionsPerTopic"),
    *_limit("maxUnackedMessagesPerConsumer"),
    *_limit("maxUnackedMessagesPerSubscription"),
    *_limit("maxTopicsPerNamespace", 0),
    *_life("delayedDelivery", '{"active":true,"tickTime":2000}', DELAYED),
    *_life("inactiveTopicPolicies", INACTIVE_BODY, INACTIVE),
    *_life("subscriptionTypesEnabled", '["Shared"]', ["Shared"], []),
    *_life("autoTopicCreation", '{"allowAutoTopicCreation":false}',
           {"allowAutoTopicCreation": False}),
    ("POST", f"{N}/autoTopicCreation",
     '{"allowAutoTopicCreation":true,"topicType":"partitioned"}', 412,
     {"reason": "Invalid configuration for autoTopicCreationOverride. the detail is "
                "[defaultNumPartitions] cannot be null when the type is partitioned."}),
    *_life("autoSubscriptionCreation", '{"allowAutoSubscriptionCreation":false}',
           {"allowAutoSubscriptionCreation": False}),
    ("GET", f"{N}/encryptionRequired", None, 200, False),
    ("POST", f"{N}/encryptionRequired", "true", 204, EMPTY),
    ("GET", f"{N}/encryptionRequired", None, 200, True),
    ("POST", f"{N}/encryptionRequired", "false", 204, EMPTY),
    ("GET", f"{N}/entryFilters", None, 200, EMPTY),
    ("POST", f"{N}/entryFilters", '{"entryFilterNames":"nope"}', 400,
     {"reason": "Entry filter 'nope' not found"}),
    ("DELETE", f"{N}/entryFilters", None, 204, EMPTY),
    *NAMESPACE_QUOTAS,
    *TOPICS,
]  # fmt: skip
