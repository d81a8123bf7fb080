"""`POST /topics/{domain}/{tenant}/{namespace}/{topic}`, and of one partition (spec OP-03; Apache's
`Topics`, `TopicsBase`).
"""

from __future__ import annotations

from functools import partial

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.owners import require_topic_owner
from geminga_broker.admin.producing.publishing import RUN_MAX, Outcome, publish
from geminga_broker.admin.producing.requests import (
    MADE_BYTES_MAX,
    MESSAGES_MAX,
    BadSchema,
    Made,
    ProducerMessages,
    TooLarge,
    all_made,
    schema_of,
)
from geminga_broker.admin.topics.subscriptions import number_of
from geminga_broker.cluster.records import JsonObject, ResourceMissing
from geminga_broker.errors import BrokerError
from geminga_broker.schema.model import (
    IncompatibleSchema,
    InvalidSchemaData,
    SchemaData,
    SchemaStorageFailed,
    version_bytes,
    version_number,
)
from geminga_broker.service import BrokerService
from geminga_protocol.schema_type import SchemaType
from geminga_protocol.topic_name import TopicName
from geminga_runtime.clock import wall_clock_ms

ERROR_CODE = 2
"""Of a message that wasn't published: Apache's broker has no other one."""
LARGE_MAX = 16
"""Requests with larger bodies than `rest.INLINE_BYTES_MAX` that are published at once."""
FAILED = "Fail to publish message: "
WITHOUT_SCHEMA = "withoutSchema"
"""Our own flag, of the query: the texts' bytes are published as from a client without a schema.
Else each request gives a topic a schema that has none, and another type is refused from then on.
"""


def routes(service: BrokerService, domain: str) -> list[Route]:
    """All routes of the family for one domain."""
    at_once = trio.CapacityLimiter(LARGE_MAX)

    async def produce(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        parts = await _parts_here(service, request, name)
        return await _in_turn(service, at_once, request, name, parts)

    async def produce_to_partition(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        if name.is_partition:
            raise rest.RestError(400, "Topic name can't contain '-partition-' suffix.")
        index = number_of(request, "partition")
        part = name if index < 0 else name.partition(index)
        await require_topic_owner(service, request, part)
        return await _in_turn(service, at_once, request, name, [part])

    one = f"/topics/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
    return [
        rest.route("POST", one, produce),
        rest.route("POST", one + "/partitions/{partition}", produce_to_partition),
    ]


async def _parts_here(service: BrokerService, request: Request, name: TopicName) -> list[TopicName]:
    """The topic, or those of its partitions that this broker serves. Raises Redirect if it serves
    none.
    """
    count = 0 if name.is_partition else await service.catalog.partitions(name)
    if not count:
        await require_topic_owner(service, request, name)
        return [name]
    parts = [name.partition(index) for index in range(count)]
    here = [part for part in parts if await _is_here(service, part)]
    if not here:
        await require_topic_owner(service, request, parts[0])
        here = [part for part in parts if await _is_here(service, part)]
    return here or parts[:1]


async def _require_topic(service: BrokerService, name: TopicName) -> None:
    """Raises RestError 500, as Apache's broker."""
    if not await service.namespaces.exists(name.namespace):
        raise rest.RestError(500, FAILED + "Namespace not found")
    if not await service.catalog.partitions(name) and not await service.topics.exists(name):
        raise rest.RestError(500, f"{FAILED}Topic {name} not found")


async def _is_here(service: BrokerService, name: TopicName) -> bool:
    try:
        return service.ownership.holds(await service.namespaces.bundle_of(name))
    except ResourceMissing:
        return False


async def _in_turn(
    service: BrokerService,
    at_once: trio.CapacityLimiter,
    request: Request,
    name: TopicName,
    parts: list[TopicName],
) -> Response:
    """Publish to these topics. What requests hold beside their bodies is bounded: large ones wait
    for one another.
    """
    body = await rest.json_body(request, ProducerMessages)
    plain = rest.flag(request, WITHOUT_SCHEMA)
    if len(body) <= rest.INLINE_BYTES_MAX:
        return await _produce(service, name, parts, body, plain=plain)
    async with at_once:
        return await _produce(service, name, parts, body, plain=plain)


async def _produce(
    service: BrokerService, name: TopicName, parts: list[TopicName], body: bytes, *, plain: bool
) -> Response:
    """Publish to these topics in turn, `plain` as in `WITHOUT_SCHEMA`."""
    given = await rest.decoded(body, ProducerMessages)
    if not isinstance(given, ProducerMessages):
        raise rest.bad_body(rest.EMPTY_BODY)
    if given.messages is None or None in given.messages:
        raise rest.bad_body("messages: not a list of messages")
    if len(given.messages) > MESSAGES_MAX:
        raise rest.RestError(413, f"More than {MESSAGES_MAX} messages")
    await _require_topic(service, name)
    if plain:
        schema, version = await _no_schema(service, name)
    else:
        schema, version = await _schema(service, name, given, len(body))
    make = partial(all_made, given, schema, version, wall_clock_ms())
    try:
        messages = await rest.off_the_loop(len(body) + len(schema.data), make)
    except TooLarge:
        text = f"The messages have more than {MADE_BYTES_MAX} bytes with their metadata"
        raise rest.RestError(413, text) from None
    outcomes: list[Outcome] = [Outcome(None)] * len(messages)
    for turn, part in enumerate(parts):
        mine = range(turn, len(messages), len(parts))
        if not mine:
            continue
        for at, outcome in zip(
            mine, await _published(service, part, [messages[at] for at in mine]), strict=True
        ):
            outcomes[at] = outcome
    results: list[JsonObject] = []
    for at, outcome in enumerate(outcomes):
        results.append(_result(outcome, parts[at % len(parts)].partition_index))
        if at % RUN_MAX == RUN_MAX - 1:
            await trio.lowlevel.checkpoint()
    number = version_number(version)
    return rest.ok({"messagePublishResults": results, "schemaVersion": number})


async def _published(
    service: BrokerService, name: TopicName, messages: list[Made]
) -> list[Outcome]:
    """What came of these at one topic; a refusal by the topic is that of each message."""
    try:
        topic = await service.topics.get(name, create=False)
        bytes_max = service.config.network.max_message_size_bytes
        return await publish(topic, messages, bytes_max)
    except BrokerError as error:
        return [Outcome(None, str(error))] * len(messages)


def _result(outcome: Outcome, partition: int) -> JsonObject:
    # The version of all of them stands beside the list; here it is always 0, as in Apache.
    if outcome.position is None:
        return {
            "errorMsg": outcome.error,
            "messageId": str(partition),
            "errorCode": ERROR_CODE,
            "schemaVersion": 0,
        }
    ledger_id, entry_id = outcome.position
    told = f"{ledger_id}:{entry_id}:{partition}"
    return {"messageId": told, "errorCode": 0, "schemaVersion": 0}


async def _no_schema(service: BrokerService, name: TopicName) -> tuple[SchemaData, bytes]:
    """Raises RestError 500."""
    try:
        return SchemaData(SchemaType.BYTES, b""), await service.schemas.admit_producer(name, None)
    except IncompatibleSchema as error:
        raise rest.RestError(500, FAILED + str(error)) from None


async def _schema(
    service: BrokerService, name: TopicName, given: ProducerMessages, size_bytes: int
) -> tuple[SchemaData, bytes]:
    """The schema of a request and its version. Raises RestError 500, as Apache's broker."""
    schemas = service.schemas
    if given.schema_version != -1:
        version = version_bytes(given.schema_version)
        found = await schemas.get(name, version)
        if found is None:
            raise rest.RestError(500, FAILED + f"no schema of version {given.schema_version}")
        return found.schema, version
    try:
        schema = await rest.off_the_loop(size_bytes, partial(schema_of, given))
        return schema, await schemas.admit_producer(name, schema)
    except BadSchema as error:
        raise rest.RestError(500, f"Fail to add or retrieve schema. {error}") from None
    except (IncompatibleSchema, InvalidSchemaData, SchemaStorageFailed) as error:
        raise rest.RestError(500, FAILED + str(error)) from None
