"""Properties of topics: of a partitioned one in its record, of others with their log (spec OP-03;
`PersistentTopicsBase.internalGetPropertiesAsync` and its neighbours).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.topics.property_rules import OWN_PREFIX, checked, within_bounds
from geminga_broker.admin.topics.routes import require_topic
from geminga_broker.cluster.records import ResourceMissing
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.topic_name import TopicName

Properties = Mapping[str, str]
Change = Callable[[Properties], Properties]


async def _log_of(service: BrokerService, name: TopicName) -> PersistentTopic:
    """Raises RestError 404."""
    topic = await require_topic(service, name)
    assert isinstance(topic, PersistentTopic), "others were refused"
    return topic


async def _change(service: BrokerService, name: TopicName, change: Change) -> None:
    """Raises RestError 404, and what `change` raises."""
    if not name.is_partition and await service.catalog.partitions(name):
        try:
            await service.catalog.change_properties(name, change)
        except ResourceMissing:
            raise rest.RestError(404, f"Topic {name} not found") from None
        return
    topic = await _log_of(service, name)
    await topic.log.change_properties(change)


def routes(service: BrokerService, domain: str) -> list[Route]:
    """All routes of the family for one domain."""

    async def get(request: Request) -> Response:
        name = rest.persistent_topic_of(request, domain)
        count, found = (0, None) if name.is_partition else await service.catalog.metadata(name)
        if count:
            return rest.ok_or_empty(found, dict[str, str])
        shown = (await _log_of(service, name)).log.properties
        return rest.ok(
            {key: shown[key] for key in shown if not key.startswith(OWN_PREFIX)}, dict[str, str]
        )

    async def put(request: Request) -> Response:
        name = rest.persistent_topic_of(request, domain)
        given = checked(await rest.read_body(request, dict[str, str]))
        if given:
            await _change(service, name, lambda old: within_bounds({**old, **given}))
        return rest.no_content()

    async def delete(request: Request) -> Response:
        name = rest.persistent_topic_of(request, domain)
        key = request.query_params.get("key", "")
        checked({key: ""})
        await _change(service, name, lambda old: {k: old[k] for k in old if k != key})
        return rest.no_content()

    path = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}/properties"
    return rest.at(path, get=get, put=put, delete=delete)
