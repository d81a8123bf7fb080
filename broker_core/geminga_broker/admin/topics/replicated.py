"""Whether subscriptions are replicated to other clusters (spec OP-03; Apache's
`PersistentTopicsBase.internalSetReplicatedSubscriptionStatus`). It is stored with the cursor, where
Apache's broker stores it; nothing is replicated by this broker.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.topics.routes import require_topic
from geminga_broker.admin.topics.subscriptions import require_subscription
from geminga_broker.service import BrokerService
from geminga_broker.subscription.replication import set_replicated
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.topic_name import TopicName


def routes(service: BrokerService, domain: str) -> list[Route]:
    """All routes of the family for one domain."""

    async def found(name: TopicName, subscription: str) -> PersistentTopic:
        topic = await require_topic(service, name)
        assert isinstance(topic, PersistentTopic), "others were refused"
        require_subscription(topic, name, subscription)
        return topic

    async def get(request: Request) -> Response:
        name, subscription = rest.topic_of(request, domain), rest.subscription_of(request)
        if not name.is_persistent:
            text = "Cannot get replicated subscriptions on non-persistent topics"
            raise rest.RestError(405, text)
        topic = await found(name, subscription)
        return rest.ok({str(name): topic.subscriptions[subscription].replicated}, dict[str, bool])

    async def post(request: Request) -> Response:
        name, subscription = rest.topic_of(request, domain), rest.subscription_of(request)
        enabled = await rest.required_body(request, bool)
        if not name.is_persistent:
            text = "Cannot enable/disable replicated subscriptions on non-persistent topics"
            raise rest.RestError(405, text)
        topic = await found(name, subscription)
        await set_replicated(topic.subscriptions[subscription], enabled)
        return rest.no_content()

    one = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
    path = one + "/subscription/{subscription}/replicatedSubscriptionStatus"
    return rest.at(path, get=get, post=post)
