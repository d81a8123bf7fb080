"""The public names of `geminga` and of its packages, for `tools/faces.py`: where each stands, and
the packages' docstrings.
"""

from __future__ import annotations

PUBLIC_MODULES = (
    *("admin", "aio", "auth", "blocking", "encryption", "errors", "failover", "options", "schema"),
    *("otel", "testing"),
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
    "Admin": ("_admin/options", "TlsKeywords"),
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
    "geminga._telemetry.providers": ("MeterProvider", "TracerProvider"),
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

ADMIN_NAMES: dict[str, tuple[str, ...]] = {
    "geminga._admin.errors": (
        "AdminError",
        "BadRequestError",
        "ConflictError",
        "NotAllowedError",
        "NotAuthorizedError",
        "NotFoundError",
        "PreconditionFailedError",
        "RequestTimeoutError",
        "ServerError",
        "UnavailableError",
        "UnreachableError",
    ),
    "geminga._admin.families.brokers": (
        *("Bookies", "BrokerStats", "Brokers", "ProxyStats", "ResourceGroups", "ResourceQuotas"),
    ),
    "geminga._admin.families.clusters": ("Clusters", "IsolationPolicies"),
    "geminga._admin.families.namespace_policies": ("NamespacePolicies",),
    "geminga._admin.families.namespaces": ("Bundles", "Namespaces"),
    "geminga._admin.families.subscriptions": ("Messages", "Schemas", "Subscriptions"),
    "geminga._admin.families.tenants": ("Tenants",),
    "geminga._admin.families.topic_policies": ("TopicPolicies",),
    "geminga._admin.families.topics": ("Lookups", "Stats", "Topics"),
    "geminga._admin.messages": ("StoredMessage",),
    "geminga._admin.model.cluster": (
        "AuthAction",
        "AutoFailoverPolicy",
        "BookieId",
        "BookieInfo",
        "BookieSpace",
        "BookiesClusterInfo",
        "BrokerInfo",
        "BrokerNamespaceIsolationData",
        "ClusterData",
        "ClusterPolicies",
        "ClusterUrl",
        "FailureDomain",
        "InternalConfigurationData",
        "LookupData",
        "Metrics",
        "NamespaceIsolationData",
        "NamespaceOwnershipStatus",
        "ProxyConnectionStats",
        "ProxyTopicStats",
        "ResourceGroup",
        "ResourceQuota",
        "TenantInfo",
        "TopicHashPositions",
    ),
    "geminga._admin.model.policies": (
        "AuthPolicies",
        "AutoSubscriptionCreationOverride",
        "AutoTopicCreationOverride",
        "BacklogQuota",
        "BacklogQuotaPolicy",
        "BacklogQuotaType",
        "BookieAffinityGroupData",
        "BundlesData",
        "DelayedDeliveryPolicies",
        "DispatchRate",
        "EntryFilters",
        "InactiveTopicDeleteMode",
        "InactiveTopicPolicies",
        "NewNamespace",
        "OffloadPolicies",
        "PersistencePolicies",
        "Policies",
        "PublishRate",
        "RetentionPolicies",
        "SchemaAutoUpdateCompatibilityStrategy",
        "SchemaCompatibilityStrategy",
        "SubscribeRate",
        "SubscriptionAuthMode",
        "SubscriptionType",
    ),
    "geminga._admin.model.schemas": (
        "GetAllVersionsSchemaResponse",
        "GetSchemaResponse",
        "IsCompatibilityResponse",
        "PostSchemaPayload",
        "SchemaMetadata",
        "SchemaMetadataEntry",
        "SchemaVersion",
    ),
    "geminga._admin.model.stats": (
        "AnalyzeSubscriptionBacklogResult",
        "CompactionStats",
        "ConsumerStats",
        "CursorStats",
        "DrainingHash",
        "Finding",
        "LedgerInfo",
        "LongRunningProcessStatus",
        "OffloadProcessStatus",
        "PartitionedTopicInternalStats",
        "PartitionedTopicMetadata",
        "PartitionedTopicStats",
        "PersistentTopicInternalStats",
        "Position",
        "PublisherStats",
        "ReplicatorStats",
        "SubscriptionStats",
        "TopicStats",
    ),
    "geminga._admin.model.topics": (
        "EARLIEST",
        "GrantTopicPermission",
        "LATEST",
        "ResetCursorData",
        "RevokeTopicPermission",
        "SplitAlgorithm",
        "TopicDomain",
        "TopicMode",
    ),
    "geminga._admin.options": ("AdminOptions",),
    "geminga._admin.policies": (
        *("NamespacePolicy", "NamespaceSetting", "TopicPolicy", "TopicSetting"),
    ),
}
"""Of `geminga.admin`, and of the same module of its faces."""

ADMIN_CLIENTS = {
    "": "geminga._admin.client",
    "aio.": "geminga._admin.aio_client",
    "blocking.": "geminga._admin.blocking.client",
}
"""The module of the admin client of each face."""

ADMIN_USAGE = """
    async with {package}.connect("http://localhost:8080") as admin:
        await admin.topics.create_partitioned("orders", 4)
        stats = await admin.stats.get_partitioned("orders")
        await admin.namespace_policies.message_ttl.set("public/default", 3600)

The names in `__all__` are public.
"""

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
    "geminga.admin": "An admin client: Pulsar's admin REST, typed (spec SDK-48).\n",
    "geminga.aio": "A Pulsar client for asyncio programs (spec SDK-45).",
    "geminga.blocking": (
        "A Pulsar client for ordinary programs: every call waits in its thread (spec SDK-45)."
    ),
}
"""Docstrings of the packages; those of the derived faces go on with USAGE."""
