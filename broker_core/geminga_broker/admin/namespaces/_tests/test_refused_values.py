"""Values of namespaces' policies that no broker could use, with Apache's answers."""

from __future__ import annotations

import pytest

from geminga_broker.admin._tests.test_schema_routes import admin

SPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/t"
LARGE = 1 << 31
ZERO = {
    "reason": "Invalid retention policy: Setting a single time or size limit to 0 is invalid when "
    "one of the limits has a non-zero value. Use the value of -1 instead of 0 to ignore a specific "
    "limit. To disable retention both limits must be set to 0."
}


def retention(minutes: int, size_mb: int) -> dict[str, int]:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size_mb}


def limit(which: str) -> object:
    return 400, {"reason": f"Invalid retention policy: {which} limit must be >= -1"}


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("messageTTL", LARGE, "message_ttl_in_seconds"),
        ("maxProducersPerTopic", LARGE, "max_producers_per_topic"),
        ("maxTopicsPerNamespace", LARGE, "max_topics_per_namespace"),
        ("deduplicationSnapshotInterval", LARGE, "deduplicationSnapshotIntervalSeconds"),
        ("retention", retention(LARGE, 1), "retention_policies.retentionTimeInMinutes"),
        (
            "dispatchRate",
            {"dispatchThrottlingRateInMsg": LARGE},
            "topicDispatchRate.standalone.dispatchThrottlingRateInMsg",
        ),
        (
            "backlogQuota",
            {"limitTime": LARGE, "policy": "producer_exception"},
            "backlog_quota_map.destination_storage.limitTime",
        ),
    ],
)
async def test_numbers_that_apaches_broker_could_not_read(
    path: str, body: object, place: str
) -> None:
    """With one in its record, a namespace would have no topics at Apache's brokers any more."""
    async with admin() as rest:
        before = await rest.ask("GET", SPACE)
        answer = await rest.ask("POST", f"{SPACE}/{path}", body)
        assert answer == (400, f"{place}: number {LARGE} is out of range")
        assert await rest.ask("GET", SPACE) == before


async def test_bytes_and_milliseconds_may_be_larger() -> None:
    async with admin() as rest:
        for path, body in (
            ("retention", retention(1, LARGE)),
            ("dispatchRate", {"dispatchThrottlingRateInByte": LARGE}),
            ("publishRate", {"publishThrottlingRateInByte": LARGE}),
            ("delayedDelivery", {"active": True, "maxDeliveryDelayInMillis": LARGE}),
            ("backlogQuota", {"limitSize": LARGE, "policy": "producer_exception"}),
        ):
            assert await rest.ask("POST", f"{SPACE}/{path}", body) == (204, None), path
        assert await rest.ask("PUT", f"{SPACE}/compactionThreshold", LARGE) == (204, None)


async def test_a_new_namespace_has_no_value_that_its_own_call_refuses() -> None:
    async with admin() as rest:
        for number, (policies, answer) in enumerate(
            (
                ({"retention_policies": retention(0, 5)}, (400, ZERO)),
                ({"retention_policies": retention(-2, 5)}, limit("time")),
                ({"retention_policies": retention(5, -2)}, limit("size")),
                (
                    {"message_ttl_in_seconds": -1},
                    (412, {"reason": "Invalid value for message TTL"}),
                ),
                (
                    {"max_producers_per_topic": LARGE},
                    (400, f"max_producers_per_topic: number {LARGE} is out of range"),
                ),
                ({"retention_policies": retention(5, 5)}, (204, None)),
            )
        ):
            path = f"/admin/v2/namespaces/public/new{number}"
            assert await rest.ask("PUT", path, policies) == answer, policies
            there = await rest.ask("GET", path)
            assert isinstance(there, tuple)
            assert there[0] == (200 if answer[0] == 204 else 404)


async def test_limits_of_retention_have_apaches_sentences() -> None:
    async with admin() as rest:
        assert await rest.ask("PUT", TOPIC) == (204, None)
        for path in (SPACE, TOPIC):
            assert await rest.ask("POST", f"{path}/retention", retention(5, 0)) == (400, ZERO)
            assert await rest.ask("POST", f"{path}/retention", retention(-2, 5)) == limit("time")
            assert await rest.ask("POST", f"{path}/retention", retention(5, -2)) == limit("size")
