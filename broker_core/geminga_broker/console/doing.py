"""Forms that ask before something is done, and what does it when they are posted."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from geminga_broker.console.actions import OF_SUBSCRIPTIONS, OF_TOPICS, Action, Target
from geminga_broker.console.calls import CallFailed
from geminga_broker.console.render import link
from geminga_broker.console.site import Visit


def _target(visit: Visit) -> tuple[Action, Target, list[str]]:
    """Also the page of what it is done to. Raises CallFailed."""
    topic = visit.topic
    place = ["topics", *topic.parts]
    listed, subscription = OF_TOPICS, ""
    if "subscription" in visit.request.path_params:
        subscription = visit.parameter("subscription")
        listed, place = OF_SUBSCRIPTIONS, [*place, "subscriptions", subscription]
    name = visit.parameter("action")
    for action in listed:
        if action.name == name:
            return action, Target(topic, subscription), place
    raise CallFailed(404, "The console can't do that")


async def _ask(visit: Visit) -> Response:
    return _form(visit, {}, "")


def _form(visit: Visit, given: Mapping[str, str], error: str, status: int = 200) -> Response:
    action, target, place = _target(visit)
    return visit.page(
        "confirm.html",
        status,
        action=action,
        target=target,
        place=place,
        given={each.name: given.get(each.name, each.default) for each in action.fields},
        error=error,
    )


async def _do(visit: Visit) -> Response:
    action, target, place = _target(visit)
    fields = await visit.form()
    if action.typed and fields.get("name", "").strip() != target.topic.topic:
        return _form(visit, fields, "Type the topic's name to confirm it.", 400)
    try:
        message_id = await action.run(visit.rest, target, fields)
    except CallFailed as error:
        return _form(visit, fields, error.reason, error.status)
    return visit.to(link(place, {"did": action.name, "id": message_id}))


_TOPIC = "/topics/{domain}/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION = f"{_TOPIC}/subscriptions/{{subscription}}"

VIEWS = (
    (f"GET {_TOPIC}/do/{{action}}", _ask),
    (f"POST {_TOPIC}/do/{{action}}", _do),
    (f"GET {_SUBSCRIPTION}/do/{{action}}", _ask),
    (f"POST {_SUBSCRIPTION}/do/{{action}}", _do),
)
