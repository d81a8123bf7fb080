"""`POST /topics/{domain}/{tenant}/{namespace}/{topic}`, and of one partition (spec OP-03; Apache's
`Topics`, `TopicsBase`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import jackson, rest
from geminga_broker.admin.answers import PublishResult, PublishResults
from geminga_broker.admin.http.off_loop import INLINE_BYTES_MAX, off_the_loop
from geminga_broker.admin.owners import require_topic_owner
from geminga_broker.admin.producing.publishing import (
    PAUSE_S_MAX,
    RUN_MAX,
    Outcome,
    above_rate,
    publish,
    rate_wait_s,
)
from geminga_broker.admin.producing.requests import (
    MADE_BYTES_MAX,
    MESSAGES_MAX,
    BadSchema,
    Made,
    ProducerMessages,
    TooLarge,
    TooMany,
    all_made,
    request_of,
    schema_of,
)
from geminga_broker.admin.topics.subscriptions import number_of
from geminga_broker.cluster.records import ResourceMissing
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
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.schema_type import SchemaType
from geminga_protocol.topic_name import TopicName
from geminga_runtime.clock import wall_clock_ms

ERROR_CODE = 2
"""Of a message that wasn't published: Apache's broker has no other one."""
LARGE_MAX = 16
"""Requests with larger bodies than `off_loop.INLINE_BYTES_MAX` that are published at once."""
LARGE_HELD_MAX = 128
"""Such requests that are there at all, a megabyte each, also while they wait for a rate or their
turn. More are refused with 503.
"""
LARGE_OF_TOPIC_MAX = 32
"""Of them such with one topic: a topic above its rate keeps nobody else's out."""
LARGE_PAUSE_S_MAX = 0.5
"""The longest wait of such a request for a rate limit while others can't have its place; before
that it waits with its body only.
"""
FAILED = "Fail to publish message: "
WITHOUT_SCHEMA = "withoutSchema"
"""Our own flag, of the query: the texts' bytes are published as from a client without a schema.
Else each request gives a topic a schema that has none, and another type is refused from then on.
"""


def routes(service: BrokerService, domains: Iterable[str]) -> list[Route]:
    """All routes of the family for these domains, which share the bounds."""
    large = _Large()
    return [route for domain in domains for route in _routes(service, domain, large)]


def _routes(service: BrokerService, domain: str, large: _Large) -> list[Route]:
    async def produce(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        parts = await _parts_here(service, request, name)
        return await _in_turn(service, large, request, name, parts)

    async def produce_to_partition(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        if name.is_partition:
            raise rest.RestError(400, "Topic name can't contain '-partition-' suffix.")
        index = number_of(request, "partition")
        part = name if index < 0 else name.partition(index)
        await require_topic_owner(service, request, part)
        return await _in_turn(service, large, request, name, [part])

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


class _Large:
    """Requests with large bodies: how many there are, and are published at once."""

    def __init__(self) -> None:
        self.at_once = trio.CapacityLimiter(LARGE_MAX)
        self._held = Counter[str]()

    @contextmanager
    def held(self, topic: TopicName) -> Iterator[None]:
        """One more in the block. Raises BrokerError TooManyRequests."""
        name = str(topic)
        if self._held.total() >= LARGE_HELD_MAX or self._held[name] >= LARGE_OF_TOPIC_MAX:
            text = "Too many large requests are waiting: not stored, try again later"
            raise BrokerError(ServerError.TooManyRequests, text)
        self._held[name] += 1
        try:
            yield
        finally:
            self._held[name] -= 1
            self._held += Counter()  # forget names with nothing


async def _in_turn(
    service: BrokerService,
    large: _Large,
    request: Request,
    name: TopicName,
    parts: list[TopicName],
) -> Response:
    """Publish to these topics. What requests hold beside their bodies is bounded: large ones wait
    for one another, but not while one of them waits for its topic's rate. Raises BrokerError 503
    for one that waits too long for it, and for one of too many.
    """
    body = await rest.json_body(request, ProducerMessages)
    plain = rest.flag(request, WITHOUT_SCHEMA)
    wait_until_s = trio.current_time() + PAUSE_S_MAX
    if len(body) <= INLINE_BYTES_MAX:
        await _below_rate(service, parts, wait_until_s)
        return await _produce(service, name, parts, body, wait_until_s, plain=plain)
    with large.held(name):
        await _below_rate(service, parts, wait_until_s)
        async with large.at_once:
            return await _produce(service, name, parts, body, None, plain=plain)


async def _below_rate(service: BrokerService, parts: list[TopicName], wait_until_s: float) -> None:
    """Return when one of the topics is below its publish rate. Raises BrokerError."""
    while True:
        topics = [service.topics.loaded.get(str(part)) for part in parts]
        wait_s = min(0.0 if topic is None else rate_wait_s(topic) for topic in topics)
        if not wait_s:
            return
        for topic in topics:
            if topic is not None:
                topic.publishes_limited += 1
        if trio.current_time() + wait_s > wait_until_s:
            raise above_rate()
        await trio.sleep(wait_s)


async def _given(body: bytes) -> ProducerMessages:
    """What a body says. Raises the error for an invalid body, RestError 413."""
    try:
        given = await off_the_loop(len(body), partial(request_of, body))
    except jackson.Unbindable as error:
        raise rest.bad_body(str(error)) from None
    except TooMany:
        raise rest.RestError(413, f"More than {MESSAGES_MAX} messages") from None
    if not isinstance(given, ProducerMessages):
        raise rest.bad_body(rest.EMPTY_BODY)
    if given.messages is None or None in given.messages:
        raise rest.bad_body("messages: not a list of messages")
    return given


async def _produce(
    service: BrokerService,
    name: TopicName,
    parts: list[TopicName],
    body: bytes,
    wait_until_s: float | None,
    *,
    plain: bool,
) -> Response:
    """Publish to these topics in turn, `plain` as in `WITHOUT_SCHEMA`. Waits for their rates until
    that time, or `LARGE_PAUSE_S_MAX`.
    """
    given = await _given(body)
    await _require_topic(service, name)
    if plain:
        schema, version = await _no_schema(service, name)
    else:
        schema, version = await _schema(service, name, given, len(body))
    make = partial(all_made, given, schema, version, wall_clock_ms())
    try:
        messages = await off_the_loop(len(body) + len(schema.data), make)
    except TooLarge:
        text = f"The messages have more than {MADE_BYTES_MAX} bytes with their metadata"
        raise rest.RestError(413, text) from None
    if wait_until_s is None:
        wait_until_s = trio.current_time() + LARGE_PAUSE_S_MAX
    outcomes: list[Outcome] = [Outcome(None)] * len(messages)
    for turn, part in enumerate(parts):
        mine = range(turn, len(messages), len(parts))
        if not mine:
            continue
        taken = [messages[at] for at in mine]
        came = await _published(service, part, taken, wait_until_s)
        for at, outcome in zip(mine, came, strict=True):
            outcomes[at] = outcome
    results: list[PublishResult] = []
    for at, outcome in enumerate(outcomes):
        results.append(_result(outcome, parts[at % len(parts)].partition_index))
        if at % RUN_MAX == RUN_MAX - 1:
            await trio.lowlevel.checkpoint()
    number = version_number(version)
    return rest.ok({"messagePublishResults": results, "schemaVersion": number}, PublishResults)


async def _published(
    service: BrokerService, name: TopicName, messages: list[Made], wait_until_s: float
) -> list[Outcome]:
    """What came of these at one topic; a refusal by the topic is that of each message."""
    try:
        topic = await service.topics.get(name, create=False)
        bytes_max = service.config.network.max_message_size_bytes
        return await publish(topic, messages, bytes_max, wait_until_s)
    except BrokerError as error:
        return [Outcome(None, str(error))] * len(messages)


def _result(outcome: Outcome, partition: int) -> PublishResult:
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
        schema = await off_the_loop(size_bytes, partial(schema_of, given))
        return schema, await schemas.admit_producer(name, schema)
    except BadSchema as error:
        raise rest.RestError(500, f"Fail to add or retrieve schema. {error}") from None
    except (IncompatibleSchema, InvalidSchemaData, SchemaStorageFailed) as error:
        raise rest.RestError(500, FAILED + str(error)) from None
