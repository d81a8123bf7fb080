"""Bodies of odd types for every policy, and how Apache's broker takes them.

``lenient_bodies.json`` beside this has its answers: status of the request, then status and body of
a GET. It was written by ``python -m compat_tests.clients.lenient_bodies WEB_URL`` against Apache
Pulsar 4.0.7.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

import httpx2 as httpx

RECORD = Path(__file__).with_name("lenient_bodies.json")
BODIES = ("", "null", '""', "{}", "[]", '"5"', "5", "5.9", "true", '"TRUE"', '"x"')
OF_NAMESPACES = (
    *("deduplication", "deduplicationSnapshotInterval", "messageTTL", "subscriptionExpirationTime"),
    *("publishRate", "dispatchRate", "subscriptionDispatchRate", "subscribeRate"),
    *("maxProducersPerTopic", "maxSubscriptionsPerTopic", "maxUnackedMessagesPerConsumer"),
    *("maxTopicsPerNamespace", "delayedDelivery", "inactiveTopicPolicies"),
    *("subscriptionTypesEnabled", "autoTopicCreation", "autoSubscriptionCreation"),
    *("PUT compactionThreshold", "encryptionRequired", "retention", "backlogQuota"),
    *("PUT schemaCompatibilityStrategy", "isAllowAutoUpdateSchema", "schemaValidationEnforced"),
)
OF_TOPICS = (
    *("maxProducers", "maxConsumers", "maxUnackedMessagesOnConsumer", "maxSubscriptionsPerTopic"),
    *("deduplicationEnabled", "deduplicationSnapshotInterval", "publishRate", "dispatchRate"),
    *("subscribeRate", "compactionThreshold", "delayedDelivery", "inactiveTopicPolicies"),
    *("subscriptionTypesEnabled", "autoSubscriptionCreation", "retention", "backlogQuota"),
    *("PUT schemaCompatibilityStrategy", "schemaValidationEnforced"),
)
MEMBERS = (
    ("retention", '{"retentionTimeInMinutes": "10", "retentionSizeInMB": 10.7, "more": [1]}'),
    ("backlogQuota", '{"limit": "10240", "policy": "producer_request_hold"}'),
    ("backlogQuota", '{"limitSize": 10240, "limitTime": null, "policy": 1}'),
    ("backlogQuota", '{"limitSize": 10240, "policy": ""}'),
    ("dispatchRate", '{"dispatchThrottlingRateInMsg": null, "relativeToPublishRate": "True"}'),
    ("publishRate", '{"publishThrottlingRateInMsg": "5", "publishThrottlingRateInByte": null}'),
    ("delayedDelivery", '{"active": 1, "tickTime": "1500"}'),
    ("inactiveTopicPolicies", '{"inactiveTopicDeleteMode": "", "deleteWhileInactive": "true"}'),
    ("inactiveTopicPolicies", '{"inactiveTopicDeleteMode": 1}'),
    ("autoSubscriptionCreation", '{"allowAutoSubscriptionCreation": "false"}'),
)
OF_NAMESPACES_ONLY = (
    ("autoTopicCreation", '{"allowAutoTopicCreation": 1, "topicType": "", "x": 1}'),
    ("autoTopicCreation", '{"allowAutoTopicCreation": 1, "topicType": null}'),
    (
        "autoTopicCreation",
        (
            '{"allowAutoTopicCreation": "true", "topicType": "partitioned", '
            '"defaultNumPartitions": "3"}'
        ),
    ),
)

Answer = tuple[int, int, str]


def calls() -> list[tuple[str, str, str]]:
    """Level, path with its verb, and body."""
    return [
        *(("namespace", path, body) for path in OF_NAMESPACES for body in BODIES),
        *(("namespace", path, body) for path, body in (*MEMBERS, *OF_NAMESPACES_ONLY)),
        *(("topic", path, body) for path in OF_TOPICS for body in BODIES),
        *(("topic", path, body) for path, body in MEMBERS),
    ]


def answers(web_url: str) -> dict[str, Answer]:
    """What the server says to every call, each on a policy that was deleted before."""
    namespace = f"public/lenient{uuid.uuid4().hex[:8]}"
    found: dict[str, Answer] = {}
    with httpx.Client(base_url=f"{web_url}/admin/v2/", timeout=60) as client:
        client.put(f"namespaces/{namespace}").raise_for_status()
        client.put(f"persistent/{namespace}/t").raise_for_status()
        for level, path, body in calls():
            root = (
                f"namespaces/{namespace}" if level == "namespace" else f"persistent/{namespace}/t"
            )
            verb, _, name = path.rpartition(" ")
            headers = {"content-type": "application/json"}
            client.delete(f"{root}/{name}")
            told = client.request(
                verb or "POST", f"{root}/{name}", content=body.encode(), headers=headers
            )
            read = client.get(f"{root}/{'backlogQuotaMap' if name == 'backlogQuota' else name}")
            found[f"{level} {path} {body}"] = told.status_code, read.status_code, read.text
        client.delete(f"persistent/{namespace}/t?force=true").raise_for_status()
        client.delete(f"namespaces/{namespace}").raise_for_status()
    return found


if __name__ == "__main__":
    lines = [
        f"{json.dumps(call)}: {json.dumps(each)}" for call, each in answers(sys.argv[1]).items()
    ]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
