"""The calls of a policy's life over both levels, and what is answered, by the table."""

from __future__ import annotations

import json
from collections.abc import Iterator

from compat_tests.clients.policy_calls import ANY, EMPTY, Call
from compat_tests.policies.model import JSON, Level, Policy

NAMESPACE = "/admin/v2/namespaces/{t}/n1"
TOPIC = "/admin/v2/persistent/{t}/n1/policed"
BEGIN: list[Call] = [
    (
        *("PUT", "/admin/v2/tenants/{t}"),
        *('{"adminRoles":[],"allowedClusters":["standalone"]}', 204, EMPTY),
    ),
    ("PUT", NAMESPACE, None, 204, EMPTY),
    ("PUT", TOPIC, None, 204, EMPTY),
]
END: list[Call] = [
    ("DELETE", TOPIC, None, 204, EMPTY),
    ("DELETE", NAMESPACE, None, 204, EMPTY),
    ("DELETE", "/admin/v2/tenants/{t}", None, 204, EMPTY),
]


class _Told:
    """The reads and writes of one level."""

    def __init__(self, base: str, level: Level) -> None:
        self._base = f"{base}/"
        self._level = level

    def unset(self) -> Call:
        return self._get(self._level.unset, self._level.absent)

    def given(self) -> Call:
        return self._get(self._level.answer, 200)

    def applied(self, answer: JSON) -> Call:
        """With what holds by all levels, if the call tells that."""
        if self._level.applied is None:
            answer = self._level.unset
        status = 200 if answer != EMPTY else self._level.absent
        return self._get(answer, status, "?applied=true")

    def put(self) -> Call:
        level = self._level
        body = None if level.value is None else json.dumps(level.value)
        return (level.verb, self._base + level.set_at, body, level.done, EMPTY)

    def remove(self) -> Call:
        method, path, value = self._level.removed_by
        body = None if value is None else json.dumps(value)
        done = self._level.done if method == self._level.verb else 204
        return (method, self._base + path, body, done, EMPTY)

    def _get(self, answer: JSON, status: int, query: str = "") -> Call:
        # The reason of a 404 isn't what is compared here.
        expected = ANY if status == 404 else answer
        return ("GET", f"{self._base}{self._level.path}{query}", None, status, expected)


def calls_of(policy: Policy) -> list[Call]:
    """Not set, set by the namespace, by both, by the topic alone, not set again."""
    return list(_calls_of(policy))


def _calls_of(policy: Policy) -> Iterator[Call]:
    space, own = policy.namespace, policy.topic
    above = _Told(NAMESPACE, space) if space is not None and space.has_form else None
    topic = _Told(TOPIC, own) if own is not None and own.has_form else None
    if above is not None and space is not None:
        yield above.unset()
        if topic is not None and own is not None:
            yield topic.unset()
            yield topic.applied(own.applied)
        yield above.put()
        yield above.given()
        if topic is not None:
            yield topic.unset()
            yield topic.applied(space.answer)
    if topic is not None and own is not None:
        yield topic.put()
        yield topic.given()
        if own.applied is not None:
            yield topic.applied(own.answer)
    if above is not None:
        yield above.remove()
        yield above.unset()
    if topic is not None and own is not None:
        yield topic.given()
        yield topic.remove()
        yield topic.unset()
        yield topic.applied(own.applied)
