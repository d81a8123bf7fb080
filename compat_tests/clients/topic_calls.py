"""What topics keep, and messages over REST: calls, and Apache Pulsar 4.0.7's answers; see
`rest_calls`.

Left out are calls that Apache's broker doesn't answer (properties of a missing topic changed, the
backlog of a topic that is there) or answers with the trace of a failed cast (offloading and
compaction of a non-persistent topic). Left out too is what our broker refuses as not built:
replication to another cluster, and shadow topics.
"""

from __future__ import annotations

import json

from compat_tests.clients.rest_calls import ANY, EMPTY, Keys, reason

N = "/admin/v2/namespaces/{t}/n1"
D = "/admin/v2/persistent/{t}/n1"
A, X, P, S = D + "/a", D + "/nope", D + "/p", D + "/a/subscription/s1"
PASSING = "/admin/v2/non-persistent/{t}/n1/n"
SEND = "/topics/persistent/{t}/n1"
NOT_FOUND = reason("Topic persistent://{t}/n1/nope not found")
PARTITION = reason("Not allowed to set/get topic policy for a partition")
NEED_PERSISTENT = reason("Need to provide a persistent topic name")
NO_SUBSCRIPTION = reason("Subscription no not found for topic persistent://{t}/n1/a")
NO_PERSISTENCE = reason("persistence policies should not be null")
NO_CLUSTERS = reason("ClusterIds should not be null or empty")
OTHERS = reason(
    "Can not remove local cluster from the local topic-level replication clusters policy"
)
NO_DRIVER = reason(
    "The driver is not supported, support value: S3,aws-s3,google-cloud-storage,filesystem,"
    "azureblob,aliyun-oss"
)
STATUS = "/replicatedSubscriptionStatus"
COPIES = {
    "bookkeeperEnsemble": 1,
    "bookkeeperWriteQuorum": 1,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 2.5,
}
RATE = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 2,
}
OFFLOAD = {"managedLedgerOffloadDriver": "aws-s3", "s3ManagedLedgerOffloadBucket": "b"}
NOWHERE = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchSize": 0, "batchIndex": -1}

Call = tuple[str, str, str | None, int, object]


def _copies(ensemble: int, write: int, ack: int) -> str:
    return json.dumps(
        {
            "bookkeeperEnsemble": ensemble,
            "bookkeeperWriteQuorum": write,
            "bookkeeperAckQuorum": ack,
        }
    )


def _life(path: str, good: object, shown: object) -> list[Call]:
    """Of a policy: unset, set, told, removed; and of topics that can't have it."""
    body = json.dumps(good)
    one = f"{A}/{path}"
    return [
        ("GET", one, None, 200, EMPTY),
        ("POST", one, body, 204, EMPTY),
        ("GET", one, None, 200, shown),
        ("GET", one + "?applied=true", None, 200, shown),
        ("GET", one + "?isGlobal=true", None, 200, EMPTY),
        ("DELETE", one, None, 204, EMPTY),
        ("GET", one, None, 200, EMPTY),
        ("DELETE", one, None, 204, EMPTY),
        ("POST", f"{X}/{path}", body, 404, NOT_FOUND),
        ("GET", f"{X}/{path}", None, 404, NOT_FOUND),
        ("DELETE", f"{X}/{path}", None, 404, NOT_FOUND),
        ("POST", f"{P}-partition-0/{path}", body, 412, PARTITION),
    ]


_TENANT = '{"adminRoles":[],"allowedClusters":["standalone"]}'

CALLS: list[Call] = [
    ("PUT", "/admin/v2/tenants/{t}", _TENANT, 204, EMPTY),
    ("PUT", N, None, 204, EMPTY),
    # Properties
    ("PUT", A, '{"k":"v","n":5}', 204, EMPTY),
    ("GET", A + "/properties", None, 200, {"k": "v", "n": "5"}),
    ("PUT", A + "/properties", '{"x":"y"}', 204, EMPTY),
    ("PUT", A + "/properties", "{}", 204, EMPTY),
    ("PUT", A + "/properties", None, 204, EMPTY),
    ("PUT", A + "/properties", "null", 204, EMPTY),
    ("GET", A + "/properties", None, 200, {"x": "y", "k": "v", "n": "5"}),
    ("DELETE", A + "/properties?key=k", None, 204, EMPTY),
    ("DELETE", A + "/properties?key=nope", None, 204, EMPTY),
    ("GET", A + "/properties", None, 200, {"x": "y", "n": "5"}),
    ("PUT", A + "/properties", '"x"', 400, ANY),
    ("PUT", A + "/properties", '{"x":{"y":1}}', 400, ANY),
    ("GET", X + "/properties", None, 404, NOT_FOUND),
    ("PUT", P + "/partitions", "2", 204, EMPTY),
    ("GET", P + "/properties", None, 200, EMPTY),
    ("PUT", P + "/properties", '{"g":"h"}', 204, EMPTY),
    ("GET", P + "/properties", None, 200, {"g": "h"}),
    ("PUT", P + "-partition-0/properties", '{"q":"r"}', 204, EMPTY),
    ("GET", P + "-partition-0/properties", None, 200, {"q": "r"}),
    ("DELETE", P + "/properties?key=g", None, 204, EMPTY),
    ("GET", P + "/properties", None, 200, {}),
    ("PUT", PASSING, None, 204, EMPTY),
    ("GET", PASSING + "/properties", None, 406, NEED_PERSISTENT),
    ("PUT", PASSING + "/properties", '{"a":"b"}', 406, NEED_PERSISTENT),
    ("DELETE", PASSING + "/properties?key=a", None, 406, NEED_PERSISTENT),
    # Replicated subscriptions
    ("PUT", S, None, 204, EMPTY),
    ("POST", S + STATUS, "false", 204, EMPTY),
    ("POST", S + STATUS, None, 400, ANY),
    ("POST", S + STATUS, '"x"', 400, ANY),
    ("GET", A + "/subscription/no" + STATUS, None, 404, NO_SUBSCRIPTION),
    ("POST", A + "/subscription/no" + STATUS, "true", 404, NO_SUBSCRIPTION),
    ("GET", X + "/subscription/s1" + STATUS, None, 404, NOT_FOUND),
    ("POST", X + "/subscription/s1" + STATUS, "true", 404, NOT_FOUND),
    # Policies
    *_life("persistence", COPIES, COPIES),
    ("POST", A + "/persistence", None, 400, NO_PERSISTENCE),
    ("POST", A + "/persistence", "null", 400, NO_PERSISTENCE),
    *(
        ("POST", A + "/persistence", body, 400, reason(text))
        for body, text in (
            (_copies(6, 1, 1), "Bookkeeper-Ensemble must be <= 5 and > 0."),
            (_copies(3, 6, 1), "Bookkeeper-WriteQuorum must be <= 5 and > 0."),
            (_copies(1, 1, -1), "Bookkeeper-AckQuorum must be <= 5 and > 0."),
            (
                _copies(1, 2, 1),
                "Bookkeeper Ensemble (1) >= WriteQuorum (2) >= AckQuorum (1)",
            ),
        )
    ),
    *_life("replication", ["standalone"], ["standalone"]),
    ("POST", A + "/replication", '["nope"]', 412, OTHERS),
    ("POST", A + "/replication", "[]", 412, NO_CLUSTERS),
    ("POST", A + "/replication", None, 412, NO_CLUSTERS),
    ("POST", A + "/replication", '"x"', 400, ANY),
    *_life("replicatorDispatchRate", RATE, RATE),
    ("GET", A + "/dispatcherPauseOnAckStatePersistent", None, 200, False),
    ("POST", A + "/dispatcherPauseOnAckStatePersistent", None, 204, EMPTY),
    ("GET", A + "/dispatcherPauseOnAckStatePersistent", None, 200, True),
    ("DELETE", A + "/dispatcherPauseOnAckStatePersistent", None, 204, EMPTY),
    ("GET", A + "/dispatcherPauseOnAckStatePersistent", None, 200, False),
    *_life("offloadPolicies", OFFLOAD, ANY),
    ("POST", A + "/offloadPolicies", '{"managedLedgerOffloadDriver":"nope"}', 412, NO_DRIVER),
    (
        "POST", A + "/offloadPolicies", None, 412,
        reason("The offloadPolicies must be specified for namespace offload."),
    ),
    (
        "POST", A + "/offloadPolicies", '{"managedLedgerOffloadDriver":"aws-s3"}', 412,
        reason("The bucket must be specified for namespace offload."),
    ),
    ("GET", A + "/shadowTopics", None, 200, EMPTY),
    (
        "PUT", A + "/shadowTopics", "[]", 412,
        reason("Cannot specify empty shadow topics, please use remove command instead."),
    ),
    (
        "PUT", A + "/shadowTopics", '["non-persistent://a/b/c"]', 412,
        reason("Only persistent topic can be set as shadow topic"),
    ),
    ("DELETE", A + "/shadowTopics", None, 204, EMPTY),
    ("DELETE", A + "/policies", None, 204, EMPTY),
    ("DELETE", X + "/policies", None, 204, EMPTY),
    ("DELETE", P + "/policies", None, 204, EMPTY),
    # Offloading, compaction
    (
        "GET", A + "/offload", None, 200,
        {"status": "NOT_RUN", "lastError": "", "firstUnoffloadedMessage": NOWHERE},
    ),
    ("PUT", A + "/offload", None, 400, reason("messageId is null")),
    ("GET", X + "/offload", None, 404, NOT_FOUND),
    ("PUT", X + "/offload", '{"ledgerId":1,"entryId":0}', 404, NOT_FOUND),
    ("GET", P + "/offload", None, 404, reason("Topic persistent://{t}/n1/p not found")),
    # Messages
    (
        "POST", SEND + "/a", '{"messages":[{"payload":"x"}]}', 200,
        Keys(frozenset({"messagePublishResults", "schemaVersion"})),
    ),
    (
        "POST", SEND + "/nope", '{"messages":[{"payload":"x"}]}', 500,
        reason("Fail to publish message: Topic persistent://{t}/n1/nope not found"),
    ),
    (
        "POST", SEND + "/a-partition-0/partitions/0", '{"messages":[]}', 400,
        reason("Topic name can't contain '-partition-' suffix."),
    ),
    # Of no bundle that there is
    ("GET", D + "?bundle=0xzz", None, 200, []),
    ("GET", D + "?bundle=0x00000000_0xffffffff", None, 200, []),
    ("GET", D + "?bundle=", None, 200, []),
    ("DELETE", A + "?force=true", None, 204, EMPTY),
    ("DELETE", P + "/partitions", None, 204, EMPTY),
    ("DELETE", PASSING, None, 204, EMPTY),
    ("DELETE", N, None, 204, EMPTY),
    ("DELETE", "/admin/v2/tenants/{t}", None, 204, EMPTY),
]  # fmt: skip
