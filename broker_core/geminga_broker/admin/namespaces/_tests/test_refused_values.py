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


@pytest.mark.parametrize(
    ("policies", "text"),
    [
        ({"auth_policies": "x"}, "auth_policies: 'x' is not an object"),
        (
            {"auth_policies": {"namespace_auth": {"r": "produce"}}},
            "auth_policies.namespace_auth.r: 'produce' is not an array",
        ),
        ({"backlog_quota_map": 5}, "backlog_quota_map: a number where an object should be"),
        ({"latency_stats_sample_rate": "x"}, "latency_stats_sample_rate: 'x' is not an object"),
        ({"clusterDispatchRate": "x"}, "clusterDispatchRate: 'x' is not an object"),
        ({"is_allow_auto_update_schema": "x"}, "is_allow_auto_update_schema: 'x' is not true or"),
        ({"schema_validation_enforced": "x"}, "schema_validation_enforced: 'x' is not true or"),
        ({"migrated": "x"}, "migrated: 'x' is not true or"),
    ],
)
async def test_a_new_namespace_has_policies_of_their_types(
    policies: dict[str, object], text: str
) -> None:
    """No broker could read its record otherwise."""
    async with admin() as rest:
        answer = await rest.ask("PUT", "/admin/v2/namespaces/public/new", policies)
        assert isinstance(answer, tuple)
        assert answer[0] == 400
        assert str(answer[1]).startswith(text)
        assert await rest.ask("GET", "/admin/v2/namespaces/public") == (200, ["public/default"])


async def test_policies_of_a_new_namespace_are_kept_as_they_are() -> None:
    grants = {"namespace_auth": {"r": ["produce"]}, "destination_auth": {}}
    policies = {
        "auth_policies": grants,
        "backlog_quota_map": {
            "destination_storage": {"limitSize": 5, "policy": "producer_exception"}
        },
        "is_allow_auto_update_schema": "false",
        "schema_validation_enforced": True,
    }
    async with admin() as rest:
        path = "/admin/v2/namespaces/public/new"
        assert await rest.ask("PUT", path, policies) == (204, None)
        assert await rest.ask("GET", f"{path}/permissions") == (200, {"r": ["produce"]})
        quota = {"limit": 5, "limitSize": 5, "limitTime": 0, "policy": "producer_exception"}
        told = await rest.ask("GET", f"{path}/backlogQuotaMap")
        assert isinstance(told, tuple)
        assert told[1].keys() == {"destination_storage"}
        assert told[1]["destination_storage"].items() <= quota.items()
        assert await rest.ask("GET", f"{path}/isAllowAutoUpdateSchema") == (200, False)
        assert await rest.ask("GET", f"{path}/schemaValidationEnforced") == (200, True)
