"""Partitioned topics: create, grow, look up, delete, terminate (`PersistentTopicsBase`)."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.answers import MessageId, Partitioned
from geminga_broker.admin.calls import Answer, Call, Calls, each_of, raise_first
from geminga_broker.admin.topics.property_rules import checked
from geminga_broker.admin.topics.routes import (
    listed,
    partitioned_json,
    require_writable_namespace,
)
from geminga_broker.cluster.deletions import Resumed
from geminga_broker.cluster.records import ResourceChanged, ResourceExists, ResourceMissing
from geminga_broker.errors import AboveLimit
from geminga_broker.service import BrokerService
from geminga_protocol.topic_name import PARTITION_SUFFIX, TopicName


class Refused(rest.RestError):
    """What is to be deleted is in use."""


class PartitionedTopicMetadata(msgspec.Struct):
    """Body of `create-partitioned-topic` with properties."""

    partitions: int
    properties: dict[str, str] | None = None


_DELETE_ALONE = "Instead of calling delete-partitioned-topic please call delete."
_TERMINATE_ALONE = (
    "Termination of a non-partitioned topic is not allowed using partitioned-terminate, please use "
    "terminate commands"
)


async def _wanted(request: Request) -> tuple[int, dict[str, str] | None]:
    body = await rest.read_union(request, int, PartitionedTopicMetadata)
    if isinstance(body, PartitionedTopicMetadata):
        return body.partitions, checked(body.properties)
    if not isinstance(body, int):
        raise rest.bad_body(rest.EMPTY_BODY)
    return body, None


def _partitioned_name(request: Request, domain: str) -> TopicName:
    """The topic of the path. Raises RestError 412 for the name of a partition."""
    name = rest.topic_of(request, domain)
    if name.is_persistent and PARTITION_SUFFIX in name.local_name:
        text = f"Partitioned Topic Name should not contain '{PARTITION_SUFFIX}'"
        raise rest.RestError(412, text)
    return name


async def _require_partitioned(service: BrokerService, name: TopicName, text: str) -> int:
    count = await service.catalog.partitions(name)
    if not count:
        raise rest.RestError(404, text)
    return count


def _not_partitioned(name: TopicName) -> rest.RestError:
    return rest.RestError(409, f"Topic {name} is not the partitioned topic.")


def routes(service: BrokerService, calls: Calls, domain: str) -> list[Route]:
    """All routes of the family for one domain."""
    catalog = service.catalog

    async def list_all(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        if not await service.namespaces.exists(namespace):
            raise rest.RestError(404, "Namespace does not exist")
        return rest.ok(listed(request, await catalog.partitioned(namespace, domain)), list[str])

    async def create(request: Request) -> Response:
        name = _partitioned_name(request, domain)
        count, properties = await _wanted(request)
        if count <= 0:
            raise rest.RestError(406, "Number of partitions should be more than 0")
        if count > catalog.partitions_max:
            text = f"Number of partitions should be less than or equal to {catalog.partitions_max}"
            raise rest.RestError(406, text)
        await require_writable_namespace(service, name)
        if await service.topics.exists(name):
            raise rest.RestError(409, "This topic already exists")
        try:
            await catalog.create_partitioned(name, count, properties)
        except ResourceExists:
            raise rest.RestError(409, "This topic already exists") from None
        except AboveLimit as error:
            raise rest.RestError(412, str(error)) from None
        if name.is_persistent and not rest.flag(request, "createLocalTopicOnly"):
            await catalog.create_partitions(name, range(count))
        return rest.no_content()

    async def grow(request: Request) -> Response:
        name = _partitioned_name(request, domain)
        count, _properties = await _wanted(request)
        current = await catalog.partitions(name)
        if not current:
            raise _not_partitioned(name)
        if count < current:
            raise rest.RestError(
                422,
                f"Desired partitions {count} can't be less than the current partitions {current}.",
            )
        if count > (limit := catalog.partitions_max):
            text = "can't be greater than the maximum partitions per topic"
            raise rest.RestError(422, f"Desired partitions {count} {text} {limit}.")
        try:
            await catalog.grow_partitioned(name, count)
        except ResourceMissing:
            raise _not_partitioned(name) from None
        if name.is_persistent:
            await catalog.create_partitions(name, range(current, count))
        return rest.no_content()

    base = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}"
    one = base + "/{topic}/partitions"
    return [
        rest.route("GET", base + "/partitioned", list_all),
        *rest.at(one, put=create, post=grow),
        *_routes_of_existing(service, calls, domain, base),
    ]


def _routes_of_existing(
    service: BrokerService, calls: Calls, domain: str, base: str
) -> list[Route]:
    catalog = service.catalog

    async def get(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        count, properties = await catalog.metadata(name)
        if not count and not await service.topics.exists(name):
            if not rest.flag(request, "checkAllowAutoCreation"):
                raise rest.RestError(404, f"Topic {name} not found")
            count = await catalog.resolve_partitions(name, create=True, exists=False)
        return rest.ok(partitioned_json(count, properties), Partitioned)

    async def delete(request: Request) -> Response:
        name = _partitioned_name(request, domain)
        if not await catalog.partitions(name):
            if await service.topics.exists(name):
                raise rest.RestError(409, f"{name} is a non-partitioned topic. {_DELETE_ALONE}")
            raise rest.RestError(404, f"Topic {name} not found.")
        try:
            await delete_partitioned(service, calls, name, force=rest.flag(request, "force"))
        except ResourceMissing:
            raise rest.RestError(404, f"Topic {name} not found.") from None
        return rest.no_content()

    async def stop_writes(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        count = await catalog.partitions(name)
        if not count:
            raise rest.RestError(405, _TERMINATE_ALONE)
        answers = await calls.on_partitions(name, count, Call("POST", "/terminate"))
        if any(answer.status == 404 for answer in answers):
            raise rest.RestError(404, f"Topic {name} not found")
        raise_first(answers)
        ids = (answer.json(dict[str, int]) for answer in answers)
        return rest.ok({str(index): found for index, found in enumerate(ids)}, dict[str, MessageId])

    async def create_missed(request: Request) -> Response:
        name = _partitioned_name(request, domain)
        count = await _require_partitioned(service, name, f"Topic {name} does not exist")
        if name.is_persistent:
            await catalog.create_partitions(name, range(count))
        return rest.no_content()

    one = base + "/{topic}/partitions"
    return [
        rest.route("POST", base + "/{topic}/createMissedPartitions", create_missed),
        *rest.at(one, get=get, delete=delete),
        rest.route("POST", base + "/{topic}/terminate/partitions", stop_writes),
    ]


async def delete_partitioned(
    service: BrokerService,
    calls: Calls,
    name: TopicName,
    *,
    force: bool,
    resumed: Resumed | None = None,
) -> None:
    """Delete a partitioned topic with its partitions, wherever these are. Raises RestError, and the
    errors of `Deletions.marked`.
    """
    call = Call("DELETE", "", query="force=true" if force else "")

    async def delete_one(index: int) -> Answer:
        await service.catalog.check_being_deleted(name)
        return await calls.on_topic(name.partition(index), call)

    async def delete_partitions(count: int) -> None:
        answers = await each_of(delete_one, range(count))
        if any(answer.status == 412 and not answer.has_no_owner for answer in answers):
            raise Refused(412, "Topic has active producers/subscriptions")
        raise_first(answers, but=404)

    try:
        await service.topics.delete_partitioned(
            name, force=force, delete_partitions=delete_partitions, resumed=resumed
        )
    except ResourceChanged:
        raise rest.RestError(409, f"The deletion of {name} was ended by another call") from None
