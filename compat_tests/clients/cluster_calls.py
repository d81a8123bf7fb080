"""Calls about brokers, clusters, bundles and quotas that a single broker answers, and Apache Pulsar
4.0.7's answers; see `rest_calls`. `{b}` is the broker's id, `{c}` a cluster made for the run.

Left out are calls that Apache's broker answers with the trace of a null pointer, and regular
expressions of brokers with a syntax error, whose echo we write otherwise.
"""

from __future__ import annotations

from compat_tests.clients.rest_calls import ANY, EMPTY, keys, reason

POLICY = (
    '{"namespaces":["{t}x/.*"],"primary":["nobody.*"],"secondary":["other.*"],'
    '"auto_failover_policy":{"policy_type":"min_available",'
    '"parameters":{"min_limit":"1","usage_threshold":"80"}}}'
)
STORED = {
    "namespaces": ["{t}x/.*"],
    "primary": ["nobody.*"],
    "secondary": ["other.*"],
    "auto_failover_policy": {
        "parameters": {"min_limit": "1", "usage_threshold": "80"},
        "policy_type": "min_available",
    },
}
C = "/admin/v2/clusters/{c}"
ISOLATION = C + "/namespaceIsolationPolicies"
DOMAINS = C + "/failureDomains"
B = "/admin/v2/brokers"
N = "/admin/v2/namespaces/{t}/n"
Q = "/admin/v2/resource-quotas"
FIRST = "0x00000000_0x40000000"
QUOTA = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100000.0,
    "bandwidthOut": 300000.0,
    "memory": 80.0,
    "dynamic": True,
}
OTHER_QUOTA = (
    '{"msgRateIn":7,"msgRateOut":30,"bandwidthIn":1000,"bandwidthOut":3000,"memory":80,'
    '"dynamic":false}'
)
NO_POLICIES = reason("NamespaceIsolationPolicies for cluster {c} does not exist")
NO_CLUSTER = reason("Cluster {t}no does not exist.")
SHORT = "0x00000000_0x10000000"
TOO_SHORT = reason(
    "Invalid upper boundary for bundle {t}/n/"
    + SHORT
    + ". Expected upper boundary of {t}/n/"
    + FIRST
)
NOT_KNOWN = reason("Broker id 'x:1' not found in available brokers.")
CUT = ["0x00000000", "0x20000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]

CALLS: list[tuple[str, str, str | None, int, object]] = [
    ("GET", B, None, 200, ["{b}"]),
    ("GET", B + "/standalone", None, 200, ["{b}"]),
    ("GET", B + "/leaderBroker", None, 200, keys("serviceUrl brokerId")),
    ("GET", B + "/standalone/x:1/ownedNamespaces", None, 404, NOT_KNOWN),
    ("GET", B + "/standalone/{b}/ownedNamespaces", None, 200, ANY),
    ("POST", B + "/configuration/maxConcurrentLookupRequest/50000", None, 200, EMPTY),
    ("GET", B + "/configuration/values", None, 200, {"maxConcurrentLookupRequest": "50000"}),
    ("POST", B + "/configuration/brokerServicePort/1", None, 412,
     reason("Can't update non-dynamic configuration")),
    ("POST", B + "/configuration/loadManagerClassName/x.y", None, 412,
     reason(" Invalid dynamic-config value")),
    ("DELETE", B + "/configuration/maxConcurrentLookupRequest", None, 200, EMPTY),
    ("DELETE", B + "/configuration/maxConcurrentLookupRequest", None, 200, EMPTY),
    ("DELETE", B + "/configuration/nope", None, 412,
     reason("Can't delete non-dynamic configuration")),
    ("GET", B + "/configuration/values", None, 200, {}),
    ("GET", B + "/internal-configuration", None, 200, keys(
        "zookeeperServers configurationStoreServers metadataStoreUrl "
        "configurationMetadataStoreUrl ledgersRootPath")),
    ("GET", B + "/backlog-quota-check", None, 204, EMPTY),
    ("GET", B + "/health?brokerId=x:1", None, 404, NOT_KNOWN),
    ("PUT", C, '{"serviceUrl":"http://x:8080"}', 200, EMPTY),
    ("GET", C, None, 200, {
        "serviceUrl": "http://x:8080", "brokerClientTlsEnabled": False,
        "tlsAllowInsecureConnection": False, "brokerClientTlsEnabledWithKeyStore": False}),
    ("POST", C, '{"serviceUrl":"http://z:8080"}', 200, EMPTY),
    ("POST", "/admin/v2/clusters/{t}no", '{"serviceUrl":"http://z:8080"}', 404,
     reason("Cluster does not exist")),
    ("PUT", "/admin/v2/clusters/{t}no", None, 400, reason("cluster data is required")),
    ("PUT", "/admin/v2/clusters/{t}no", '{"serviceUrl":"pulsar://z:1"}', 400,
     reason("Illegal service url, example: http://pulsar.example.com:8080")),
    ("PUT", "/admin/v2/clusters/{t}no", '{"brokerServiceUrl":"http://z:1"}', 400,
     reason("Illegal broker service url, example: pulsar://pulsar.example.com:6650")),
    ("GET", C + "/peers", None, 200, EMPTY),
    ("POST", C + "/peers", '["{c}"]', 412, reason("{c} itself can't be part of peer-list")),
    ("POST", C + "/peers", '["{t}no"]', 412, reason("Peer cluster {t}no does not exist")),
    ("POST", C + "/peers", '["standalone"]', 204, EMPTY),
    ("GET", C + "/peers", None, 200, ["standalone"]),
    ("POST", C + "/peers", "[]", 204, EMPTY),
    ("GET", C + "/peers", None, 200, []),
    ("POST", C + "/peers", None, 204, EMPTY),
    ("GET", C + "/peers", None, 200, EMPTY),
    ("GET", "/admin/v2/clusters/{t}no/peers", None, 404, reason("Cluster does not exist")),
    ("POST", "/admin/v2/clusters/{t}no/peers", "[]", 404, reason("Cluster does not exist")),
    ("GET", ISOLATION, None, 404, NO_POLICIES),
    ("GET", ISOLATION + "/brokers", None, 404, NO_POLICIES),
    ("GET", ISOLATION + "/brokers/x", None, 404, NO_POLICIES),
    ("GET", ISOLATION + "/p1", None, 404, NO_POLICIES),
    ("GET", "/admin/v2/clusters/{t}no/namespaceIsolationPolicies", None, 404, NO_CLUSTER),
    ("GET", "/admin/v2/clusters/{t}no/namespaceIsolationPolicies/p1", None, 412, NO_CLUSTER),
    ("DELETE", ISOLATION + "/p1", None, 204, EMPTY),
    ("GET", ISOLATION, None, 200, {}),
    ("POST", ISOLATION + "/p1", POLICY, 204, EMPTY),
    ("GET", ISOLATION, None, 200, {"p1": STORED}),
    ("GET", ISOLATION + "/p1", None, 200, STORED),
    ("GET", ISOLATION + "/nope", None, 404,
     reason("Cannot find NamespaceIsolationPolicy nope for cluster {c}")),
    ("GET", ISOLATION + "/brokers", None, 200,
     [{"brokerName": "{b}", "namespaceRegex": [], "primary": False}]),
    ("GET", ISOLATION + "/brokers/other1", None, 200,
     {"brokerName": "other1", "policyName": "p1", "namespaceRegex": ["{t}x/.*"],
      "primary": False}),
    ("POST", ISOLATION + "/p2", "{}", 400, keys("reason")),
    ("POST", ISOLATION + "/p2", POLICY.replace('"1"', '"x"'), 400, keys("reason")),
    ("POST", ISOLATION + "/p3", POLICY.replace("}}}", '}},"unload_scope":"none"}'), 204, EMPTY),
    ("GET", ISOLATION + "/p3", None, 200, STORED | {"unload_scope": "none"}),
    ("POST", "/admin/v2/clusters/{t}no/namespaceIsolationPolicies/p1", POLICY, 412, NO_CLUSTER),
    ("DELETE", C, None, 412, reason("Cluster not empty")),
    ("DELETE", ISOLATION + "/p1", None, 204, EMPTY),
    ("DELETE", ISOLATION + "/p1", None, 204, EMPTY),
    ("DELETE", ISOLATION + "/p3", None, 204, EMPTY),
    ("GET", DOMAINS, None, 200, {}),
    ("GET", DOMAINS + "/d1", None, 404, reason("Domain d1 for cluster {c} does not exist")),
    ("GET", "/admin/v2/clusters/{t}no/failureDomains", None, 200, {}),
    ("GET", "/admin/v2/clusters/{t}no/failureDomains/d1", None, 412, NO_CLUSTER),
    ("POST", DOMAINS + "/d1", '{"brokers":["a:1","b:2"]}', 204, EMPTY),
    ("GET", DOMAINS, None, 200, {"d1": {"brokers": ["a:1", "b:2"]}}),
    ("GET", DOMAINS + "/d1", None, 200, {"brokers": ["a:1", "b:2"]}),
    ("POST", DOMAINS + "/d2", '{"brokers":["b:2"]}', 409, reason("[b:2] already exists in d1")),
    ("POST", DOMAINS + "/d2", "{}", 204, EMPTY),
    ("GET", DOMAINS + "/d2", None, 200, {}),
    ("POST", DOMAINS + "/d3", None, 204, EMPTY),
    ("GET", DOMAINS + "/d3", None, 404, reason("Domain d3 for cluster {c} does not exist")),
    ("DELETE", DOMAINS + "/d1", None, 200, EMPTY),
    ("DELETE", DOMAINS + "/d1", None, 404,
     reason("Domain-name d1 or cluster {c} does not exist")),
    ("DELETE", "/admin/v2/clusters/{t}no/failureDomains/d1", None, 412, NO_CLUSTER),
    ("DELETE", DOMAINS + "/d2", None, 200, EMPTY),
    ("DELETE", C, None, 204, EMPTY),
    ("PUT", "/admin/v2/tenants/{t}", '{"allowedClusters":["standalone"]}', 204, EMPTY),
    ("PUT", N, None, 204, EMPTY),
    ("GET", Q, None, 200, QUOTA),
    ("GET", f"{Q}/{{t}}/n/{FIRST}", None, 200, QUOTA),
    ("GET", f"{Q}/{{t}}/n/{SHORT}", None, 412, TOO_SHORT),
    ("GET", Q + "/{t}/n/x", None, 412, reason("Invalid bundle range: x")),
    ("GET", f"{Q}/{{t}}/no/{FIRST}", None, 404, reason("Namespace does not exist")),
    ("POST", f"{Q}/{{t}}/n/{FIRST}", OTHER_QUOTA, 204, EMPTY),
    ("GET", f"{Q}/{{t}}/n/{FIRST}", None, 200, {
        "msgRateIn": 7.0, "msgRateOut": 30.0, "bandwidthIn": 1000.0, "bandwidthOut": 3000.0,
        "memory": 80.0, "dynamic": False}),
    ("DELETE", f"{Q}/{{t}}/n/{FIRST}", None, 204, EMPTY),
    ("GET", f"{Q}/{{t}}/n/{FIRST}", None, 200, QUOTA),
    ("DELETE", f"{Q}/{{t}}/n/{FIRST}", None, 404,
     reason(f"path /loadbalance/resource-quota/{{t}}/n/{FIRST} not found.")),
    ("GET", "/admin/v2/broker-stats/load-report", None, 200, ANY),
    ("GET", "/admin/v2/broker-stats/metrics", None, 200, ANY),
    ("GET", "/admin/v2/broker-stats/topics", None, 200, ANY),
    ("GET", "/admin/v2/broker-stats/allocator-stats/default", None, 200, keys(
        "numDirectArenas numHeapArenas numThreadLocalCaches normalCacheSize smallCacheSize "
        "usedDirectMemory usedHeapMemory directArenas heapArenas")),
    ("GET", "/admin/v2/broker-stats/allocator-stats/foo", None, 406,
     reason("Invalid allocator name : foo")),
    ("GET", "/admin/v2/broker-stats/broker-resource-availability/{t}/n", None, 409,
     reason("org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerWrapper does not support "
            "this operation")),
    ("GET", N + "/topics?mode=foo", None, 404, ANY),
    ("POST", f"{N}/{SHORT}/clearBacklog", None, 412, TOO_SHORT),
    ("POST", N + "/xyz/clearBacklog", None, 412, reason("Invalid bundle range: xyz")),
    ("POST", "/admin/v2/namespaces/{t}/no/clearBacklog", None, 204, EMPTY),
    ("POST", f"/admin/v2/namespaces/{{t}}/no/{FIRST}/clearBacklog", None, 404,
     reason("Namespace does not exist")),
    ("POST", N + "/clearBacklog", None, 204, EMPTY),
    ("POST", N + "/unsubscribe/nope", None, 204, EMPTY),
    ("GET", f"{N}/{SHORT}/topicHashPositions", None, 412, TOO_SHORT),
    ("GET", f"/admin/v2/namespaces/{{t}}/no/{FIRST}/topicHashPositions", None, 404,
     reason("Namespace does not exist")),
    ("PUT", f"{N}/{FIRST}/unload", None, 204, EMPTY),
    ("PUT", f"{N}/{SHORT}/unload", None, 412, TOO_SHORT),
    ("PUT", f"{N}/{FIRST}/unload?destinationBroker=x:1", None, 409,
     reason("Not allowed unload namespace bundle to inactive destination broker")),
    ("PUT", f"/admin/v2/namespaces/{{t}}/no/{FIRST}/unload", None, 404,
     reason("Namespace not found")),
    ("PUT", N + "/unload", None, 204, EMPTY),
    ("PUT", "/admin/v2/namespaces/{t}/no/unload", None, 404, reason("Namespace not found")),
    ("PUT", f"{N}/{FIRST}/split?splitAlgorithmName=foo", None, 412, reason(
        "Unsupported namespace bundle split algorithm, supported algorithms are "
        "[range_equally_divide, topic_count_equally_divide, specified_positions_divide, "
        "flow_or_qps_equally_divide]")),
    ("PUT", f"{N}/{FIRST}/split?splitAlgorithmName=specified_positions_divide", None, 412, reason(
        "With specified_positions_divide split algorithm, splitBoundaries must not be empty")),
    ("PUT", f"{N}/{SHORT}/split", None, 412, TOO_SHORT),
    ("PUT", N + "/HOT/split", None, 404, reason("Bundle range HOT not found")),
    ("PUT", f"/admin/v2/namespaces/{{t}}/no/{FIRST}/split", None, 404,
     reason("Namespace not found")),
    ("PUT", f"{N}/{FIRST}/split", None, 204, EMPTY),
    ("GET", N + "/bundles", None, 200, {"boundaries": CUT, "numBundles": 5}),
    ("PUT", f"{N}/0x40000000_0x80000000/split?splitAlgorithmName=topic_count_equally_divide",
     None, 204, EMPTY),
    ("GET", N + "/bundles", None, 200, {"boundaries": CUT, "numBundles": 5}),
    ("GET", N + "/antiAffinity", None, 204, EMPTY),
    ("POST", N + "/antiAffinity", "{t}g", 204, EMPTY),
    ("POST", N + "/antiAffinity", " ", 412, reason("antiAffinityGroup can't be empty")),
    ("GET", "/admin/v2/namespaces/standalone/antiAffinity/{t}G?tenant={t}", None, 200, ["{t}/n"]),
    ("GET", "/admin/v2/namespaces/standalone/antiAffinity/{t}o?tenant={t}", None, 200, []),
    ("GET", "/admin/v2/namespaces/standalone/antiAffinity/g", None, 400,
     reason("Tenant should not be null")),
    ("GET", "/admin/v2/namespaces/{t}no/antiAffinity/g?tenant={t}", None, 412, NO_CLUSTER),
    ("DELETE", N + "/antiAffinity", None, 204, EMPTY),
    ("GET", N + "/antiAffinity", None, 204, EMPTY),
    ("GET", N + "/bundles", None, 200, {"boundaries": CUT, "numBundles": 5}),
    ("DELETE", N, None, 204, EMPTY),
    ("DELETE", "/admin/v2/tenants/{t}", None, 204, EMPTY),
]  # fmt: skip
