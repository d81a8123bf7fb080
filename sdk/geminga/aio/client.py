"""`Client` of `geminga.aio`; tools/faces.py makes the blocking one from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from re import Pattern
from typing import Unpack

import geminga.client
from geminga._bridge.asyncs import AsyncBlock, AsyncSession
from geminga._connection.opening import Connecting, Opening, opening
from geminga.aio.consumer import Consumer
from geminga.aio.producer import Producer
from geminga.aio.reader import Reader
from geminga.aio.table_view import TableView
from geminga.encryption import ConsumerCryptoKeywords
from geminga.message import Message, V_co
from geminga.options import ClientKeywords, ConsumerKeywords, ProducerKeywords, ReaderKeywords
from geminga.options import RegexSubscriptionMode as RegexSubscriptionMode
from geminga.producer import S
from geminga.schema._base import Schema
from geminga.schema._info import SchemaInfo
from geminga.table_changes import R
from geminga_protocol.message_id import MessageId


def connect(service_url: str, **options: Unpack[ClientKeywords]) -> Connecting[Client]:
    """A client for the brokers at `pulsar://host:port[,host:port...]`; closed at the block's end.
    If it is awaited instead of entered, it is a `Client` that lasts until its `aclose`.

    It connects on first use. Raises InvalidServiceUrlError or InvalidArgumentError at once. See
    `geminga.ClientOptions` for the options.
    """
    geminga.client.connect(service_url, **options)

    async def opened() -> Client:
        client = Client(service_url, **options)
        await client._session.opened()
        return client

    return Connecting(lambda: Opening(opened()), opened)


class Client(AsyncBlock):
    """Creates producers, consumers and readers, which share its connections and memory
    limit. Created by `connect` for a block, or directly; then it must be closed. Any number of
    tasks of the loop may use it.
    """

    def __init__(self, service_url: str, **options: Unpack[ClientKeywords]) -> None:
        self._session = AsyncSession(geminga.client.connect(service_url, **options))

    def __repr__(self) -> str:
        return repr(self._session)

    @opening
    async def create_producer(
        self, topic: str, *, schema: Schema[S] | None = None, **options: Unpack[ProducerKeywords]
    ) -> Producer[S]:
        """Create a producer and register it with the brokers of all partitions. See
        `ProducerOptions`; with a `schema` of `geminga.schema` it sends values instead of bytes.

        Raises InvalidArgumentError, ProducerBusyError, ProducerFencedError, TopicNotFoundError,
        AuthorizationError, OperationTimeoutError and other GemingaErrors. With WAIT_FOR_EXCLUSIVE
        it waits until the topic is free.
        """
        return Producer(
            self._session,
            await self._session.call(
                lambda: self._session.client.create_producer(topic, schema=schema, **options)
            ),
        )

    @opening
    async def subscribe(
        self,
        topic: str | Sequence[str] | Pattern[str],
        subscription_name: str,
        *,
        schema: Schema[V_co] | None = None,
        message_listener: Callable[[Consumer[V_co], Message[V_co]], object] | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> Consumer[V_co]:
        """Create a consumer of a subscription on one or several topics, or on all topics of a
        namespace, also later ones, whose whole name matches
        `re.compile("persistent://tenant/namespace/regex")`. See `ConsumerOptions`; with a `schema`
        messages have values.

        A `message_listener(consumer, message)`, called for each message, replaces `receive`. It
        is a coroutine function, or a function that is short, and must acknowledge. If it raises an
        error, that is logged and the message negatively acknowledged. One call runs at a time, or
        up to `message_listener_concurrency`: then order holds within a partition only (Key_Shared:
        a key; Shared: not at all).

        Raises InvalidArgumentError, ConsumerBusyError, TopicNotFoundError, AuthorizationError,
        OperationTimeoutError and other GemingaErrors.
        """
        if message_listener is not None:
            self._session.host.check_listener(message_listener)
        consumer = Consumer(
            self._session,
            await self._session.call(
                lambda: self._session.client.subscribe(
                    topic, subscription_name, schema=schema, **options
                )
            ),
        )
        if message_listener is not None:
            consumer._receiver.listen(consumer, message_listener)
        return consumer

    @opening
    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        *,
        schema: Schema[V_co] | None = None,
        **options: Unpack[ReaderKeywords],
    ) -> Reader[V_co]:
        """Create a reader that begins after `start_message_id` (at it, if
        `start_message_id_inclusive`); `geminga.EARLIEST` and `geminga.LATEST` are the ends of the
        topic. See `ReaderOptions`.

        Raises what `subscribe` does.
        """
        return Reader(
            self._session,
            await self._session.call(
                lambda: self._session.client.create_reader(
                    topic, start_message_id, schema=schema, **options
                )
            ),
        )

    @opening
    async def create_table_view(
        self,
        topic: str,
        *,
        schema: Schema[R] | None = None,
        subscription_name: str | None = None,
        **options: Unpack[ConsumerCryptoKeywords],
    ) -> TableView[R]:
        """A view of the latest value of each key of a topic; returns when all present messages are
        read. Of a compacted persistent topic it reads the compacted messages. `subscription_name`
        is that of its reader. See `ConsumerCryptoOptions`.

        Raises what `subscribe` does.
        """
        return TableView(
            self._session,
            await self._session.call(
                lambda: self._session.client.create_table_view(
                    topic, schema=schema, subscription_name=subscription_name, **options
                )
            ),
        )

    async def list_partitions(self, topic: str, *, auto_create: bool = True) -> list[str]:
        """Full names of the topic's partitions; the topic itself if it has none.

        A missing topic is created if the brokers' policies allow it; without `auto_create`,
        TopicNotFoundError is raised instead.
        """
        return await self._session.call(
            lambda: self._session.client.list_partitions(topic, auto_create=auto_create)
        )

    async def list_topics(
        self,
        pattern: Pattern[str],
        mode: RegexSubscriptionMode = RegexSubscriptionMode.PERSISTENT_ONLY,
    ) -> list[str]:
        """Full names of the topics of a namespace whose whole name matches
        `re.compile("persistent://tenant/namespace/regex")`, sorted. A partitioned topic is listed
        once, without its partitions.

        Raises InvalidArgumentError for an invalid pattern.
        """
        return await self._session.call(lambda: self._session.client.list_topics(pattern, mode))

    async def get_schema(self, topic: str, version: bytes | None = None) -> SchemaInfo | None:
        """The topic's schema, or its `version` (a message's `schema_version`); None if there is
        none.

        Raises TopicNotFoundError for a missing topic, which is not created.
        """
        return await self._session.call(lambda: self._session.client.get_schema(topic, version))

    async def aclose(self) -> None:
        """Close all producers, consumers and readers, then the connections. Idempotent: another
        call waits for the first.
        """
        await self._session.aclose()
