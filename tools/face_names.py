"""The public names of `geminga` and of its packages, for `tools/faces.py`: where each stands, and
the packages' docstrings.
"""

from __future__ import annotations

PUBLIC_MODULES = (
    *("aio", "auth", "blocking", "encryption", "errors", "failover", "options", "schema"),
    "testing",
)

NAMES: dict[str, tuple[str, ...]] = {
    "geminga._connection.statistics": ("ProducerStatistics",),
    "geminga._consuming.statistics": ("ConsumerStatistics",),
    "geminga._producing.receipt": ("Receipt",),
    "geminga.auth": (
        "Authentication",
        "AuthenticationBasic",
        "AuthenticationOAuth2",
        "AuthenticationTls",
        "AuthenticationToken",
    ),
    "geminga.client": (
        "Client",
        "connect",
    ),
    "geminga.consumer": ("Consumer",),
    "geminga.encryption": (
        "ConsumerCryptoFailureAction",
        "CryptoKeyReader",
        "DefaultCryptoKeyReader",
        "EncryptionContext",
        "EncryptionKeyInfo",
        "ProducerCryptoFailureAction",
    ),
    "geminga.entry_batch": ("EntryBatch",),
    "geminga.errors": (
        "AlreadyClosedError",
        "AuthenticationError",
        "AuthorizationError",
        "BrokerError",
        "ChecksumError",
        "ConnectionFailedError",
        "ConsumerAssignError",
        "ConsumerBusyError",
        "ConsumerNotFoundError",
        "CorruptMessageError",
        "CryptoError",
        "ForkError",
        "GemingaError",
        "IncompatibleSchemaError",
        "InvalidArgumentError",
        "InvalidSchemaError",
        "InvalidServiceUrlError",
        "InvalidStateError",
        "InvalidTopicNameError",
        "InvalidTransactionStatusError",
        "InvalidValueError",
        "MemoryLimitError",
        "MessageTooBigError",
        "MetadataError",
        "NotAllowedError",
        "OperationTimeoutError",
        "PersistenceError",
        "ProducerBusyError",
        "ProducerFencedError",
        "ProducerQueueFullError",
        "QuotaExceededError",
        "SchemaError",
        "SchemaUnavailableError",
        "ServiceNotReadyError",
        "SubscriptionNotFoundError",
        "TlsError",
        "TooManyRequestsError",
        "TopicNotFoundError",
        "TopicTerminatedError",
        "TransactionConflictError",
        "TransactionCoordinatorNotFoundError",
        "TransactionError",
        "TransactionNotFoundError",
        "UndecodableValueError",
        "UnknownBrokerError",
        "UnsupportedVersionError",
        "WrongProtocolError",
    ),
    "geminga.failover": (
        "AutoClusterFailover",
        "FailoverCluster",
    ),
    "geminga.message": ("Message",),
    "geminga.options": (
        "BatchReceivePolicy",
        "BatchingType",
        "ClientOptions",
        "CompressionType",
        "ConsumerEventListener",
        "ConsumerInterceptor",
        "ConsumerOptions",
        "ConsumerType",
        "DeadLetterPolicy",
        "HashingScheme",
        "InitialPosition",
        "KeySharedPolicy",
        "MultiplierBackoff",
        "ProducerAccessMode",
        "ProducerInterceptor",
        "ProducerMessage",
        "ProducerOptions",
        "ReaderOptions",
        "RegexSubscriptionMode",
        "RoutedMessage",
        "RoutingMode",
    ),
    "geminga.producer": ("Producer",),
    "geminga.reader": ("Reader",),
    "geminga.table_changes": ("TableChanges",),
    "geminga.table_view": ("TableView",),
    "geminga_protocol.message_id": (
        "EARLIEST_ID as EARLIEST",
        "LATEST_ID as LATEST",
        "MessageId",
    ),
}
"""Of `geminga`, and of its faces but for their own classes. A new one needs a line in CHANGELOG."""

SCHEMA_NAMES: dict[str, tuple[str, ...]] = {
    "geminga.schema._auto": (
        "AlreadyEncoded",
        "AutoConsume",
        "AutoProduce",
    ),
    "geminga.schema._avro": (
        "Avro",
        "Json",
    ),
    "geminga.schema._base": ("Schema",),
    "geminga.schema._info": ("SchemaInfo",),
    "geminga.schema._key_value": (
        "KeyValue",
        "KeyValueEncodingType",
    ),
    "geminga.schema._primitives": (
        "Boolean",
        "Bytes",
        "Date",
        "Double",
        "Float",
        "Instant",
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "LocalDate",
        "LocalDateTime",
        "LocalTime",
        "String",
        "Time",
        "Timestamp",
    ),
    "geminga.schema._protobuf": (
        "Protobuf",
        "ProtobufNative",
        "message_class",
    ),
    "geminga.schema._records": ("GenericRecord",),
    "geminga.schema._types": (
        "Micros",
        "Precision",
    ),
    "geminga_protocol.schema_type": ("SchemaType",),
}
"""Of `geminga.schema`."""

KEYWORDS = {
    "Tls": ("_connection/tls_options", "TypedDict"),
    "Client": ("options", "TlsKeywords"),
    "Producer": ("options", "ProducerCryptoKeywords"),
    "Consumer": ("_options/consumer", "ConsumerCryptoKeywords"),
    "Reader": ("_options/consumer", "ConsumerCryptoKeywords"),
}
"""The classes of options that calls take as keywords: where each stands, and the base of its
keywords.
"""

KEYWORD_TYPES = {
    "collections.abc": ("Mapping", "Sequence"),
    "geminga._options.consumer": (
        *("ConsumerType", "DeadLetterPolicy", "InitialPosition", "KeySharedPolicy"),
        *("MultiplierBackoff", "RegexSubscriptionMode"),
    ),
    "geminga._options.consumer_hooks": (
        *("BatchReceivePolicy", "ConsumerEventListener", "ConsumerInterceptor"),
    ),
    "geminga._options.kinds": (
        *("BatchingType", "CompressionType", "HashingScheme", "MessageRouter"),
        *("ProducerAccessMode", "RoutingMode"),
    ),
    "geminga._options.producer_interceptors": ("ProducerInterceptor",),
    "geminga.auth": ("Authentication",),
    "geminga.encryption": ("ConsumerCryptoKeywords", "ProducerCryptoKeywords"),
    "geminga.failover": ("AutoClusterFailover",),
}
"""Where the types of options come from."""

CLASSES = {
    "Client": "client",
    "Producer": "producer",
    "Consumer": "consumer",
    "Reader": "reader",
    "TableView": "table_view",
    "TableChanges": "table_changes",
}
"""What each face has a class of its own for: the module of it."""

USAGE = """
    async with geminga.{package}.connect("pulsar://localhost:6650") as client:
        producer = await client.create_producer("my-topic")
        await producer.send(b"hello")
        consumer = await client.subscribe("my-topic", "my-subscription")
        async for message in consumer:
            await consumer.acknowledge(message)

Names, messages, options and errors are those of `geminga`. All clients of a process share one
background thread, in which the Trio client runs. After a fork the child starts its own: clients
that were made before raise ForkError there.
"""
"""How a derived face is used, in the words of asyncio."""

ABOUT = {
    "geminga": """Geminga: a Pulsar client for Trio (spec SDK).

    async with geminga.connect("pulsar://localhost:6650") as client:
        producer = await client.create_producer("my-topic")
        await producer.send(b"hello")
        consumer = await client.subscribe("my-topic", "my-subscription")
        async for message in consumer:
            await consumer.acknowledge(message)

The names in `__all__` are the public API; all others are private. The logger is "geminga"; it
prints nothing by default.
""",
    "geminga.schema": """Typed schemas (spec SDK-41; `Schema` of the Java client).

    producer = await client.create_producer("orders", schema=geminga.schema.Avro(Order))
    await producer.send(Order(id=1))
    consumer = await client.subscribe("orders", "billing", schema=geminga.schema.Avro(Order))
    order = (await consumer.receive()).value

The names in `__all__` are public. fastavro is imported with the first Avro schema.
""",
    "geminga.aio": "A Pulsar client for asyncio programs (spec SDK-45).",
    "geminga.blocking": (
        "A Pulsar client for ordinary programs: every call waits in its thread (spec SDK-45)."
    ),
}
"""Docstrings of the packages; those of the derived faces go on with USAGE."""
