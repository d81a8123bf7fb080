"""What namespaces, resource groups and clusters keep: calls, and Apache Pulsar 4.0.7's answers;
see `rest_calls`.

Left out are calls that Apache's broker answers with the trace of a null pointer, or not at all: a
null body of properties, a null list of allowed clusters, a group that isn't there deleted, a scan
of offloaded ledgers. Left out too is what our broker refuses as not built: replication to another
cluster, and a migration that begins.
"""

from __future__ import annotations

import json

from compat_tests.clients import policy_calls
from compat_tests.clients.rest_calls import ANY, EMPTY, Members, Text, reason

N = "/admin/v2/namespaces/{t}/n1"
X = "/admin/v2/namespaces/{t}/nope"
R = "/admin/v2/resourcegroups"
G = R + "/{t}g"
C = "/admin/v2/clusters/{t}c"
PAUSE = "/dispatcherPauseOnAckStatePersistent"
RATE = "/replicatorDispatchRate"
NO_NAMESPACE = reason("Namespace does not exist")
NO_POLICIES = reason("Namespace policies does not exist")
NO_GROUP = reason("ResourceGroup does not exist")
NO_CLUSTER = reason("Cluster does not exist")
NO_CLUSTERS = reason("ClusterIds should not be null or empty")
NO_PERSISTENCE = reason("persistence policies should not be null")
NOT_ALLOWED = "Cluster [{}] is not in the list of allowed clusters list for {} [{}]"
TOO_FEW = reason(
    "Allowed clusters do not contain the replication cluster standalone. Please remove the "
    "replication cluster if the cluster is not allowed for this namespace"
)
NO_DRIVER = reason(
    "The driver is not supported, support value: S3,aws-s3,google-cloud-storage,filesystem,"
    "azureblob,aliyun-oss"
)
RATES = {
    "publishRateInMsgs": 10,
    "publishRateInBytes": -1,
    "dispatchRateInMsgs": -1,
    "dispatchRateInBytes": -1,
}
OFFLOAD = {
    "offloadersDirectory": "./offloaders",
    "managedLedgerOffloadMaxThreads": 2,
    "managedLedgerOffloadPrefetchRounds": 1,
    "managedLedgerExtraConfigurations": {},
    "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 64 << 20,
    "s3ManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
    "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes": 128 << 20,
    "gcsManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
    "s3Driver": False,
    "gcsDriver": False,
    "fileSystemDriver": False,
}
THRESHOLDS = {
    "managedLedgerOffloadThresholdInSeconds": 20,
    "managedLedgerOffloadThresholdInBytes": 1000,
    "managedLedgerOffloadDeletionLagInMillis": 30,
}
S3 = {
    "managedLedgerOffloadDriver": "aws-s3",
    "managedLedgerOffloadBucket": "b",
    "managedLedgerExtraConfigurations": {"a": "b"},
}
FILES = {
    "managedLedgerOffloadDriver": "filesystem",
    "managedLedgerOffloadedReadPriority": "BOOKKEEPER_FIRST",
    "fileSystemURI": "f:",
}
URL = {"serviceUrl": "http://x:1", "brokerServiceUrl": "pulsar://x:2"}


def stored(ensemble: int, write: int, ack: int, rate: float | None = None) -> str:
    """A body of `persistence`."""
    found: dict[str, float] = {
        "bookkeeperEnsemble": ensemble,
        "bookkeeperWriteQuorum": write,
        "bookkeeperAckQuorum": ack,
    }
    return json.dumps(found if rate is None else found | {"managedLedgerMaxMarkDeleteRate": rate})


CALLS: list[tuple[str, str, str | None, int, object]] = [
    ("PUT", C, '{"serviceUrl":"http://x:8080"}', 200, EMPTY),
    ("PUT", "/admin/v2/clusters/{t}d", '{"serviceUrl":"http://x:8080"}', 200, EMPTY),
    ("POST", C + "/peers", '["{t}d"]', 204, EMPTY),
    ("PUT", "/admin/v2/tenants/{t}",
     '{"adminRoles":["a"],"allowedClusters":["standalone","{t}d"]}', 204, EMPTY),
    ("PUT", N, None, 204, EMPTY),
    ("GET", N + "/properties", None, 200, {}),
    ("PUT", N + "/properties", '{"a":"b","c":"d e"}', 204, EMPTY),
    ("PUT", N + "/properties", '["a"]', 400, ANY),
    ("GET", N + "/properties", None, 200, {"a": "b", "c": "d e"}),
    ("PUT", N + "/property/k%2F1/v%20x+y", None, 204, EMPTY),
    ("GET", N + "/property/k%2F1", None, 200, Text("v x+y")),
    ("GET", N + "/property/a", None, 200, Text("b")),
    ("GET", N + "/property/zz", None, 200, EMPTY),
    ("DELETE", N + "/property/zz", None, 200, EMPTY),
    ("DELETE", N + "/property/a", None, 200, Text("b")),
    ("GET", N + "/properties", None, 200, {"c": "d e", "k/1": "v x+y"}),
    ("DELETE", N + "/properties", None, 204, EMPTY),
    ("GET", N + "/properties", None, 200, {}),
    ("GET", X + "/properties", None, 404, NO_NAMESPACE),
    ("PUT", X + "/properties", '{"a":"b"}', 404, NO_NAMESPACE),
    ("DELETE", X + "/properties", None, 404, NO_NAMESPACE),
    ("GET", X + "/property/a", None, 404, NO_NAMESPACE),
    ("DELETE", X + "/property/a", None, 404, NO_NAMESPACE),
    ("PUT", X + "/property/a/b", None, 404, NO_NAMESPACE),
    ("GET", N + "/allowedClusters", None, 200, []),
    ("POST", N + "/allowedClusters", '["standalone"]', 200, EMPTY),
    ("GET", N + "/allowedClusters", None, 200, ["standalone"]),
    ("POST", N + "/allowedClusters", '["{t}d"]', 400, TOO_FEW),
    ("POST", N + "/allowedClusters", '["standalone","nope"]',
     403, reason(NOT_ALLOWED.format("nope", "tenant", "{t}"))),
    ("POST", N + "/allowedClusters", '["standalone","global"]',
     403, reason(NOT_ALLOWED.format("global", "tenant", "{t}"))),
    ("POST", N + "/allowedClusters", "[]", 400, TOO_FEW),
    ("POST", N + "/allowedClusters", '["standalone","{t}d"]', 200, EMPTY),
    ("GET", N + "/allowedClusters", None, 200, Members(["standalone", "{t}d"])),
    ("GET", X + "/allowedClusters", None, 404, NO_NAMESPACE),
    ("POST", X + "/allowedClusters", '["standalone"]', 404, NO_NAMESPACE),
    ("GET", N + "/replication", None, 200, ["standalone"]),
    ("POST", N + "/replication", '["standalone"]', 200, EMPTY),
    ("POST", N + "/replication", "[]", 412, NO_CLUSTERS),
    ("POST", N + "/replication", None, 412, NO_CLUSTERS),
    ("POST", N + "/replication", '["global"]',
     412, reason("Cannot specify global in the list of replication clusters")),
    ("POST", N + "/replication", '["nope"]', 403, reason("Invalid cluster id: nope")),
    ("POST", N + "/replication", '["{t}c","{t}d"]', 409, ANY),
    ("POST", N + "/replication", '["{t}c"]',
     403, reason(NOT_ALLOWED.format("{t}c", "namespace", "{t}/n1"))),
    ("POST", N + "/replication", '["standalone"]', 200, EMPTY),
    ("GET", N + "/replication", None, 200, ["standalone"]),
    ("GET", X + "/replication", None, 404, NO_NAMESPACE),
    ("POST", X + "/replication", '["standalone"]', 404, NO_NAMESPACE),
    ("GET", N + RATE, None, 200, EMPTY),
    ("POST", N + RATE, policy_calls.DISPATCH_RATE, 204, EMPTY),
    ("GET", N + RATE, None, 200, policy_calls.DISPATCH_TOLD),
    ("POST", N + RATE, None, 204, EMPTY),
    ("GET", N + RATE, None, 200, EMPTY),
    ("DELETE", N + RATE, None, 204, EMPTY),
    ("GET", N + RATE, None, 200, EMPTY),
    ("GET", X + RATE, None, 404, NO_POLICIES),
    ("POST", X + RATE, "{}", 404, ANY),
    ("DELETE", X + RATE, None, 404, ANY),
    ("GET", N + "/persistence", None, 200, EMPTY),
    ("POST", N + "/persistence", stored(3, 2, 1, 2.5), 204, EMPTY),
    ("GET", N + "/persistence", None, 200, json.loads(stored(3, 2, 1, 2.5))),
    ("POST", N + "/persistence", stored(1, 1, 1), 204, EMPTY),
    ("GET", N + "/persistence", None, 200, json.loads(stored(1, 1, 1, 0.0))),
    ("POST", N + "/persistence", stored(1, 2, 1),
     400, reason("Bookkeeper Ensemble (1) >= WriteQuorum (2) >= AckQuorum (1)")),
    ("POST", N + "/persistence", stored(6, 2, 1),
     400, reason("Bookkeeper-Ensemble must be <= 5 and > 0.")),
    ("POST", N + "/persistence", stored(5, 6, 1),
     400, reason("Bookkeeper-WriteQuorum must be <= 5 and > 0.")),
    ("POST", N + "/persistence", stored(5, 5, 0),
     400, reason("Bookkeeper-AckQuorum must be <= 5 and > 0.")),
    ("POST", N + "/persistence", "{}", 204, EMPTY),
    ("POST", N + "/persistence", None, 400, NO_PERSISTENCE),
    ("POST", N + "/persistence", "null", 400, NO_PERSISTENCE),
    ("DELETE", N + "/persistence", None, 204, EMPTY),
    ("GET", N + "/persistence", None, 200, EMPTY),
    ("GET", X + "/persistence", None, 404, NO_NAMESPACE),
    ("POST", X + "/persistence", stored(1, 1, 1), 404, NO_NAMESPACE),
    ("DELETE", X + "/persistence", None, 404, NO_NAMESPACE),
    ("PUT", "/admin/v2/namespaces/{t}/n9",
     '{"persistence":{"bookkeeperEnsemble":9,"bookkeeperWriteQuorum":2,"bookkeeperAckQuorum":1}}',
     400, reason("Bookkeeper-Ensemble must be <= 5 and > 0.")),
    ("PUT", "/admin/v2/namespaces/{t}/n8", '{"replication_clusters":["nope"]}',
     403, reason(NOT_ALLOWED.format("nope", "tenant", "{t}"))),
    ("GET", N + PAUSE, None, 200, False),
    ("POST", N + PAUSE, None, 204, EMPTY),
    ("GET", N + PAUSE, None, 200, True),
    ("DELETE", N + PAUSE, None, 204, EMPTY),
    ("GET", N + PAUSE, None, 200, False),
    ("GET", X + PAUSE, None, 404, NO_POLICIES),
    ("POST", X + PAUSE, None, 404, NO_NAMESPACE),
    ("DELETE", X + PAUSE, None, 404, NO_NAMESPACE),
    ("GET", R, None, 200, []),
    ("GET", G, None, 404, NO_GROUP),
    ("PUT", G, '{"publishRateInMsgs":10}', 204, EMPTY),
    ("GET", G, None, 200, RATES),
    ("PUT", G, '{"dispatchRateInBytes":20,"unknown":1}', 204, EMPTY),
    ("GET", G, None, 200, RATES | {"dispatchRateInBytes": 20}),
    ("PUT", G, '{"publishRateInMsgs":99999999999}', 400, ANY),
    ("PUT", G, "[]", 400, ANY),
    ("GET", R, None, 200, ["{t}g"]),
    ("GET", N + "/resourcegroup", None, 200, EMPTY),
    ("POST", N + "/resourcegroup/nope", None, 412, NO_GROUP),
    ("POST", N + "/resourcegroup/{t}g", None, 204, EMPTY),
    ("GET", N + "/resourcegroup", None, 200, Text("{t}g")),
    ("DELETE", G, None, 412, reason("ResourceGroup is in use")),
    ("DELETE", N + "/resourcegroup", None, 204, EMPTY),
    ("GET", N + "/resourcegroup", None, 200, EMPTY),
    ("GET", X + "/resourcegroup", None, 404, NO_NAMESPACE),
    ("POST", X + "/resourcegroup/{t}g", None, 404, NO_POLICIES),
    ("DELETE", X + "/resourcegroup", None, 404, NO_POLICIES),
    ("DELETE", G, None, 204, EMPTY),
    ("GET", R, None, 200, []),
    ("GET", N + "/offloadPolicies", None, 200, EMPTY),
    ("GET", N + "/offloadThreshold", None, 200, -1),
    ("GET", N + "/offloadThresholdInSeconds", None, 200, -1),
    ("GET", N + "/offloadDeletionLagMs", None, 200, EMPTY),
    ("PUT", N + "/offloadThreshold", "1000", 204, EMPTY),
    ("PUT", N + "/offloadThreshold", None, 400, ANY),
    ("PUT", N + "/offloadThresholdInSeconds", "20", 200, EMPTY),
    ("PUT", N + "/offloadThresholdInSeconds", None, 400, ANY),
    ("PUT", N + "/offloadDeletionLagMs", "30", 204, EMPTY),
    ("PUT", N + "/offloadDeletionLagMs", None, 400, ANY),
    ("GET", N + "/offloadThreshold", None, 200, 1000),
    ("GET", N + "/offloadThresholdInSeconds", None, 200, 20),
    ("GET", N + "/offloadDeletionLagMs", None, 200, 30),
    ("GET", N + "/offloadPolicies", None, 200, OFFLOAD | THRESHOLDS),
    ("DELETE", N + "/offloadDeletionLagMs", None, 204, EMPTY),
    ("GET", N + "/offloadDeletionLagMs", None, 200, EMPTY),
    ("DELETE", N + "/removeOffloadPolicies", None, 204, EMPTY),
    ("GET", N + "/offloadPolicies", None, 200, EMPTY),
    ("GET", N + "/offloadThreshold", None, 200, -1),
    ("POST", N + "/offloadPolicies", json.dumps(S3 | {"managedLedgerOffloadMaxThreads": None}),
     204, EMPTY),
    ("GET", N + "/offloadPolicies", None, 200, OFFLOAD | S3 | {"s3Driver": True}),
    ("GET", N + "/offloadThreshold", None, 200, -1),
    ("POST", N + "/offloadPolicies", '{"managedLedgerOffloadDriver":"aws-s3"}',
     412, reason("The bucket must be specified for namespace offload.")),
    ("POST", N + "/offloadPolicies",
     '{"managedLedgerOffloadDriver":"nope","managedLedgerOffloadBucket":"b"}', 412, NO_DRIVER),
    ("POST", N + "/offloadPolicies", "{}", 412, NO_DRIVER),
    ("POST", N + "/offloadPolicies", None,
     412, reason("The offloadPolicies must be specified for namespace offload.")),
    ("POST", N + "/offloadPolicies", json.dumps(FILES),
     204, EMPTY),
    ("GET", N + "/offloadPolicies", None, 200, OFFLOAD | FILES | {"fileSystemDriver": True}),
    ("DELETE", N + "/removeOffloadPolicies", None, 204, EMPTY),
    ("GET", X + "/offloadPolicies", None, 404, NO_NAMESPACE),
    ("DELETE", X + "/removeOffloadPolicies", None, 409, reason("Concurrent modification")),
    ("PUT", X + "/offloadThreshold", "1", 404, NO_NAMESPACE),
    ("PUT", X + "/offloadThresholdInSeconds", "1", 404, NO_NAMESPACE),
    ("PUT", X + "/offloadDeletionLagMs", "1", 404, NO_NAMESPACE),
    ("GET", X + "/offloadThreshold", None, 404, NO_NAMESPACE),
    ("POST", N + "/migration", "false", 204, EMPTY),
    ("POST", N + "/migration", None, 400, ANY),
    ("GET", C + "/migrate", None, 404, NO_CLUSTER),
    ("POST", C + "/migrate?migrated=false", json.dumps(URL),
     200, EMPTY),
    ("GET", C + "/migrate", None,
     200, {"migrated": False, "migratedClusterUrl": URL | {"empty": False}}),
    ("POST", C + "/migrate?migrated=false", "{}", 200, EMPTY),
    ("GET", C + "/migrate", None,
     200, {"migrated": False, "migratedClusterUrl": {"empty": False}}),
    ("POST", C + "/migrate?migrated=true",
     '{"serviceUrl":"http://x:1","serviceUrlTls":"https://x:1"}',
     400, reason("Cluster url must not be empty")),
    ("GET", "/admin/v2/clusters/{t}e", None, 404, NO_CLUSTER),
    ("POST", C + "/peers", "[]", 204, EMPTY),
    ("DELETE", N, None, 204, EMPTY),
    ("DELETE", "/admin/v2/tenants/{t}", None, 204, EMPTY),
    ("DELETE", C, None, 204, EMPTY),
    ("DELETE", "/admin/v2/clusters/{t}d", None, 204, EMPTY),
]  # fmt: skip
