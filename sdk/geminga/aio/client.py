"""`Client` of `geminga.aio`. Made by tools/faces.py: don't edit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from re import Pattern
from typing import Unpack

import geminga.client
from geminga._bridge.asyncs import AsyncSession
from geminga.aio.consumer import Consumer
from geminga.aio.producer import Producer
from geminga.aio.reader import Reader
from geminga.aio.table_view import TableView
from geminga.encryption import ConsumerCryptoKeywords
from geminga.errors import InvalidArgument
from geminga.message import Message, V_co
from geminga.options import ClientKeywords, ConsumerKeywords, ProducerKeywords, ReaderKeywords
from geminga.options import RegexSubscriptionMode as RegexSubscriptionMode
from geminga.producer import S
from geminga.schema._base import Schema
from geminga.schema._info import SchemaInfo
from geminga.table_changes import R
from geminga_protocol.message_id import MessageId


def connect(
    service_url: str, **options: Unpack[ClientKeywords]
) -> AbstractAsyncContextManager[Client]:
    """A client for the brokers at `pulsar://host:port[,host:port...]`; closed at the block's end.

    Nothing is connected before it is needed. Raises InvalidServiceUrl or InvalidArgument at once.
    See `geminga.ClientOptions` for the options.
    """
    return _open(geminga.client.connect(service_url, **options))


@asynccontextmanager
async def _open(
    opening: AbstractAsyncContextManager[geminga.client.Client],
) -> AsyncGenerator[Client]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidArgument(
            "geminga.aio.connect is for programs that run in asyncio: use geminga.connect in Trio, "
            "and geminga.blocking.connect without an event loop"
        ) from None
    session = AsyncSession(opening)
    await session.open()
    try:
        yield Client(session)
    finally:
        await session.aclose()


class Client:
    """Makes producers, consumers and readers, which share its connections and memory
    limit. Made by `connect`. Any number of tasks of the loop may use it.
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def __repr__(self) -> str:
        return repr(self._session.client)

    async def create_producer(
        self, topic: str, *, schema: Schema[S] | None = None, **options: Unpack[ProducerKeywords]
    ) -> Producer[S]:
        """A producer, known to the brokers of all partitions. See `ProducerOptions`; with a
        `schema` of `geminga.schema` it sends values of that instead of bytes.

        Raises InvalidArgument, ProducerBusy, ProducerFenced, TopicNotFound, AuthorizationFailed,
        Timeout and other GemingaErrors. With WAIT_FOR_EXCLUSIVE it waits until the topic is free.
        """
        return Producer(
            self._session,
            await self._session.call(
                lambda: self._session.client.create_producer(topic, schema=schema, **options)
            ),
        )

    async def subscribe(
        self,
        topic: str | Sequence[str] | Pattern[str],
        subscription_name: str,
        *,
        schema: Schema[V_co] | None = None,
        message_listener: Callable[[Consumer[V_co], Message[V_co]], object] | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> Consumer[V_co]:
        """A consumer of a subscription on one topic or several, or on all
        topics of a namespace whose whole name matches
        `re.compile("persistent://tenant/namespace/regex")`, as they come and go. See
        `ConsumerOptions`; with a `schema` messages have values by it.

        A `message_listener(consumer, message)` is called with each message instead of `receive`. It
        is a coroutine function, or a function that is short, and has to acknowledge; what it raises
        is logged, and the message negatively acknowledged. One call runs at a time, or up to
        `message_listener_concurrency`: then those for one partition are in order (Key_Shared: those
        for one key; Shared: none).

        Raises InvalidArgument, ConsumerBusy, TopicNotFound, AuthorizationFailed, Timeout and other
        GemingaErrors.
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

    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        *,
        schema: Schema[V_co] | None = None,
        **options: Unpack[ReaderKeywords],
    ) -> Reader[V_co]:
        """A reader that begins after `start_message_id` (at it, if `start_message_id_inclusive`);
        `geminga.EARLIEST` and `geminga.LATEST` are the ends. See `ReaderOptions`.

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

    async def create_table_view(
        self,
        topic: str,
        *,
        schema: Schema[R] | None = None,
        **options: Unpack[ConsumerCryptoKeywords],
    ) -> TableView[R]:
        """The latest value of each key of a topic; returns when all that is in the topic is read.
        It reads what compaction has left, if the topic is persistent and compacted. See
        `ConsumerCryptoOptions`.

        Raises what `subscribe` does.
        """
        return TableView(
            self._session,
            await self._session.call(
                lambda: self._session.client.create_table_view(topic, schema=schema, **options)
            ),
        )

    async def get_topic_partitions(self, topic: str, *, auto_create: bool = True) -> list[str]:
        """Full names of the topic's partitions; the topic itself if it has none.

        A topic that isn't there is made if brokers make topics by themselves; without `auto_create`
        TopicNotFound is raised instead.
        """
        return await self._session.call(
            lambda: self._session.client.get_topic_partitions(topic, auto_create=auto_create)
        )

    async def topics_matching(
        self,
        pattern: Pattern[str],
        mode: RegexSubscriptionMode = RegexSubscriptionMode.PERSISTENT_ONLY,
    ) -> list[str]:
        """Full names of the topics of a namespace whose whole name matches
        `re.compile("persistent://tenant/namespace/regex")`, in their order. A topic with partitions
        is one of them, its partitions are not.

        Raises InvalidArgument for what is no such pattern.
        """
        return await self._session.call(lambda: self._session.client.topics_matching(pattern, mode))

    async def topic_schema(self, topic: str, version: bytes | None = None) -> SchemaInfo | None:
        """The topic's schema, or the version of it that a message names as its `schema_version`;
        None if there is none.

        Raises TopicNotFound for a topic that isn't there; it is not made.
        """
        return await self._session.call(lambda: self._session.client.topic_schema(topic, version))

    async def aclose(self) -> None:
        """Close all producers, consumers and readers, then the connections. Idempotent."""
        await self._session.aclose()
