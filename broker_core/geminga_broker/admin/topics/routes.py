"""`/admin/v2/persistent`, `/admin/v2/non-persistent`: single topics (`PersistentTopicsBase`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.answers import MessageId, Partitioned
from geminga_broker.admin.calls import Call, Calls, raise_first
from geminga_broker.admin.topics.property_rules import checked, within_bounds
from geminga_broker.cluster.catalog import without_system
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.topic import Topic
from geminga_protocol.ids import Position
from geminga_protocol.topic_name import PARTITION_SUFFIX, TopicName


async def require_topic(service: BrokerService, name: TopicName, text: str | None = None) -> Topic:
    """The topic, loaded. Raises RestError 404, with this text, if it doesn't exist."""
    if not await service.topics.exists(name):
        raise rest.RestError(404, text or f"Topic {name} not found")
    return await service.topics.get(name, create=False)


async def require_writable_namespace(service: BrokerService, name: TopicName) -> None:
    """Raises RestError 404 with the topic API's text."""
    if not await service.namespaces.exists(name.namespace):
        raise rest.RestError(404, "Namespace not found")


def message_id_json(name: TopicName, position: Position) -> MessageId:
    """A position in the REST API's form of message ids."""
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "partitionIndex": name.partition_index,
        "batchIndex": -1,
        "batchSize": 0,
    }


def partitioned_json(partitions: int, properties: Mapping[str, str] | None) -> Partitioned:
    """Apache's `PartitionedTopicMetadata`."""
    found: Partitioned = {"partitions": partitions, "deleted": False}
    return found if properties is None else {**found, "properties": properties}


async def terminate(service: BrokerService, name: TopicName) -> MessageId:
    """Terminate one topic. Raises RestError 404, 405, 406."""
    if not name.is_persistent:
        raise rest.RestError(406, rest.NEED_PERSISTENT)
    if await service.catalog.partitions(name):
        raise rest.RestError(405, "Termination of a partitioned topic is not allowed")
    topic = await require_topic(service, name)
    return message_id_json(name, await topic.terminate())


async def non_persistent_names(
    service: BrokerService, calls: Calls, namespace: str, range_name: str = ""
) -> list[str]:
    """The non-persistent topics of a namespace, or of one of its bundles, which stand in the memory
    of the brokers that own the bundles.
    """
    call = Call("GET", "")
    if range_name:
        bundle = BundleId(namespace, range_name)
        found = await calls.on_bundle(bundle, call, base="non-persistent")
        answers = [] if found is None else [found]
    else:
        answers = await calls.on_bundles(namespace, call, base="non-persistent")
    raise_first(answers)
    # A bundle that has just lost its owner has no topics: its answer is empty.
    return sorted(name for answer in answers if answer.body for name in answer.json(list[str]))


async def topic_names(
    service: BrokerService, calls: Calls, namespace: str, domain: str
) -> list[str]:
    """A namespace's topics of one domain, with all partitions."""
    if domain == "persistent":
        return await service.catalog.persistent(namespace)
    return await non_persistent_names(service, calls, namespace)


async def _of_bundle(
    service: BrokerService, namespace: str, range_name: str, names: list[str]
) -> list[str]:
    """Those of one bundle; none if there is no such one (Apache's `internalGetListAsync`)."""
    bundles = await service.namespaces.bundles(namespace)

    def found() -> list[str]:
        return [each for each in names if bundles.of_topic(each) == range_name]

    # The loop must not wait for a hundred thousand hashes.
    return await trio.to_thread.run_sync(found)


def listed(request: Request, names: list[str]) -> list[str]:
    """The names without system topics, unless the request wants those, too."""
    return names if rest.flag(request, "includeSystemTopic") else without_system(names)


async def _listed_by(
    request: Request, service: BrokerService, calls: Calls, domain: str
) -> list[str]:
    """What the request asks for: of one bundle only with `bundle`. Raises RestError."""
    namespace = rest.namespace_of(request)
    if not await service.namespaces.exists(namespace):
        raise rest.RestError(404, "Namespace does not exist")
    range_name = request.query_params.get("bundle")
    if domain == "non-persistent" and range_name:
        return await non_persistent_names(service, calls, namespace, range_name)
    names = listed(request, await topic_names(service, calls, namespace, domain))
    if domain == "persistent" and range_name is not None:
        return await _of_bundle(service, namespace, range_name, names)
    return names


ALREADY_THERE = "This topic already exists"
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


async def _check_partition(service: BrokerService, name: TopicName) -> None:
    """Raises RestError 412 for a name that only a partition has, of a topic that lacks it (Apache's
    `validateNonPartitionTopicName`).
    """
    base, suffix, number = name.local_name.partition(PARTITION_SUFFIX)
    if not suffix or not _WHOLE_NUMBER.fullmatch(number):
        return
    count = 0
    if base:
        whole = TopicName.parse(f"{name.domain}://{name.namespace}/{base}")
        count = await service.catalog.partitions(whole)
    what = f'Can\'t create topic {name.local_name} with "{PARTITION_SUFFIX}" followed by'
    if not count:
        text = f"numeric value if there isn't a partitioned topic {base} created."
        raise rest.RestError(412, f"{what} {text}")
    if int(number) >= count:
        text = f"a number smaller than number of partition of partitioned topic {base}"
        raise rest.RestError(412, f"{what} {text}")


async def _create(service: BrokerService, name: TopicName, properties: dict[str, str]) -> None:
    await _check_partition(service, name)
    if await service.catalog.partitions(name) or await service.topics.exists(name):
        raise rest.RestError(409, ALREADY_THERE)
    topic = await service.topics.create(name, properties)
    if isinstance(topic, PersistentTopic):
        lacks = not properties.items() <= topic.log.properties.items()
        if lacks:  # a client's use has just made it
            await topic.log.change_properties(lambda old: within_bounds({**old, **properties}))


def routes(service: BrokerService, calls: Calls, domain: str) -> list[Route]:
    """All routes of the family for one domain."""

    async def list_topics(request: Request) -> Response:
        return rest.ok(await _listed_by(request, service, calls, domain), list[str])

    being_made: set[TopicName] = set()

    async def create(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        properties = checked(await rest.read_body(request, dict[str, str]))
        await require_writable_namespace(service, name)
        if name in being_made:  # one of several callers makes it
            raise rest.RestError(409, ALREADY_THERE)
        being_made.add(name)
        try:
            await _create(service, name, properties)
        finally:
            being_made.discard(name)
        return rest.no_content()

    async def delete(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        if await service.catalog.partitions(name):
            raise rest.RestError(
                409,
                f"{name} is a partitioned topic, instead of calling delete topic, please call "
                "delete-partitioned-topic.",
            )
        if not await service.topics.exists(name):
            await service.topics.wait_load(name)  # perhaps it is just being made
            if not await service.topics.exists(name):
                raise rest.RestError(404, f"Topic {name} not found")
        await service.topics.delete(name, force=rest.flag(request, "force"))
        return rest.no_content()

    async def last_message_id(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        if await service.catalog.partitions(name):
            raise rest.RestError(405, "GetLastMessageId on a partitioned-topic is not allowed")
        topic = await require_topic(service, name)
        if not topic.persistent:
            raise rest.RestError(405, "GetLastMessageId on a non-persistent topic is not allowed")
        last = await topic.last_message()
        return rest.ok(message_id_json(name, last.position), MessageId)

    base = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}"
    one = base + "/{topic}"
    return [
        rest.route("GET", base, list_topics),
        *rest.at(one, put=create, delete=delete),
        rest.route("GET", one + "/lastMessageId", last_message_id),
        *_ending_routes(service, domain, one),
    ]


async def _is_unused(service: BrokerService, name: TopicName) -> bool:
    """Whether it is a partition without a trace: nobody uses it, and nothing is stored."""
    if name.is_persistent or not name.is_partition:
        return False
    return name.partition_index < await service.catalog.partitions(name.partitioned_base)


def _ending_routes(service: BrokerService, domain: str, one: str) -> list[Route]:
    async def unload(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        if await service.topics.exists(name):
            await service.topics.unload(name)
        elif not await _is_unused(service, name):
            raise rest.RestError(404, f"Topic {name} not found")
        return rest.no_content()

    async def stop_writes(request: Request) -> Response:
        return rest.ok(await terminate(service, rest.topic_of(request, domain)), MessageId)

    async def truncate(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        if not name.is_persistent:
            raise rest.RestError(412, "unsupport truncate")
        await (await require_topic(service, name)).truncate()
        return rest.no_content()

    return [
        rest.route("PUT", one + "/unload", unload),
        rest.route("POST", one + "/terminate", stop_writes),
        rest.route("DELETE", one + "/truncate", truncate),
    ]
