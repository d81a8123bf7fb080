"""Reads and writes `__change_events` as a client does (Apache's TopicPoliciesSystemTopicClient): a
topic of this broker over a pair of sockets, one of another broker over its connection.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import TYPE_CHECKING

import trio

import geminga
from geminga.entry_batch import EntryBatch
from geminga.errors import GemingaError
from geminga.schema import AlreadyEncoded, SchemaInfo, SchemaType
from geminga_broker.change_events.api import EventReader, EventsUnavailable, EventWriter, Told
from geminga_broker.change_events.avro_schema import EVENT_TEXT, PROPERTIES
from geminga_broker.change_events.codec import BadEvent, PolicyEvent, decode, deletion, weight
from geminga_broker.schema.model import SchemaStorageFailed
from geminga_protocol.message_id import MessageId
from geminga_protocol.topic_name import TopicName
from geminga_runtime.logs import shown
from geminga_runtime.waiters import Promise

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger(__name__)

READER_PREFIX = "__system_reader"
"""Of the names of readers that are no user's (`SystemTopicNames.SYSTEM_READER_PREFIX`)."""

SCHEMAS_MAX = 8
"""Texts of schemas that are kept for each reader."""

IN_A_THREAD_VALUES = 20_000
"""Messages that can become more are decoded beside the loop."""

CLOSE_S = 5.0

SchemaOf = Callable[[TopicName, bytes], Awaitable[bytes | None]]
"""The text of a schema's version. Raises SchemaStorageFailed."""


class ClientEvents:
    """See `Events`. The client is opened when it is needed first."""

    def __init__(
        self,
        opening: Callable[[], AbstractAsyncContextManager[geminga.Client]],
        schema_of: SchemaOf,
        nursery: trio.Nursery,
    ) -> None:
        self._opening = opening
        self._schema_of = schema_of
        self._nursery = nursery
        self._client: Promise[geminga.Client] | None = None

    @asynccontextmanager
    async def reading(self, topic: TopicName, *, create: bool) -> AsyncIterator[EventReader]:
        """See `Events.reading`."""
        with _unavailable(topic):
            client = await self._opened()
            reader = await client.create_reader(
                str(topic),
                geminga.EARLIEST,
                subscription_role_prefix=READER_PREFIX,
                read_compacted=True,
                auto_create=create,
            )
        try:
            yield _Reader(topic, reader, self._schema_of)
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await reader.aclose()

    @asynccontextmanager
    async def writing(self, topic: TopicName, *, alone: bool = False) -> AsyncIterator[EventWriter]:
        """See `Events.writing`."""
        modes = geminga.ProducerAccessMode
        schema = AlreadyEncoded(SchemaInfo("", SchemaType.AVRO, EVENT_TEXT, PROPERTIES))
        with _unavailable(topic):
            client = await self._opened()
            producer = await client.create_producer(
                str(topic),
                schema=schema,
                batching_enabled=False,
                access_mode=modes.EXCLUSIVE_WITH_FENCING if alone else modes.SHARED,
            )
        try:
            yield _Writer(topic, producer)
        finally:
            with trio.move_on_after(CLOSE_S, shield=True), suppress(GemingaError):
                await producer.aclose()

    async def _opened(self) -> geminga.Client:
        if self._client is None:
            self._client = Promise()
            self._nursery.start_soon(self._hold, self._client)
        return await self._client.wait()

    async def _hold(self, promise: Promise[geminga.Client]) -> None:
        """Keep the client open until the broker stops; whoever needs one after it has failed opens
        another.
        """
        try:
            async with self._opening() as client:
                promise.resolve(client)
                await trio.sleep_forever()
        except Exception as error:
            _log.exception("the broker's own client has ended")
            promise.reject(EventsUnavailable(f"the broker's own client has ended: {error}"))
        finally:
            promise.reject(EventsUnavailable("the broker stops"))
            if self._client is promise:
                self._client = None


class _Writer:
    def __init__(self, topic: TopicName, producer: geminga.Producer[bytes | None]) -> None:
        self._topic = topic
        self._producer = producer

    async def publish(self, key: str, payload: bytes | None, *, cluster: str | None) -> MessageId:
        """See `EventWriter.publish`."""
        with _unavailable(self._topic):
            return await self._producer.send(
                payload,
                partition_key=key,
                replication_clusters=() if cluster is None else (cluster,),
            )


class _Reader:
    def __init__(
        self, topic: TopicName, reader: geminga.Reader[bytes], schema_of: SchemaOf
    ) -> None:
        self._topic = topic
        self._reader = reader
        self._schema_of = schema_of
        self._schemas: dict[bytes, bytes | None] = {}
        self._values = 0
        """Decoded since other tasks had a turn."""

    async def at_end(self) -> bool:
        """See `EventReader.at_end`."""
        with _unavailable(self._topic):
            return not await self._reader.has_message_available()

    async def read(self) -> list[Told]:
        """See `EventReader.read`."""
        found: list[Told] = []
        with _unavailable(self._topic):
            for batch in await self._reader.read_batches():
                found += await self._told(batch)
        return found

    async def _told(self, batch: EntryBatch) -> list[Told]:
        ids = batch.message_ids()
        try:
            keys, nulls, payloads = batch.keys(), batch.nulls(), batch.payloads()
        except GemingaError as error:
            self._skipped(ids[0], error)
            return [Told(each, None) for each in ids]
        schema = await self._schema(batch.schema_version)
        found: list[Told] = []
        for message_id, key, is_null, payload in zip(ids, keys, nulls, payloads, strict=True):
            event = None
            try:
                if is_null:
                    event = deletion(key or "")
                else:
                    event = await self._decoded(payload, schema)
            except BadEvent as error:
                self._skipped(message_id, error)
            if event is not None and not self._is_ours(event.topic):
                self._skipped(message_id, BadEvent("of a topic of another namespace"))
                event = None
            found.append(Told(message_id, event))
        return found

    def _is_ours(self, topic: str) -> bool:
        return topic.partition("://")[2].startswith(f"{self._topic.namespace}/")

    async def _decoded(self, payload: bytes, schema: bytes | None) -> PolicyEvent | None:
        values = weight(payload, schema)
        if values > IN_A_THREAD_VALUES:
            return await trio.to_thread.run_sync(decode, payload, schema)
        self._values += values
        if self._values > IN_A_THREAD_VALUES:
            self._values = 0
            await trio.lowlevel.checkpoint()
        return decode(payload, schema)

    def _skipped(self, message_id: MessageId, error: Exception) -> None:
        _log.warning("topic=%s message %r skipped: %s", self._topic, message_id, shown(str(error)))

    async def _schema(self, version: bytes | None) -> bytes | None:
        if version is None:
            return None
        if version not in self._schemas:
            if len(self._schemas) >= SCHEMAS_MAX:
                self._schemas.clear()
            try:
                self._schemas[version] = await self._schema_of(self._topic, version)
            except SchemaStorageFailed as error:
                raise EventsUnavailable(f"{self._topic}: {error}") from error
        return self._schemas[version]


@contextmanager
def _unavailable(topic: TopicName) -> Iterator[None]:
    try:
        yield
    except GemingaError as error:
        raise EventsUnavailable(f"{topic}: {error}") from error
