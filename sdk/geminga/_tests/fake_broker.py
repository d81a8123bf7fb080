"""A broker in memory with Pulsar's semantics, as far as the SDK needs them, and with faults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio
import trio.testing

from geminga._connection.service_url import parse
from geminga._tests.fake_topics import LEDGER, FakeConsumer, FakeSubscription, FakeTopic
from geminga.client import Client, open_client
from geminga.options import ClientOptions
from geminga_protocol.ack_set import to_bits
from geminga_protocol.commands import (
    answers,
    connection,
    consuming,
    lookup,
    producing,
    schemas,
)
from geminga_protocol.frames import SUBMESSAGE, Frame, FrameReader
from geminga_protocol.message_id import MessageId, signed
from geminga_protocol.payload import parse_metadata, verify_checksum
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandSubscribe, ServerError
from geminga_runtime.errors import ConnectFailed, ConnectionLost
from geminga_runtime.stream import FramedStream

URL = "pulsar://fake:6650"


class FakeBroker:
    """`fail` maps a command's name to errors for its next requests; `hold_receipts` keeps them."""

    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.partitions: dict[str, int] = {}
        self.sessions: list[FakeSession] = []
        self.fail: dict[str, list[tuple[ServerError, str]]] = {}
        self.refuse_connections = 0
        self.hold_receipts = False
        self.held: list[Callable[[], None]] = []
        self.seen: list[str] = []
        self.acks: list[BaseCommand] = []
        self.corrupt_next_delivery = False
        self.max_message_size = 5 * 1024 * 1024
        self.auth: list[tuple[str, bytes]] = []
        self.accepts: Callable[[bytes], bool] = lambda data: True
        self.session_type = FakeSession
        self.nursery: trio.Nursery

    def topic(self, name: str) -> FakeTopic:
        if "://" not in name:
            name = f"persistent://public/default/{name}"
        return self.topics.setdefault(name, FakeTopic(name))

    async def connector(self, host: str, port: int, deadline: float) -> FramedStream:
        await trio.lowlevel.checkpoint()
        if self.refuse_connections:
            self.refuse_connections -= 1
            raise ConnectFailed("refused")
        ours, theirs = trio.testing.memory_stream_pair()
        session = self.session_type(self, FramedStream(ours, name="client"))
        self.sessions.append(session)
        self.nursery.start_soon(session.run)
        return FramedStream(theirs, name=f"{host}:{port}")

    def client(self, **options: object) -> AbstractAsyncContextManager[Client]:
        return open_client(parse(URL), ClientOptions(**options), self.connector)

    def cut(self) -> None:
        """Break all connections."""
        for session in list(self.sessions):
            session.stream.abort("cut")

    def release_receipts(self) -> None:
        held, self.held = self.held, []
        for send in held:
            send()


@asynccontextmanager
async def fake_broker() -> AsyncIterator[FakeBroker]:
    broker = FakeBroker()
    async with trio.open_nursery() as nursery:
        broker.nursery = nursery
        yield broker
        nursery.cancel_scope.cancel()


class FakeSession:
    def __init__(self, broker: FakeBroker, stream: FramedStream) -> None:
        self.broker = broker
        self.stream = stream
        self.producers: dict[int, tuple[FakeTopic, str]] = {}
        self.consumers: dict[int, FakeConsumer] = {}

    async def run(self) -> None:
        reader = FrameReader()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.stream.run_writer)
                while data := await self.stream.receive():
                    for frame in reader.feed(data):
                        self.handle(frame)
                nursery.cancel_scope.cancel()
        except* ConnectionLost:
            pass
        finally:
            self.broker.sessions.remove(self)
            for topic, name in self.producers.values():
                topic.producers.pop(name, None)
            for consumer in list(self.consumers.values()):
                consumer.leave()
                if not consumer.subscription.durable:
                    consumer.subscription.topic.subscriptions.pop(consumer.subscription.name, None)
            await self.stream.aclose()

    def handle(self, frame: Frame) -> None:
        name = SUBMESSAGE[frame.type]
        self.broker.seen.append(name)
        body = getattr(frame.command, name)
        failures = self.broker.fail.get(name)
        if failures:
            code, message = failures.pop(0)
            if name == "send":
                error = producing.send_error(body.producer_id, body.sequence_id, code, message)
            elif name == "lookupTopic":
                error = lookup.lookup_error(body.request_id, code, message)
            elif name == "partitionMetadata":
                error = lookup.partitioned_metadata_error(body.request_id, code, message)
            elif name == "ack":
                error = consuming.ack_response(
                    body.consumer_id, body.request_id, error=code, message=message
                )
            else:
                error = answers.error(body.request_id, code, message)
            self.stream.write(error)
            return
        getattr(self, f"on_{name}")(body, frame)

    def on_connect(self, body: Any, frame: Frame) -> None:
        self.broker.auth.append((body.auth_method_name, body.auth_data))
        if not self.broker.accepts(body.auth_data):
            self.stream.write(answers.error(0, ServerError.AuthenticationError, "who are you?"))
            return
        assert body.feature_flags.supports_auth_refresh
        self.stream.write(
            connection.connected("fake", max_message_size=self.broker.max_message_size)
        )

    def on_authResponse(self, body: Any, frame: Frame) -> None:
        self.broker.auth.append((body.response.auth_method_name, body.response.auth_data))
        if not self.broker.accepts(body.response.auth_data):
            self.stream.abort("not any more")

    def challenge(self) -> None:
        self.stream.write(connection.auth_challenge("fake", "token", b"PulsarAuthRefresh"))

    def on_ping(self, body: Any, frame: Frame) -> None:
        self.stream.write(connection.PONG)

    def on_pong(self, body: Any, frame: Frame) -> None:
        pass

    def on_partitionMetadata(self, body: Any, frame: Frame) -> None:
        count = self.broker.partitions.get(body.topic, 0)
        self.stream.write(lookup.partitioned_metadata_response(body.request_id, count))

    def on_lookupTopic(self, body: Any, frame: Frame) -> None:
        self.stream.write(lookup.lookup_response(body.request_id, broker_url=URL))

    def on_producer(self, body: Any, frame: Frame) -> None:
        topic = self.broker.topic(body.topic)
        name = body.producer_name or f"fake-{len(self.broker.seen)}"
        if name in topic.producers:
            self.stream.write(answers.error(body.request_id, ServerError.ProducerBusy, "taken"))
            return
        topic.producers[name] = self
        self.producers[body.producer_id] = (topic, name)
        last = topic.last_sequence_ids.get(name, -1)
        version = self._version_of(topic, body.schema) if body.HasField("schema") else b""
        self.stream.write(
            producing.producer_success(
                body.request_id, name, last_sequence_id=last, schema_version=version
            )
        )

    def _version_of(self, topic: FakeTopic, schema: Any) -> bytes:
        if schema not in topic.schemas:
            topic.schemas.append(schema)
        return topic.schemas.index(schema).to_bytes(8, "big")

    def on_send(self, body: Any, frame: Frame) -> None:
        if body.producer_id not in self.producers:
            return
        topic, name = self.producers[body.producer_id]
        assert verify_checksum(frame.payload), "a damaged message came from the SDK"
        last = topic.last_sequence_ids.get(name, -1)
        highest = max(body.sequence_id, body.highest_sequence_id)
        entry = -1
        if body.sequence_id > last:
            metadata = parse_metadata(frame.payload)
            if not body.is_chunk or metadata.chunk_id == metadata.num_chunks_from_msg - 1:
                topic.last_sequence_ids[name] = highest
            topic.entries.append(bytes(frame.payload))
            entry = len(topic.entries) - 1

        def answer() -> None:
            self.stream.write(
                producing.send_receipt(
                    body.producer_id, body.sequence_id, LEDGER if entry >= 0 else -1, entry, highest
                )
            )

        if self.broker.hold_receipts:
            self.broker.held.append(answer)
        else:
            answer()
        for subscription in topic.subscriptions.values():
            subscription.dispatch()

    def on_close_producer(self, body: Any, frame: Frame) -> None:
        topic, name = self.producers.pop(body.producer_id, (None, ""))
        if topic is not None:
            topic.producers.pop(name, None)
        self.stream.write(answers.success(body.request_id))

    def on_subscribe(self, body: Any, frame: Frame) -> None:
        topic = self.broker.topic(body.topic)
        subscription = topic.subscriptions.get(body.subscription)
        if subscription is None:
            start = len(topic.entries)
            if body.HasField("start_message_id"):
                wanted = signed(body.start_message_id.entryId)
                start = min(max(wanted, 0), start)
            elif body.initialPosition == CommandSubscribe.Earliest:
                start = 0
            subscription = FakeSubscription(topic, body.subscription, start, body.durable)
            subscription.acked = set(range(start))
            topic.subscriptions[body.subscription] = subscription
        if subscription.consumers and body.subType == CommandSubscribe.Exclusive:
            self.stream.write(answers.error(body.request_id, ServerError.ConsumerBusy, "busy"))
            return
        consumer = FakeConsumer(self, subscription, body)
        subscription.consumers.append(consumer)
        self.consumers[consumer.id] = consumer
        self.stream.write(answers.success(body.request_id))

    def on_flow(self, body: Any, frame: Frame) -> None:
        consumer = self.consumers.get(body.consumer_id)
        if consumer is not None:
            consumer.permits += body.messagePermits
            consumer.permits_given += body.messagePermits
            consumer.subscription.dispatch()

    def on_ack(self, body: Any, frame: Frame) -> None:
        self.broker.acks.append(frame.command)
        consumer = self.consumers[body.consumer_id]
        subscription = consumer.subscription
        for place in body.message_id:
            entry = signed(place.entryId)
            if body.ack_type:
                subscription.acked |= set(range(entry + (0 if place.ack_set else 1)))
            if place.ack_set:
                subscription.left[entry] = to_bits(place.ack_set)
            else:
                subscription.acked.add(entry)
                consumer.pending.pop(entry, None)
        if body.HasField("request_id"):
            self.stream.write(consuming.ack_response(body.consumer_id, body.request_id))

    def on_redeliverUnacknowledgedMessages(self, body: Any, frame: Frame) -> None:
        consumer = self.consumers[body.consumer_id]
        named = [place.entryId for place in body.message_ids] or list(consumer.pending)
        if body.HasField("consumer_epoch"):
            consumer.epoch = body.consumer_epoch
        entries = [entry for entry in named if entry in consumer.pending]
        for entry in entries:
            del consumer.pending[entry]
        consumer.subscription.give_back(entries)
        consumer.subscription.dispatch()

    def on_seek(self, body: Any, frame: Frame) -> None:
        consumer = self.consumers[body.consumer_id]
        subscription = consumer.subscription
        entries = subscription.topic.entries
        if body.HasField("message_id"):
            entry = min(max(signed(body.message_id.entryId), 0), len(entries))
        else:
            times = [parse_metadata(memoryview(each)).publish_time for each in entries]
            entry = sum(time < body.message_publish_time for time in times)
        self.stream.write(consuming.close_consumer(consumer.id, (1 << 64) - 1))
        consumer.leave()
        subscription.move(entry)
        if body.HasField("message_id") and body.message_id.ack_set:
            subscription.left[entry] = to_bits(body.message_id.ack_set)
        self.stream.write(answers.success(body.request_id))

    def on_getLastMessageId(self, body: Any, frame: Frame) -> None:
        subscription = self.consumers[body.consumer_id].subscription
        entries = subscription.topic.entries
        index = -1
        if entries:
            metadata = parse_metadata(memoryview(entries[-1]))
            if metadata.HasField("num_messages_in_batch"):
                index = metadata.num_messages_in_batch - 1
        last = MessageId(LEDGER if entries else -1, len(entries) - 1, batch_index=index)
        mark = MessageId(LEDGER, subscription.mark_delete)
        self.stream.write(
            consuming.get_last_message_id_response(body.request_id, last, mark_delete=mark)
        )

    def on_getSchema(self, body: Any, frame: Frame) -> None:
        known = self.broker.topic(body.topic).schemas
        if not known:
            error = schemas.get_schema_error(body.request_id, ServerError.TopicNotFound, "none")
            self.stream.write(error)
            return
        version = body.schema_version
        found = known[int.from_bytes(version, "big") if version else -1]
        self.stream.write(schemas.get_schema_response(body.request_id, found, body.schema_version))

    def on_getOrCreateSchema(self, body: Any, frame: Frame) -> None:
        version = self._version_of(self.broker.topic(body.topic), body.schema)
        self.stream.write(schemas.get_or_create_schema_response(body.request_id, version))

    def on_unsubscribe(self, body: Any, frame: Frame) -> None:
        consumer = self.consumers[body.consumer_id]
        consumer.leave()
        del consumer.subscription.topic.subscriptions[consumer.subscription.name]
        self.stream.write(answers.success(body.request_id))

    def on_close_consumer(self, body: Any, frame: Frame) -> None:
        consumer = self.consumers.get(body.consumer_id)
        if consumer is not None:
            consumer.leave()
        self.stream.write(answers.success(body.request_id))
