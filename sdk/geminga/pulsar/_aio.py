"""Producer, consumer, reader and error of `geminga.pulsar.asyncio`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar, cast

import geminga.aio
import geminga.client
from geminga.errors import GemingaError
from geminga.pulsar import exceptions
from geminga.pulsar._checks import closing_of
from geminga.pulsar._consumer import place_of
from geminga.pulsar._enums import (
    ConsumerType,
    Result,
)
from geminga.pulsar._errors import result_of
from geminga.pulsar._ids import MessageId
from geminga.pulsar._message import Message, target
from geminga.pulsar._outgoing import outgoing
from geminga.pulsar.schema.schema import Schema
from geminga.pulsar.schema.schema_avro import AvroSchema

logger = logging.getLogger("geminga")

F = TypeVar("F", bound=Callable[..., Any])


class PulsarException(Exception):
    """The one error of this module; `error()` is its Result."""

    def __init__(self, result: Result, msg: str | None = None) -> None:
        super().__init__(result, msg)
        self._result = result
        self._msg = msg

    def error(self) -> Result:
        """What has failed."""
        return self._result

    def __str__(self) -> str:
        told = f"{self._result.value} {self._result.name}"
        return f"{told}: {self._msg}" if self._msg else told


def officially_async(function: F) -> F:
    """A coroutine function that raises PulsarException."""

    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except GemingaError as error:
            raise PulsarException(result_of(error), str(error)) from error
        except exceptions.PulsarException as error:
            raise PulsarException(Result[type(error).__name__], str(error)) from error

    return cast("F", call)


class Producer:
    """Sends messages to a topic. Created by `Client.create_producer`."""

    def __init__(self, producer: Any, schema: Schema) -> None:
        self._producer: geminga.aio.Producer[bytes | None] = producer
        self._schema = schema
        self._is_closed = False

    @officially_async
    async def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Send a value, and wait until it is stored. Raises PulsarException, and TypeError or
        ValueError for wrong arguments.
        """
        data, _, described = outgoing(self._schema, content, locals())
        # Here a number 0 counts.
        sent = await self._producer.send(data, sequence_id=sequence_id, **described)
        return MessageId._of(sent)

    @officially_async
    async def flush(self) -> None:
        """Send open batches, and wait until all messages are stored."""
        check_open(self._is_closed)
        await self._producer.flush()

    @officially_async
    async def close(self) -> None:
        """Flush, and leave the topic. Raises PulsarException the second time."""
        check_open(self._is_closed)
        with closing_of(self):
            await self._producer.aclose()

    def topic(self) -> str:
        """Full name of the topic, without partition."""
        return self._producer.topic

    def producer_name(self) -> str:
        """The name given by the program, or by the broker."""
        return self._producer.producer_name

    def last_sequence_id(self) -> int:
        """The highest confirmed sequence id, -1 if there is none."""
        return self._producer.last_sequence_id

    def is_connected(self) -> bool:
        """Whether it is connected to the brokers of all partitions in use."""
        return not self._is_closed and self._producer.is_connected


class Consumer:
    """Receives the messages of a subscription. Created by `Client.subscribe`."""

    _topic: str
    _type: ConsumerType
    _client: geminga.aio.Client

    def __init__(self, consumer: Any, schema: Schema) -> None:
        self._consumer: geminga.aio.Consumer[Any] = consumer
        self._schema = schema
        self._is_closed = False
        self._kept: deque[Message] = deque()
        """Of calls that were cancelled when they had taken a message."""

    @officially_async
    async def receive(self) -> Message:
        """The next message."""
        if self._kept:
            message = self._kept.popleft()
        else:
            message = Message._made(await self._consumer.receive(), self._schema, self._consumer)
        await _learn_writer(self._client, self._schema, message, self._kept)
        return message

    @officially_async
    async def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledge a message."""
        await self._consumer.acknowledge(target(message, self._consumer))

    @officially_async
    async def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge the message and all before it in its partition; not on Shared and KeyShared
        subscriptions.
        """
        found = target(message, self._consumer)
        if self._type in (ConsumerType.Shared, ConsumerType.KeyShared):
            raise PulsarException(Result.CumulativeAcknowledgementNotAllowedError)
        await self._consumer.acknowledge_cumulative(found)

    @officially_async
    async def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Have the message redelivered after `negative_ack_redelivery_delay_ms`."""
        self._consumer.negative_acknowledge(target(message, self._consumer))

    @officially_async
    async def unsubscribe(self) -> None:
        """Delete the subscription, and close this consumer."""
        check_open(self._is_closed)
        await self._consumer.unsubscribe()
        self._is_closed = True

    @officially_async
    async def seek(self, messageid: MessageId | int) -> None:
        """Move the subscription behind a message, or to a publish time in ms since 1970."""
        place = place_of(messageid)
        check_open(self._is_closed)
        await self._consumer.seek(place)
        self._kept.clear()

    @officially_async
    async def close(self) -> None:
        """Leave the subscription. Idempotent, as in the official client."""
        if self._is_closed:
            return
        with closing_of(self):
            await self._consumer.aclose()

    @officially_async
    async def get_last_message_id(self) -> MessageId:
        """Id of the topic's last message; not of several topics or partitions."""
        found = await self._consumer.last_message_ids()
        if len(found) != 1:
            raise PulsarException(Result.OperationNotSupported, "there are several topics")
        return MessageId._of(found[0])

    def redeliver_unacknowledged_messages(self) -> None:
        """Have all received messages that are not acknowledged redelivered."""
        self._consumer.redeliver_unacknowledged_messages()

    def topic(self) -> str:
        """Full name of its topic; for several the pattern, or the names with commas between."""
        return self._topic

    def subscription_name(self) -> str:
        """Name of the subscription."""
        return self._consumer.subscription_name

    def consumer_name(self) -> str:
        """The name given by the program, or a generated one."""
        return self._consumer.consumer_name


class Reader:
    """Reads a topic from a message on. Created by `Client.create_reader`."""

    _topic: str
    _client: geminga.aio.Client

    def __init__(self, reader: Any, schema: Schema) -> None:
        self._reader: geminga.aio.Reader[Any] = reader
        self._schema = schema
        self._is_closed = False
        self._kept: deque[Message] = deque()
        """Of calls that were cancelled when they had taken a message."""

    @officially_async
    async def read_next(self) -> Message:
        """The next message."""
        if self._kept:
            message = self._kept.popleft()
        else:
            message = Message._made(await self._reader.read_next(), self._schema, None)
        await _learn_writer(self._client, self._schema, message, self._kept)
        return message

    @officially_async
    async def has_message_available(self) -> bool:
        """Whether there is a message after the last read one."""
        return bool(self._kept) or await self._reader.has_message_available()

    @officially_async
    async def seek(self, messageid: MessageId | int) -> None:
        """Continue behind a message, or at a publish time in ms since 1970."""
        place = place_of(messageid)
        check_open(self._is_closed)
        await self._reader.seek(place)
        self._kept.clear()

    @officially_async
    async def close(self) -> None:
        """Leave the topic. Idempotent, as in the official client."""
        if self._is_closed:
            return
        with closing_of(self):
            await self._reader.aclose()

    def topic(self) -> str:
        """Full name of the topic, without partition."""
        return self._topic

    def is_connected(self) -> bool:
        """Whether it is connected to the brokers of all partitions."""
        return not self._is_closed and self._reader.is_connected


def check_open(is_closed: bool) -> None:
    """Raises PulsarException if it is closed."""
    if is_closed:
        raise PulsarException(Result.AlreadyClosed)


async def _learn_writer(
    client: geminga.aio.Client, schema: Schema, message: Message, kept: deque[Message]
) -> None:
    """Fetch the schema that an Avro message was written with, which `value()` needs; without it
    the reader's own counts. A message whose call is cancelled meanwhile is kept.
    """
    place = schema._missing(message) if isinstance(schema, AvroSchema) else None
    if not isinstance(schema, AvroSchema) or place is None:
        return
    try:
        schema._learn(place, await client.get_schema(*place))
    except GemingaError as error:
        logger.warning("%s: its schema can't be fetched: %s", place[0], error)
    except BaseException:
        kept.appendleft(message)
        raise
