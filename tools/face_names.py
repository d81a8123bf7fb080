"""The public names of `geminga` and of its packages, for `tools/faces.py`: where each stands."""

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
