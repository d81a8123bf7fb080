"""The client, which creates producers, consumers and readers (spec SDK-40)."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from re import Pattern
from typing import Unpack

import trio

from geminga._connection.background import (
    CLOSE_TIMEOUT_S,
    Background,
    background_of_block,
    check_loop,
    close_in_time,
)
from geminga._connection.core import Core
from geminga._connection.opening import Block, Connecting, opening
from geminga._connection.pool import Connector, connect_tcp
from geminga._connection.schema_lookup import with_topic_schema
from geminga._connection.service_url import Address, parse
from geminga._connection.together import undone_on_error
from geminga._connection.topic_pattern import parse_pattern
from geminga._connection.topics import Topics, parse_topic
from geminga._consuming.discovery import Discovery, NamedTopics
from geminga._consuming.pattern_topics import PatternTopics
from geminga._consuming.subscribe import Subscription
from geminga._dead_letter.letters import complete
from geminga._dead_letter.sender import DeadLetterSender
from geminga._options.arguments import function, topics_of
from geminga._options.consumer import check_subscription
from geminga._telemetry.added import traced_consumer, traced_producer
from geminga.consumer import Consumer
from geminga.encryption import ConsumerCryptoKeywords, ConsumerCryptoOptions
from geminga.errors import AlreadyClosedError, InvalidArgumentError
from geminga.message import Message, V_co
from geminga.options import (
    ClientKeywords,
    ClientOptions,
    ConsumerKeywords,
    ConsumerOptions,
    ProducerKeywords,
    ProducerOptions,
    ReaderKeywords,
    ReaderOptions,
    RegexSubscriptionMode,
    make,
)
from geminga.producer import Producer, S
from geminga.reader import Reader
from geminga.schema._base import Schema
from geminga.schema._info import SchemaInfo
from geminga.table_changes import R
from geminga.table_view import TableView
from geminga_protocol.message_id import EARLIEST_ID, LATEST_ID, MessageId
from geminga_protocol.topic_name import TopicName


def connect(service_url: str, **options: Unpack[ClientKeywords]) -> Connecting[Client]:
    """A client for the brokers at `pulsar://host:port[,host:port...]`, or for those whose web
    services are at `http://...`; closed at the block's end. If it is awaited instead of entered,
    it is a `Client` that lasts until its `aclose`.

    It connects on first use. Raises InvalidServiceUrlError or InvalidArgumentError at once. See
    `ClientOptions` for the options.
    """
    addresses, made = parse(service_url), make(ClientOptions, options)

    async def alone() -> Client:
        return Client(service_url, **options)

    return Connecting(partial(open_client, addresses, made, connect_tcp), alone)


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def open_client(
    addresses: tuple[Address, ...], options: ClientOptions, connector: Connector
) -> AsyncGenerator[Client, None]:
    """`connect` over any kind of network. Raises InvalidArgumentError outside of Trio."""
    check_loop("connect")
    async with background_of_block() as background:
        client = Client._of(Core(addresses, options, background, connector))
        try:
            yield client
        finally:
            await close_in_time(client.aclose)  # noqa: ASYNC102 - shielded there


class Client(Block):
    """Creates producers, consumers and readers, which share its connections and memory limit.
    Created by `connect` for a block, or directly; then it must be closed.
    """

    def __init__(self, service_url: str, **options: Unpack[ClientKeywords]) -> None:
        """As `connect`, in a running Trio loop."""
        addresses, made = parse(service_url), make(ClientOptions, options)
        check_loop("Client")
        background = Background(None)
        self._begin(Core(addresses, made, background, connect_tcp), background)

    @classmethod
    def _of(cls, core: Core) -> Client:
        client = cls.__new__(cls)
        client._begin(core, None)
        return client

    def _begin(self, core: Core, own: Background | None) -> None:
        self._core = core
        self._own = own
        """Its tasks, if it was not opened by a block."""
        self._closed = False
        self._over = trio.Event()
        self._topics = Topics(core, self._check_open)

    def __del__(self) -> None:
        is_open = getattr(self, "_own", None) is not None and not self._closed
        if is_open and not self._core.is_forked:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._core.pool.connections)} connections"
        return f"<Client of {self._core.lookup.service_address.url}, {state}>"

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
        given = make(ProducerOptions, {**options, "schema": schema})
        made = traced_producer(self._core.options, given)
        name = parse_topic(topic)
        partitions = await self._topics.partitions_of(name)
        made = await with_topic_schema(self._core, str(name), partitions, made)
        producer: Producer[S] = Producer(self._core, name, partitions, made)
        await producer._start()
        self._core.open[producer] = None
        return producer

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
        made = make(ConsumerOptions, {**options, "schema": schema})
        check_subscription(subscription_name, made)
        made = traced_consumer(self._core.options, made, subscription_name)
        if message_listener is not None:
            function(message_listener, "message_listener")
        if isinstance(topic, Pattern):
            return await self._subscribe_pattern(topic, subscription_name, made, message_listener)
        names = [parse_topic(each) for each in topics_of(topic)]
        if made.read_compacted and not all(name.is_persistent for name in names):
            raise InvalidArgumentError("read_compacted needs a persistent topic")
        policy = complete(
            made.dead_letter_policy, names[0], subscription_name, retries=made.retry_enabled
        )
        if policy is not None:
            made = replace(made, dead_letter_policy=policy)
            if policy.retry_letter_topic is not None:
                names.append(parse_topic(policy.retry_letter_topic))
        partitions = await self._topics.expand(names, auto_create=made.auto_create)
        growth = self._growth(names, partitions, made)
        return await self._consume(
            partitions, subscription_name, made, None, growth, message_listener
        )

    def _growth(
        self,
        names: list[TopicName],
        partitions: list[tuple[str, int]],
        options: ConsumerOptions,
    ) -> Discovery | None:
        """The search for new partitions; None if there can't be any."""
        unpartitioned = {str(name) for name in names}
        if not options.auto_update_partitions or unpartitioned >= {name for name, _ in partitions}:
            return None
        interval_s = options.auto_update_partitions_interval_s
        return Discovery(self._core, NamedTopics(self._topics, names), interval_s)

    async def _subscribe_pattern(
        self,
        compiled: Pattern[str],
        name: str,
        options: ConsumerOptions,
        listener: Callable[[Consumer, Message], object] | None,
    ) -> Consumer:
        if options.retry_enabled:
            raise InvalidArgumentError("retry_enabled does not work with a topic pattern")
        if not options.receiver_queue_size:
            raise InvalidArgumentError("receiver_queue_size must be above 0 with a pattern")
        mode = options.regex_subscription_mode
        topics = PatternTopics(self._topics, parse_pattern(compiled), compiled.flags, mode)
        discovery = Discovery(self._core, topics, options.pattern_auto_discovery_period_s)
        partitions = await topics.find(whole=True)
        return await self._consume(partitions, name, options, None, discovery, listener)

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
        made = make(ReaderOptions, {**options, "schema": schema})
        if made.read_compacted and not parse_topic(topic).is_persistent:
            raise InvalidArgumentError("read_compacted needs a persistent topic")
        if not isinstance(start_message_id, MessageId):
            raise InvalidArgumentError(
                f"start_message_id must be a MessageId, not {start_message_id!r}; geminga.EARLIEST "
                "and geminga.LATEST are the ends of a topic"
            )
        name = made.subscription_name
        if name is None:
            prefix = f"{made.subscription_role_prefix}-" if made.subscription_role_prefix else ""
            name = f"{prefix}reader-{self._core.chance.randbytes(5).hex()}"
        consumer_options = made.as_consumer()
        check_subscription(name, consumer_options)
        topics = [parse_topic(topic)]
        partitions = await self._topics.expand(topics, auto_create=made.auto_create)
        growth = self._growth(topics, partitions, consumer_options)
        consumer = await self._consume(partitions, name, consumer_options, start_message_id, growth)
        if start_message_id == LATEST_ID and made.start_message_id_inclusive:
            # Inclusive LATEST: the last message's id is only known now.
            async with undone_on_error(consumer.aclose):
                for last in await consumer.last_message_ids():
                    if last.entry_id >= 0:
                        await consumer.seek(last)
        return Reader(consumer)

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
        made = make(ConsumerCryptoOptions, options)
        compacted = parse_topic(topic).is_persistent
        reader: Reader[R] = await self.create_reader(
            topic,
            EARLIEST_ID,
            schema=schema,
            subscription_name=subscription_name,
            read_compacted=compacted,
            crypto_key_reader=made.crypto_key_reader,
            crypto_failure_action=made.crypto_failure_action,
        )
        view = TableView(self._core, reader)
        await view._start()
        return view

    async def list_partitions(self, topic: str, *, auto_create: bool = True) -> list[str]:
        """Full names of the topic's partitions; the topic itself if it has none.

        A missing topic is created if the brokers' policies allow it; without `auto_create`,
        TopicNotFoundError is raised instead.
        """
        name = parse_topic(topic)
        topics = self._topics
        count = await (topics.partitions_of if auto_create else topics.partitions_if_there)(name)
        return [str(name.partition(n)) for n in range(count)] or [str(name)]

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
        return await self._topics.names_matching(pattern, mode)

    async def get_schema(self, topic: str, version: bytes | None = None) -> SchemaInfo | None:
        """The topic's schema, or its `version` (a message's `schema_version`); None if there is
        none.

        Raises TopicNotFoundError for a missing topic, which is not created.
        """
        return await self._topics.schema_of(parse_topic(topic), version)

    async def _consume(
        self,
        partitions: list[tuple[str, int]],
        name: str,
        options: ConsumerOptions,
        start_message_id: MessageId | None,
        discovery: Discovery | None,
        listener: Callable[[Consumer, Message], object] | None = None,
    ) -> Consumer:
        queue_size = options.receiver_queue_size
        if not queue_size and len(partitions) > 1:
            raise InvalidArgumentError("receiver_queue_size must be above 0 for several partitions")
        if queue_size:
            total_max = options.receiver_queue_total_max
            queue_size = max(1, min(queue_size, total_max // max(1, len(partitions))))
        consumer_name = options.consumer_name or self._core.chance.randbytes(5).hex()
        creates_topics = options.auto_create and (discovery is None or discovery.pattern is None)
        subscription = Subscription(
            name, options, consumer_name, queue_size, start_message_id, creates_topics
        )
        dead_letter_sender = None
        policy = options.dead_letter_policy
        if policy is not None:
            create = self.create_producer
            dead_letter_sender = DeadLetterSender(self._core, subscription, policy, create)
        consumer = Consumer(self._core, subscription, partitions, dead_letter_sender, discovery)
        await consumer._start(listener)
        self._core.open[consumer] = None
        return consumer

    def _check_open(self) -> None:
        self._core.check_fork()
        if self._closed:
            raise AlreadyClosedError("the client is closed")

    async def aclose(self) -> None:
        """Close all producers, consumers and readers, then the connections. Idempotent: another
        call waits for the first.
        """
        if self._core.is_forked:
            self._closed = True
            return
        if self._closed:
            with trio.move_on_after(CLOSE_TIMEOUT_S):
                # With a deadline: the first call may wait for a listener that calls this, too.
                await self._over.wait()
            return
        self._closed = True
        try:
            await self._close_all()
        finally:
            self._over.set()
            if self._core.metrics is not None:
                self._core.metrics.close()
            if self._own is not None:
                self._core.pool.close()
                self._own.cancel()

    async def _close_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for each in list(self._core.open):
                nursery.start_soon(each.aclose)
        for connection in self._core.pool.connections:
            with trio.move_on_after(1.0):
                await connection.flush()
        self._core.pool.close()

    async def __aexit__(self, *error: object) -> None:
        await close_in_time(self.aclose)  # noqa: ASYNC102 - shielded there
