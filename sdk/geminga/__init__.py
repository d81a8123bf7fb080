"""Geminga: a Pulsar client for Trio (spec SDK).

    async with geminga.connect("pulsar://localhost:6650") as client:
        producer = await client.create_producer("my-topic")
        await producer.send(b"hello")
        consumer = await client.subscribe("my-topic", "my-subscription")
        async for message in consumer:
            await consumer.acknowledge(message)

What stands in `__all__` is the public API; all else is private. Logs go to the logger "geminga",
which prints nothing by itself.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import geminga.schema as schema  # noqa: F401
    from geminga._connection.statistics import ProducerStatistics
    from geminga._consuming.statistics import ConsumerStatistics
    from geminga._producing.receipt import Receipt
    from geminga.auth import (
        Authentication,
        AuthenticationBasic,
        AuthenticationOAuth2,
        AuthenticationTls,
        AuthenticationToken,
    )
    from geminga.client import Client, connect
    from geminga.consumer import Consumer
    from geminga.encryption import (
        ConsumerCryptoFailureAction,
        CryptoKeyReader,
        DefaultCryptoKeyReader,
        EncryptionContext,
        EncryptionKeyInfo,
        ProducerCryptoFailureAction,
    )
    from geminga.entry_batch import EntryBatch
    from geminga.errors import (
        AlreadyClosedError,
        AuthenticationError,
        AuthorizationError,
        BrokerError,
        ChecksumError,
        ConnectionFailedError,
        ConsumerAssignError,
        ConsumerBusyError,
        ConsumerNotFoundError,
        CorruptMessageError,
        CryptoError,
        ForkError,
        GemingaError,
        IncompatibleSchemaError,
        InvalidArgumentError,
        InvalidSchemaError,
        InvalidServiceUrlError,
        InvalidStateError,
        InvalidTopicNameError,
        InvalidTransactionStatusError,
        InvalidValueError,
        MemoryLimitError,
        MessageTooBigError,
        MetadataError,
        NotAllowedError,
        OperationTimeoutError,
        PersistenceError,
        ProducerBusyError,
        ProducerFencedError,
        ProducerQueueFullError,
        QuotaExceededError,
        SchemaError,
        SchemaUnavailableError,
        ServiceNotReadyError,
        SubscriptionNotFoundError,
        TlsError,
        TooManyRequestsError,
        TopicNotFoundError,
        TopicTerminatedError,
        TransactionConflictError,
        TransactionCoordinatorNotFoundError,
        TransactionError,
        TransactionNotFoundError,
        UndecodableValueError,
        UnknownBrokerError,
        UnsupportedVersionError,
    )
    from geminga.failover import AutoClusterFailover, FailoverCluster
    from geminga.message import Message
    from geminga.options import (
        BatchingType,
        BatchReceivePolicy,
        ClientOptions,
        CompressionType,
        ConsumerEventListener,
        ConsumerInterceptor,
        ConsumerOptions,
        ConsumerType,
        DeadLetterPolicy,
        HashingScheme,
        InitialPosition,
        KeySharedPolicy,
        MultiplierBackoff,
        ProducerAccessMode,
        ProducerInterceptor,
        ProducerMessage,
        ProducerOptions,
        ReaderOptions,
        RegexSubscriptionMode,
        RoutedMessage,
        RoutingMode,
    )
    from geminga.producer import Producer
    from geminga.reader import Reader
    from geminga.table_changes import TableChanges
    from geminga.table_view import TableView
    from geminga_protocol.message_id import EARLIEST_ID as EARLIEST
    from geminga_protocol.message_id import LATEST_ID as LATEST
    from geminga_protocol.message_id import MessageId

__version__ = "0.1.0"

__all__ = [
    "AlreadyClosedError",
    "Authentication",
    "AuthenticationBasic",
    "AuthenticationError",
    "AuthenticationOAuth2",
    "AuthenticationTls",
    "AuthenticationToken",
    "AuthorizationError",
    "AutoClusterFailover",
    "BatchReceivePolicy",
    "BatchingType",
    "BrokerError",
    "ChecksumError",
    "Client",
    "ClientOptions",
    "CompressionType",
    "ConnectionFailedError",
    "Consumer",
    "ConsumerAssignError",
    "ConsumerBusyError",
    "ConsumerCryptoFailureAction",
    "ConsumerEventListener",
    "ConsumerInterceptor",
    "ConsumerNotFoundError",
    "ConsumerOptions",
    "ConsumerStatistics",
    "ConsumerType",
    "CorruptMessageError",
    "CryptoError",
    "CryptoKeyReader",
    "DeadLetterPolicy",
    "DefaultCryptoKeyReader",
    "EARLIEST",
    "EncryptionContext",
    "EncryptionKeyInfo",
    "EntryBatch",
    "FailoverCluster",
    "ForkError",
    "GemingaError",
    "HashingScheme",
    "IncompatibleSchemaError",
    "InitialPosition",
    "InvalidArgumentError",
    "InvalidSchemaError",
    "InvalidServiceUrlError",
    "InvalidStateError",
    "InvalidTopicNameError",
    "InvalidTransactionStatusError",
    "InvalidValueError",
    "KeySharedPolicy",
    "LATEST",
    "MemoryLimitError",
    "Message",
    "MessageId",
    "MessageTooBigError",
    "MetadataError",
    "MultiplierBackoff",
    "NotAllowedError",
    "OperationTimeoutError",
    "PersistenceError",
    "Producer",
    "ProducerAccessMode",
    "ProducerBusyError",
    "ProducerCryptoFailureAction",
    "ProducerFencedError",
    "ProducerInterceptor",
    "ProducerMessage",
    "ProducerOptions",
    "ProducerQueueFullError",
    "ProducerStatistics",
    "QuotaExceededError",
    "Reader",
    "ReaderOptions",
    "Receipt",
    "RegexSubscriptionMode",
    "RoutedMessage",
    "RoutingMode",
    "SchemaError",
    "SchemaUnavailableError",
    "ServiceNotReadyError",
    "SubscriptionNotFoundError",
    "TableChanges",
    "TableView",
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
    "connect",
]

_HOMES = {
    "geminga.client": ("Client", "connect"),
    "geminga.auth": (
        "Authentication",
        "AuthenticationBasic",
        "AuthenticationOAuth2",
        "AuthenticationTls",
        "AuthenticationToken",
    ),
    "geminga.encryption": (
        "ConsumerCryptoFailureAction",
        "CryptoKeyReader",
        "DefaultCryptoKeyReader",
        "EncryptionContext",
        "EncryptionKeyInfo",
        "ProducerCryptoFailureAction",
    ),
    "geminga.failover": ("AutoClusterFailover", "FailoverCluster"),
    "geminga._consuming.statistics": ("ConsumerStatistics",),
    "geminga._connection.statistics": ("ProducerStatistics",),
    "geminga.producer": ("Producer",),
    "geminga._producing.receipt": ("Receipt",),
    "geminga.consumer": ("Consumer",),
    "geminga.reader": ("Reader",),
    "geminga.entry_batch": ("EntryBatch",),
    "geminga.table_changes": ("TableChanges",),
    "geminga.table_view": ("TableView",),
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
    "geminga_protocol.message_id": ("EARLIEST", "LATEST", "MessageId"),
}
_RENAMED = {"EARLIEST": "EARLIEST_ID", "LATEST": "LATEST_ID"}
_PUBLIC_MODULES = (
    *("aio", "auth", "blocking", "encryption", "errors", "failover", "options", "schema"),
    "testing",
)
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

logging.getLogger("geminga").addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: `import geminga` alone stays cheap."""
    if name == "schema":
        return importlib.import_module("geminga.schema")
    if name not in __all__:
        hint = f": import geminga.{name} first" if name in _PUBLIC_MODULES else ""
        raise AttributeError(f"module 'geminga' has no attribute {name!r}{hint}")
    module = importlib.import_module(_MODULES.get(name, "geminga.errors"))
    value: object = getattr(module, _RENAMED.get(name, name))
    if name in ("connect", "Client"):
        importlib.import_module("geminga._options.signatures").show_options(module)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_PUBLIC_MODULES, *(name for name in globals() if name[:2] == "__")])
