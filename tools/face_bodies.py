"""What the methods of the faces do, for `tools/faces.py`: tables of code and words."""

from __future__ import annotations

CLOSE = """if not self._session.portal.is_forked and self._session.is_running:
            await self._session.call(self._inner.aclose)"""
BODIES = {
    "Client.__repr__": "return repr(self._session)",
    "Client.create_producer": "return Producer(self._session, await {ask})",
    "Client.subscribe": """if message_listener is not None:
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
        return consumer""",
    "Client.create_reader": "return Reader(self._session, await {ask})",
    "Client.create_table_view": "return TableView(self._session, await {ask})",
    "Client.aclose": "await self._session.aclose()",
    "Producer.pending_messages": "return self._sender.pending_messages",
    "Producer.statistics": "return self._inner.statistics()",
    "Producer.send": "return await self._sender.send(data, sequence_id, described)",
    "Producer.submit": """if data.__class__ is bytes and sequence_id is None and not described:
            receipt = self._sender.send_at_once(data)
            if receipt is not None:
                return receipt
        return await self._sender.submit(data, sequence_id, described)""",
    "Producer.submit_many": "return await self._sender.submit_many(payloads)",
    "Producer.send_nowait": "return self._sender.send_nowait(data, sequence_id, described)",
    "Producer.aclose": "await self._sender.close()",
    "Consumer.receive": """receiver = self._receiver
        if timeout_s is not None:
            duration(timeout_s, "timeout_s")
        if not receiver.is_stale:
            try:
                # By iteration: KeyboardInterrupt can't come between taking and returning.
                for message in receiver.pops:
                    return message
            except IndexError:
                pass
        return await receiver.receive_slowly(timeout_s)""",
    "Consumer.receive_batch": (
        "return await self._receiver.receive_batch(max_messages, max_bytes, wait_s)"
    ),
    "Consumer.statistics": "return self._inner.statistics()",
    "Consumer.unsubscribe": """await self._receiver.stop_listening()
        await {ask}""",
    "Consumer.__anext__": "return await self._receiver.next()",
    "Consumer.pause": "self._session.portal.post(self._inner.pause)",
    "Consumer.resume": "self._session.portal.post(self._inner.resume)",
    "Consumer.acknowledge": """receiver = self._receiver
        if receiver.waits_for_receipts:
            await receiver.acknowledge_now(message)
        else:
            receiver.acknowledge(message)""",
    "Consumer.acknowledge_all": "await self._receiver.acknowledge_all(messages)",
    "Consumer.negative_acknowledge": "self._receiver.refuse(message)",
    "Consumer.redeliver_unacknowledged_messages": "self._receiver.redeliver_all()",
    "Consumer.has_message_available": (
        "return await self._session.call(self._receiver.has_message_available)"
    ),
    "Consumer.aclose": "await self._receiver.close()",
    "Reader.read_next": "return await self._receiver.read(timeout_s)",
    "Reader.__anext__": "return await self._receiver.read_on()",
    "Reader.read_batches": "return await self._receiver.read_batches(timeout_s, bytes_max)",
    "Reader.has_message_available": (
        "return await self._session.call(self._receiver.has_message_available)"
    ),
    "Reader.received_ids": "return self._inner.received_ids()",
    "Reader.incomplete_message_ids": "return self._inner.incomplete_message_ids()",
    "Reader.statistics": "return self._inner.statistics()",
    "Reader.aclose": "await self._receiver.close()",
    "TableView.__len__": "return len(self._inner)",
    "TableView.__contains__": "return key in self._inner",
    "TableView.get": "return self._inner.get(key)",
    "TableView.keys": "return self._inner.keys()",
    "TableView.items": "return self._inner.items()",
    "TableView.listen": """function(listener, "listener")
        self._session.portal.post(self._inner.listen, listener)""",
    "TableView.for_each_and_listen": """function(listener, "listener")
        self._session.portal.post(self._inner.for_each_and_listen, listener)""",
    "TableView.changes": "return TableChanges(self._session, self._inner.changes())",
    "TableView.aclose": CLOSE,
    "TableChanges.close": "self._session.portal.post(self._inner.close)",
    "TableChanges.__anext__": """change = await self.next_change()
        if change is None:
            raise StopAsyncIteration
        return change""",
}
"""What methods do, written for asyncio. `{ask}` is what they would do without a body."""

PLAIN = {
    "__repr__": "return repr(self._inner)",
    "__aiter__": "return self",
}
INITS = {
    "Client": """
        self._session = {prefix}Session(geminga.client.connect(service_url, **options))
""",
    "Producer": """
        self._session = session
        self._inner = inner
        self._sender = {prefix}Sender(session, inner)
""",
    "Consumer": """
        self._session = session
        self._inner = inner
        self._receiver = {prefix}Receiver(session, inner)
""",
    "Reader": """
        self._session = session
        self._inner = inner
        self._receiver = {prefix}Receiver(session, consumer_of(inner))
""",
    "TableView": """
        self._session = session
        self._inner = inner
""",
    "TableChanges": """
        self._session = session
        self._inner = inner
""",
}
ASKS = {
    "Client": "self._session.call(lambda: self._session.client.{call})",
    "Producer": "self._sender.call(lambda: self._inner.{call})",
    "Consumer": "self._receiver.call(lambda: self._inner.{call})",
    "Reader": "self._receiver.call(lambda: self._inner.{call})",
    "TableView": "self._session.call(lambda: self._inner.{call})",
    "TableChanges": "self._session.call(lambda: self._inner.{call})",
}
DOCS = {
    "Client": """Makes producers, consumers and readers, which share its connections and memory
    limit. Made by `connect` for a block, or by itself until it is closed. Any number of
    {programs} may use it.
    """,
    "Client.subscribe": """A consumer of a subscription on one topic or several, or on all
        topics of a namespace whose whole name matches
        `re.compile("persistent://tenant/namespace/regex")`, as they come and go. See
        `ConsumerOptions`; with a `schema` messages have values by it.

        A `message_listener(consumer, message)` is called with each message instead of `receive`. It
        is {listener}, and has to acknowledge; what it raises
        is logged, and the message negatively acknowledged. One call runs at a time, or up to
        `message_listener_concurrency`: then those for one partition are in order (Key_Shared: those
        for one key; Shared: none).

        Raises InvalidArgumentError, ConsumerBusyError, TopicNotFoundError, AuthorizationError,
        OperationTimeoutError and other GemingaErrors.
        """,
    "Producer.submit": """Hand a message over for sending; wait only while there is no room.

        `max_pending_messages` counts over all partitions together. Raises InvalidArgumentError for
        what can't be sent at all; what else happens to the message stands in the receipt.
        """,
    "Producer.send_nowait": """The same without ever waiting. Raises ProducerQueueFullError or
        MemoryLimitError too.
        """,
    "Consumer.receive": """The next message.

        Raises OperationTimeoutError after `timeout_s` seconds, AlreadyClosedError, and what ended
        the subscription. Messages are taken ahead of the program, up to half the receiver queue;
        {interrupted} loses none of them.
        """,
}
"""Docstrings that can't be the Trio face's."""

IMPORTS = {
    "consumer_of": "geminga.reader",
    "function": "geminga._options.arguments",
    "Callable": "collections.abc",
    "duration": "geminga._options.arguments",
    "Iterable": "collections.abc",
    "Sequence": "collections.abc",
    "Mapping": "collections.abc",
    "KeysView": "collections.abc",
    "ItemsView": "collections.abc",
    "TableListener": "geminga.table_view",
    "TracebackType": "types",
    "Unpack": "typing",
    "InvalidArgumentError": "geminga.errors",
    "Generic": "typing",
    "Schema": "geminga.schema._base",
    "SchemaInfo": "geminga.schema._info",
    "S": "geminga.producer",
    "R": "geminga.table_changes",
    "V_co": "geminga.message",
    "Pattern": "re",
    "opening": "geminga._connection.opening",
    "Opening": "geminga._connection.opening",
    "Connecting": "geminga._connection.opening",
    "datetime": "datetime",
    "ConsumerKeywords": "geminga.options",
    "ProducerKeywords": "geminga.options",
    "ReaderKeywords": "geminga.options",
    "ConsumerCryptoKeywords": "geminga.encryption",
    "ClientKeywords": "geminga.options",
    "MessageKeywords": "geminga.producer",
    "MessageOrId": "geminga.consumer",
    "Message": "geminga.message",
    "MessageId": "geminga_protocol.message_id",
}
"""Where the names that signatures may use come from, if not from the face itself."""
CLASSES = {
    "Client": "client",
    "Producer": "producer",
    "Consumer": "consumer",
    "Reader": "reader",
    "TableView": "table_view",
    "TableChanges": "table_changes",
}

CONNECT = {
    "blocking": '''
def connect(service_url: str, **options: Unpack[ClientKeywords]) -> Client:
    """A client for the brokers at `pulsar://host:port[,host:port...]`, to be closed by `close` or
    as a context manager.

    Nothing is connected before it is needed. Raises InvalidServiceUrlError or InvalidArgumentError
    at once. See `geminga.ClientOptions` for the options.
    """
    return Client(service_url, **options)
''',
    "aio": '''
def connect(service_url: str, **options: Unpack[ClientKeywords]) -> Connecting[Client]:
    """A client for the brokers at `pulsar://host:port[,host:port...]`; closed at the block's end.
    If it is awaited instead of entered, it is a `Client` that lasts until its `aclose`.

    Nothing is connected before it is needed. Raises InvalidServiceUrlError or InvalidArgumentError
    at once. See `geminga.ClientOptions` for the options.
    """
    geminga.client.connect(service_url, **options)

    async def opened() -> Client:
        client = Client(service_url, **options)
        await client._session.opened()
        return client

    return Connecting(lambda: Opening(opened()), opened)
''',
}

USAGE = """
    async with geminga.{package}.connect("pulsar://localhost:6650") as client:
        producer = await client.create_producer("my-topic")
        await producer.send(b"hello")
        consumer = await client.subscribe("my-topic", "my-subscription")
        async for message in consumer:
            await consumer.acknowledge(message)

The names are those of `geminga`, and so are messages, options and errors. All clients of a process
share one background thread, in which the Trio client works. After a fork the child makes its own:
what was made before raises ForkError there.
"""

ABOUT = {
    "geminga": """Geminga: a Pulsar client for Trio (spec SDK).

    async with geminga.connect("pulsar://localhost:6650") as client:
        producer = await client.create_producer("my-topic")
        await producer.send(b"hello")
        consumer = await client.subscribe("my-topic", "my-subscription")
        async for message in consumer:
            await consumer.acknowledge(message)

What stands in `__all__` is the public API; all else is private. Logs go to the logger "geminga",
which prints nothing by itself.
""",
    "geminga.schema": """Typed schemas (spec SDK-41; `Schema` of the Java client).

    producer = await client.create_producer("orders", schema=geminga.schema.Avro(Order))
    await producer.send(Order(id=1))
    consumer = await client.subscribe("orders", "billing", schema=geminga.schema.Avro(Order))
    order = (await consumer.receive()).value

What stands in `__all__` is public. fastavro is imported with the first Avro schema.
""",
}
"""Docstrings of the packages that are no derived faces."""
