"""A topic over a bookie in memory, with messages that have keys, for the tests of compaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from geminga_broker._tests.fake_client import FakeConnection, subscribe_request
from geminga_broker.log._tests.world import Answers, World
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.policies.model import CompactionPolicy
from geminga_broker.subscription.consumer import SubscribeRequest
from geminga_broker.topic.api import InitialPosition, TopicEnvironment
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol import compression, payload
from geminga_protocol.batch import BatchBuilder, split_batch
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CompressionType,
    MessageMetadata,
    SingleMessageMetadata,
)
from geminga_protocol.topic_name import TopicName

NAME = TopicName.parse("persistent://public/default/t")

SETTLE_S = 10
"""So long, in virtual time, until all is sent that can be."""

KeyValue = tuple[str | None, bytes]
"""A message: its key, if it has one, and its value; an empty one removes the key."""


def single(key: str | None, value: bytes, *, time_ms: int = 1, **more: object) -> bytes:
    """An entry with one message."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=time_ms, **more)
    if key is not None:
        metadata.partition_key = key
    metadata.uncompressed_size = len(value)
    if metadata.compression:
        value = compression.compress(metadata.compression, value)
    return payload.build(metadata, value)


def batch(messages: Sequence[KeyValue], *, time_ms: int = 1, **more: object) -> bytes:
    """An entry with several messages."""
    builder = BatchBuilder()
    for key, value in messages:
        about = SingleMessageMetadata()
        if key is not None:
            about.partition_key = key
        builder.add(about, value)
    plain = builder.build()
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=time_ms,
        num_messages_in_batch=len(messages),
        uncompressed_size=len(plain),
        **more,
    )
    if metadata.compression:
        plain = compression.compress(metadata.compression, plain)
    return payload.build(metadata, plain)


def messages_of(data: bytes) -> list[KeyValue]:
    """An entry's messages, as a client reads them."""
    view = memoryview(data)
    metadata = payload.parse_metadata(view)
    body = payload.split(view).payload
    if metadata.compression != CompressionType.NONE:
        size = metadata.uncompressed_size
        body = compression.decompress(metadata.compression, body, size, 1 << 30)
    if not metadata.HasField("num_messages_in_batch"):
        key = metadata.partition_key if metadata.HasField("partition_key") else None
        return [(key, bytes(body))]
    return [
        (about.partition_key if about.HasField("partition_key") else None, bytes(value))
        for about, value in split_batch(metadata, body)
        if not about.compacted_out
    ]


async def append(topic: PersistentTopic, entries: Sequence[bytes]) -> list[Position]:
    """Publish, and wait until it is stored."""
    answers = Answers()
    topic.append(
        [
            (entry, payload.parse_metadata(memoryview(entry)).num_messages_in_batch or 1)
            for entry in entries
        ],
        answers,
    )
    await answers.wait(len(entries))
    assert not answers.errors
    return answers.positions


async def compact(topic: PersistentTopic) -> None:
    """Run to the end."""
    topic.compaction.trigger()
    await topic.compaction.wait()


def reader(
    connection: FakeConnection, number: int = 1, name: str = "reader", **more: object
) -> SubscribeRequest:
    """A reader of the compacted topic from its beginning."""
    more.setdefault("initial_position", InitialPosition.Earliest)
    more.setdefault("durable", False)
    request = subscribe_request(connection, number, name, **more)
    return replace(request, read_compacted=True)


async def read_all(topic: PersistentTopic, **more: object) -> list[KeyValue]:
    """All that a new reader gets."""
    connection = FakeConnection()
    consumer = await topic.subscribe(reader(connection, **more))
    consumer.flow(1_000_000)
    await trio.sleep(SETTLE_S)
    consumer.close()
    await trio.sleep(SETTLE_S)
    return received(connection)


def received(connection: FakeConnection) -> list[KeyValue]:
    """Messages that came to a client."""
    return [pair for data in connection.payloads() for pair in messages_of(data)]


def ids(connection: FakeConnection) -> list[tuple[int, int]]:
    """Message ids of the entries that came to a client."""
    return [
        (c.message.message_id.ledgerId, c.message.message_id.entryId)
        for c in connection.commands(BaseCommand.Type.MESSAGE)
    ]


@asynccontextmanager
async def open_topic(
    world: World, policy: CompactionPolicy = CompactionPolicy(), *, crash: bool = False
) -> AsyncIterator[PersistentTopic]:
    """The topic, loaded; with `crash` its broker ends as if it was killed."""
    async with world.broker(crash=crash) as broker, trio.open_nursery() as nursery:
        log = await broker.open(NAME.persistence_naming_encoding)
        assert isinstance(log, TopicLog)
        topic = PersistentTopic(NAME, log, TopicEnvironment(nursery))
        topic.policies = replace(topic.policies, compaction=policy)
        try:
            yield topic
            if not crash:
                await topic.close()
        finally:
            nursery.cancel_scope.cancel()
