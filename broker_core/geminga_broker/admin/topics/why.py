"""Why a subscription gets nothing, over REST (spec OP-12). Apache has no such path: it stands
beneath the subscription, where no other path of Apache's ends in `why`.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.topics.routes import require_topic
from geminga_broker.admin.topics.subscriptions import require_subscription
from geminga_broker.diagnosis.answer import as_json
from geminga_broker.diagnosis.look import explain
from geminga_broker.service import BrokerService


def routes(service: BrokerService, domain: str) -> list[Route]:
    """The route for one domain."""

    async def why(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        subscription = rest.subscription_of(request)
        topic = await require_topic(service, name)
        require_subscription(topic, name, subscription)
        return rest.ok(
            as_json(str(name), subscription, explain(topic, subscription)), list[dict[str, str]]
        )

    path = (
        f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}/subscription/{{subscription}}/why"
    )
    return [rest.route("GET", path, why)]
