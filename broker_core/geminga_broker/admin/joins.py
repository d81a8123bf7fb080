"""One response of those of a topic's partitions, as Apache's PersistentTopicsBase joins them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from geminga_broker.admin import rest
from geminga_broker.admin.calls import Answer, raise_first
from geminga_broker.diagnosis.answer import missing_on, worst_first
from geminga_protocol.topic_name import TopicName


class Asked(NamedTuple):
    """The call on the whole topic."""

    name: TopicName
    request: Request

    @property
    def no_subscription(self) -> str:
        """Apache's text for a subscription that a partition lacks: it names the whole topic."""
        subscription = rest.subscription_of(self.request)
        return f"Subscription {subscription} not found for topic {self.name}"


Join = Callable[[Sequence[Answer], Asked], Response]


class Each(NamedTuple):
    """How the call of a partitioned topic is made of its partitions'. `creates`: a missing topic is
    made by policy, perhaps a partitioned one.
    """

    join: Join
    creates: bool = False


def all_done(answers: Sequence[Answer], _asked: Asked) -> Response:
    """204 if all succeeded. Raises the first error."""
    raise_first(answers)
    return rest.no_content()


def all_trimmed(answers: Sequence[Answer], _asked: Asked) -> Response:
    """200 if all succeeded. Raises the first error."""
    raise_first(answers)
    return Response()


def all_have_subscription(answers: Sequence[Answer], asked: Asked) -> Response:
    """The same; a missing subscription is told first."""
    _require_subscription(answers, asked)
    return all_done(answers, asked)


NO_EXPIRY = "Expire messages on a non-persistent topic is not allowed"


def all_expired(answers: Sequence[Answer], asked: Asked) -> Response:
    """The same; partitions that keep no messages have none that expire, whether there are any."""
    if not asked.name.is_persistent:
        raise rest.RestError(405, NO_EXPIRY)
    return all_have_subscription(answers, asked)


def unsubscribed(answers: Sequence[Answer], asked: Asked) -> Response:
    """The same, with the texts of an unsubscription."""
    for status, reason in (
        (404, "Subscription not found"),
        (412, "Subscription has active connected consumers"),
    ):
        if any(answer.status == status for answer in answers):
            raise rest.RestError(status, reason)
    return all_done(answers, asked)


def made_somewhere(answers: Sequence[Answer], asked: Asked) -> Response:
    """A subscription that some partitions had already; if all had it, the error says so."""
    raise_first(answers, but=409)
    if all(answer.status == 409 for answer in answers):
        raise answers[-1].error()
    return rest.no_content()


def moved_somewhere(answers: Sequence[Answer], asked: Asked) -> Response:
    """A cursor that some partitions can't set, as they have no messages of that time."""
    raise_first(answers, but=412)
    if all(answer.status == 412 for answer in answers):
        raise answers[-1].error()
    return rest.no_content()


def names_of_any(answers: Sequence[Answer], _asked: Asked) -> Response:
    """The subscriptions of all partitions that exist."""
    raise_first(answers, but=404)
    found: dict[str, None] = {}
    for answer in answers:
        if not answer.is_error:
            found.update(dict.fromkeys(answer.json(list[str])))
    return rest.ok(list(found), list[str])


def properties_of_all(answers: Sequence[Answer], asked: Asked) -> Response:
    """A subscription's properties on all partitions."""
    _require_subscription(answers, asked)
    raise_first(answers)
    found: dict[str, str] = {}
    for answer in answers:
        found |= answer.json(dict[str, str])
    return rest.ok(found, dict[str, str])


def findings_of_all(answers: Sequence[Answer], asked: Asked) -> Response:
    """Why a subscription gets nothing, on each partition that has it; the worst first."""
    raise_first(answers, but=404)
    known = [answer for answer in answers if not answer.is_error]
    if not known:
        raise rest.RestError(404, asked.no_subscription)
    found = [each for answer in known for each in answer.json(list[dict[str, str]])]
    for number, answer in enumerate(answers):
        if answer.is_error:
            subscription = rest.subscription_of(asked.request)
            found.append(missing_on(str(asked.name.partition(number)), subscription))
    return rest.ok(worst_first(found), list[dict[str, str]])


def replicated_by_topic(answers: Sequence[Answer], _asked: Asked) -> Response:
    """Whether a subscription is replicated, by partition."""
    raise_first(answers)
    found: dict[str, bool] = {}
    for answer in answers:
        found |= answer.json(dict[str, bool])
    return rest.ok(found, dict[str, bool])


def replicated_everywhere(answers: Sequence[Answer], asked: Asked) -> Response:
    """204 if all were changed."""
    if any(answer.status == 404 for answer in answers):
        raise rest.RestError(404, "Topic or subscription not found")
    return all_done(answers, asked)


def _require_subscription(answers: Sequence[Answer], asked: Asked) -> None:
    if any(answer.status == 404 for answer in answers):
        raise rest.RestError(404, asked.no_subscription)


_SUBSCRIPTION = "/subscription/{subscription}"

EACH: dict[str, Each] = {
    "PUT /unload": Each(all_done),
    "PUT /compaction": Each(all_done),
    "DELETE /truncate": Each(all_done),
    "GET /subscriptions": Each(names_of_any),
    f"PUT {_SUBSCRIPTION}": Each(made_somewhere, creates=True),
    f"DELETE {_SUBSCRIPTION}": Each(unsubscribed),
    f"GET {_SUBSCRIPTION}/properties": Each(properties_of_all),
    f"PUT {_SUBSCRIPTION}/properties": Each(all_have_subscription),
    f"GET {_SUBSCRIPTION}/replicatedSubscriptionStatus": Each(replicated_by_topic),
    f"POST {_SUBSCRIPTION}/replicatedSubscriptionStatus": Each(replicated_everywhere),
    f"POST {_SUBSCRIPTION}/skip_all": Each(all_have_subscription),
    f"POST {_SUBSCRIPTION}/resetcursor/{{timestamp}}": Each(moved_somewhere),
    f"GET {_SUBSCRIPTION}/why": Each(findings_of_all),
    "POST /trim": Each(all_trimmed),
    "POST /all_subscription/expireMessages/{seconds}": Each(all_done),
    f"POST {_SUBSCRIPTION}/expireMessages/{{seconds}}": Each(all_expired),
}
"""By method and the path after the topic; `topic_rules` says PARTITIONS for the same ones."""


def of(method: str, path: str) -> Each:
    """How that route's calls on partitions are joined."""
    return EACH[f"{method} {path}"]
