"""Calls that set a namespace's policies, in the form of `rest_calls.CALLS`, as Apache answers."""

from __future__ import annotations

N = "/admin/v2/namespaces/{t}/n1"
MISSING = "/admin/v2/namespaces/{t}/nope"
NO_NAMESPACE = {"reason": "Namespace does not exist"}
EMPTY = ""
ANY = object()

Call = tuple[str, str, str | None, int, object]


def _life(path: str, value: str, told: object) -> list[Call]:
    """Not set, set, read, removed; and a namespace that isn't there."""
    return [
        ("GET", f"{N}/{path}", None, 200, EMPTY),
        ("POST", f"{N}/{path}", value, 204, EMPTY),
        ("GET", f"{N}/{path}", None, 200, told),
        ("DELETE", f"{N}/{path}", None, 204, EMPTY),
        ("GET", f"{N}/{path}", None, 200, EMPTY),
        ("GET", f"{MISSING}/{path}", None, 404, NO_NAMESPACE),
        ("POST", f"{MISSING}/{path}", value, 404, NO_NAMESPACE),
    ]


CALLS: list[Call] = [
    *_life("deduplication", "true", True),
    ("POST", f"{N}/deduplication", None, 400, ANY),
    *_life("messageTTL", "5", 5),
    ("POST", f"{N}/messageTTL", "-1", 412,
     {"reason": "Invalid value for message TTL, message TTL must >= 0"}),
    ("POST", f"{N}/messageTTL", None, 400, ANY),
    *_life("subscriptionExpirationTime", "7", 7),
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
]  # fmt: skip
