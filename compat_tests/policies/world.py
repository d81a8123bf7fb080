"""One broker in memory, asked over REST and over the wire, for probes of policies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count

import trio
from starlette.types import ASGIApp

from compat_tests.policies.model import JSON, Level
from geminga_broker._tests.wire import WireBroker, WireClient, open_broker
from geminga_broker.admin._tests.test_guard import Answer, call
from geminga_broker.admin.app import create_app
from geminga_broker.config import load_config
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.commands import connection, consuming, producing
from geminga_protocol.commands.consuming import SubscribeOptions
from geminga_protocol.encode import send
from geminga_protocol.frames import SUBMESSAGE
from geminga_protocol.ids import Position
from geminga_protocol.message_id import MessageId
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandSubscribe,
    MessageMetadata,
    Schema,
    ServerError,
)
from geminga_runtime.clock import wall_clock_ms

SubType = CommandSubscribe.SubType
SPACE = "public/default"
TOPIC = f"persistent://{SPACE}/t"
_IDS = count(1)
SETTLED_S = 0.01


class Link:
    """A client's connection; what comes is kept by its kind."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._heard = trio.lowlevel.ParkingLot()
        self._answers: dict[int, BaseCommand] = {}
        self.messages: list[Position] = []
        self.receipts: list[tuple[int, int]] = []
        """(sequence id, entry id)"""
        self.refused: list[int] = []
        """Codes of SEND_ERRORs."""
        self.closed: list[int] = []
        """Producers that the broker has closed."""

    async def run(self) -> None:
        """Read until the broker or `close` ends it."""
        try:
            while (frame := await self._client.next()) is not None:
                if frame.type == BaseCommand.PING:
                    await self._client.send(connection.PONG)
                self._take(frame.command)
                self._heard.unpark_all()
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass

    def _take(self, command: BaseCommand) -> None:
        if command.HasField("message"):
            place = command.message.message_id
            self.messages.append(Position(place.ledgerId, place.entryId))
        elif command.HasField("send_receipt"):
            receipt = command.send_receipt
            self.receipts.append((receipt.sequence_id, receipt.message_id.entryId))
        elif command.HasField("send_error"):
            self.refused.append(command.send_error.error)
        elif command.HasField("close_producer"):
            self.closed.append(command.close_producer.producer_id)
        else:
            body = getattr(command, SUBMESSAGE[command.type])
            if "request_id" in body.DESCRIPTOR.fields_by_name:
                self._answers[body.request_id] = command

    async def ask(self, frame: bytes, request_id: int) -> BaseCommand:
        """The answer."""
        await self._client.send(frame)
        while request_id not in self._answers:
            await self._heard.park()
        return self._answers.pop(request_id)

    async def connect(self) -> None:
        """CONNECT."""
        await self._client.send(connection.connect("test"))

    async def produce(
        self, topic: str = TOPIC, *, name: str | None = None, schema: Schema | None = None
    ) -> int | str:
        """The producer's id, or the name of the error."""
        number = next(_IDS)
        frame = producing.producer(topic, number, number, producer_name=name, schema=schema)
        return _refusal(await self.ask(frame, number)) or number

    async def subscribe(
        self,
        subscription: str = "sub",
        kind: CommandSubscribe.SubType = SubType.Shared,
        options: SubscribeOptions = SubscribeOptions(
            initial_position=CommandSubscribe.InitialPosition.Earliest
        ),
        number: int | None = None,
    ) -> int | str:
        """The consumer's id, or the name of the error."""
        number = number or next(_IDS)
        request = next(_IDS)
        frame = consuming.subscribe(TOPIC, subscription, kind, number, request, options)
        return _refusal(await self.ask(frame, request)) or number

    async def close_consumer(self, consumer: int) -> None:
        """CLOSE_CONSUMER."""
        number = next(_IDS)
        await self.ask(consuming.close_consumer(consumer, number), number)

    async def unsubscribe(self, consumer: int) -> None:
        """UNSUBSCRIBE, despite other consumers."""
        number = next(_IDS)
        await self.ask(consuming.unsubscribe(consumer, number, force=True), number)

    async def flow(self, consumer: int, permits: int) -> None:
        """FLOW."""
        await self._client.send(consuming.flow(consumer, permits))

    async def acknowledge(self, consumer: int, places: Sequence[Position]) -> None:
        """Each of these."""
        ids = [MessageId(place.ledger_id, place.entry_id) for place in places]
        await self._client.send(consuming.ack(consumer, ids))

    async def publish(
        self,
        producer: int,
        sequence_id: int = 0,
        content: bytes = b"x",
        *,
        age_s: int = 0,
        delay_ms: int = 0,
        key: str = "",
    ) -> None:
        """SEND of a message that was made some time ago, to be delivered in some time."""
        now_ms = wall_clock_ms()
        head = MessageMetadata(
            producer_name="p", sequence_id=sequence_id, publish_time=now_ms - age_s * 1000
        )
        if delay_ms:
            head.deliver_at_time = now_ms + delay_ms
        if key:
            head.partition_key = key
        payload = build(head, content)
        await self._client.send(send(producer, sequence_id, 1, len(payload)) + payload)

    async def answered(self, messages: int) -> None:
        """Wait until so many messages were stored or refused."""
        while len(self.receipts) + len(self.refused) < messages:
            await self._heard.park()

    async def delivered(self, messages: int) -> None:
        """Wait until so many messages have come."""
        while len(self.messages) < messages:
            await self._heard.park()

    async def close(self) -> None:
        """End the connection, and wait until the broker has seen it."""
        await self._client.stream.aclose()
        await trio.sleep(SETTLED_S)


def _refusal(answer: BaseCommand) -> str | None:
    body = getattr(answer, SUBMESSAGE[answer.type])
    code = body.error if answer.HasField("error") else None
    if code is None and "error_code" in body.DESCRIPTOR.fields_by_name:
        code = body.error_code if body.HasField("error_code") else None
    return None if code is None else ServerError.Name(code)


class World:
    """The broker, and the topic that is loaded in it."""

    def __init__(self, broker: WireBroker, app: ASGIApp, nursery: trio.Nursery) -> None:
        self.service: BrokerService = broker.service
        self._broker = broker
        self._app = app
        self._nursery = nursery

    @asynccontextmanager
    async def link(self) -> AsyncIterator[Link]:
        """A connection, ended with the block."""
        found = Link(self._broker.client())
        self._nursery.start_soon(found.run)
        await found.connect()
        yield found
        await found.close()

    @property
    def topic(self) -> PersistentTopic:
        """The topic."""
        found = self.service.topics.loaded[TOPIC]
        assert isinstance(found, PersistentTopic)
        return found

    async def rest(self, method: str, path: str, body: JSON = None) -> Answer:
        """A call beneath `/admin/v2/`."""
        path, _, query = path.partition("?")
        return await call(self._app, method, f"/admin/v2/{path}", None, body=body, query=query)

    async def done(self, method: str, path: str, body: JSON = None) -> None:
        """The same, which must succeed."""
        answer = await self.rest(method, path, body)
        assert answer.status in (200, 204), (method, path, answer)

    async def load(self) -> None:
        """Make sure that the topic is there and loaded."""
        if TOPIC not in self.service.topics.loaded:
            await self.done("PUT", PATH)

    async def set(self, base: str, level: Level) -> None:
        """Set the policy at a level: `base` is `namespaces/…` or `persistent/…`."""
        await self.done(level.verb, f"{base}/{level.set_at}", level.value)

    async def remove(self, base: str, level: Level) -> None:
        """Remove it."""
        method, path, value = level.removed_by
        await self.done(method, f"{base}/{path}", value)

    async def stats(self) -> dict[str, object]:
        """The topic's."""
        found: dict[str, object] = json.loads((await self.rest("GET", f"{PATH}/stats")).body)
        return found


PATH = TOPIC.replace("://", "/")
NAMESPACE_PATH = f"namespaces/{SPACE}"


@asynccontextmanager
async def world(settings: Mapping[str, str]) -> AsyncIterator[World]:
    """A broker with these keys of `broker.conf`, with the topic loaded."""
    async with trio.open_nursery() as nursery:
        stays = {"brokerDeleteInactiveTopicsEnabled": "false"}
        async with open_broker(load_config(None, {}, {**stays, **settings})) as broker:
            found = World(broker, create_app(broker.service), nursery)
            await found.load()
            yield found
        nursery.cancel_scope.cancel()
