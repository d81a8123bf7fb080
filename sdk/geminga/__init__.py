"""Geminga: a Pulsar client for Trio (spec SDK).

Made by tools/faces.py: don't edit.

    async with geminga.connect("pulsar://localhost:6650") as client:
        producer = await client.create_producer("my-topic")
        await producer.send(b"hello")
        consumer = await client.subscribe("my-topic", "my-subscription")
        async for message in consumer:
            await consumer.acknowledge(message)

The names in `__all__` are the public API; all others are private. The logger is "geminga"; it
prints nothing by default.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from geminga._options.lazy import lazily

if TYPE_CHECKING:
    from geminga import schema as schema
    from geminga._connection.statistics import ProducerStatistics as ProducerStatistics
    from geminga._consuming.statistics import ConsumerStatistics as ConsumerStatistics
    from geminga._producing.receipt import Receipt as Receipt
    from geminga.auth import Authentication as Authentication
    from geminga.auth import AuthenticationBasic as AuthenticationBasic
    from geminga.auth import AuthenticationOAuth2 as AuthenticationOAuth2
    from geminga.auth import AuthenticationTls as AuthenticationTls
    from geminga.auth import AuthenticationToken as AuthenticationToken
    from geminga.client import Client as Client
    from geminga.client import connect as connect
    from geminga.consumer import Consumer as Consumer
    from geminga.encryption import ConsumerCryptoFailureAction as ConsumerCryptoFailureAction
    from geminga.encryption import CryptoKeyReader as CryptoKeyReader
    from geminga.encryption import DefaultCryptoKeyReader as DefaultCryptoKeyReader
    from geminga.encryption import EncryptionContext as EncryptionContext
    from geminga.encryption import EncryptionKeyInfo as EncryptionKeyInfo
    from geminga.encryption import ProducerCryptoFailureAction as ProducerCryptoFailureAction
    from geminga.entry_batch import EntryBatch as EntryBatch
    from geminga.errors import AlreadyClosedError as AlreadyClosedError
    from geminga.errors import AuthenticationError as AuthenticationError
    from geminga.errors import AuthorizationError as AuthorizationError
    from geminga.errors import BrokerError as BrokerError
    from geminga.errors import ChecksumError as ChecksumError
    from geminga.errors import ConnectionFailedError as ConnectionFailedError
    from geminga.errors import ConsumerAssignError as ConsumerAssignError
    from geminga.errors import ConsumerBusyError as ConsumerBusyError
    from geminga.errors import ConsumerNotFoundError as ConsumerNotFoundError
    from geminga.errors import CorruptMessageError as CorruptMessageError
    from geminga.errors import CryptoError as CryptoError
    from geminga.errors import ForkError as ForkError
    from geminga.errors import GemingaError as GemingaError
    from geminga.errors import IncompatibleSchemaError as IncompatibleSchemaError
    from geminga.errors import InvalidArgumentError as InvalidArgumentError
    from geminga.errors import InvalidSchemaError as InvalidSchemaError
    from geminga.errors import InvalidServiceUrlError as InvalidServiceUrlError
    from geminga.errors import InvalidStateError as InvalidStateError
    from geminga.errors import InvalidTopicNameError as InvalidTopicNameError
    from geminga.errors import InvalidTransactionStatusError as InvalidTransactionStatusError
    from geminga.errors import InvalidValueError as InvalidValueError
    from geminga.errors import MemoryLimitError as MemoryLimitError
    from geminga.errors import MessageTooBigError as MessageTooBigError
    from geminga.errors import MetadataError as MetadataError
    from geminga.errors import NotAllowedError as NotAllowedError
    from geminga.errors import OperationTimeoutError as OperationTimeoutError
    from geminga.errors import PersistenceError as PersistenceError
    from geminga.errors import ProducerBusyError as ProducerBusyError
    from geminga.errors import ProducerFencedError as ProducerFencedError
    from geminga.errors import ProducerQueueFullError as ProducerQueueFullError
    from geminga.errors import QuotaExceededError as QuotaExceededError
    from geminga.errors import SchemaError as SchemaError
    from geminga.errors import SchemaUnavailableError as SchemaUnavailableError
    from geminga.errors import ServiceNotReadyError as ServiceNotReadyError
    from geminga.errors import SubscriptionNotFoundError as SubscriptionNotFoundError
    from geminga.errors import TlsError as TlsError
    from geminga.errors import TooManyRequestsError as TooManyRequestsError
    from geminga.errors import TopicNotFoundError as TopicNotFoundError
    from geminga.errors import TopicTerminatedError as TopicTerminatedError
    from geminga.errors import TransactionConflictError as TransactionConflictError
    from geminga.errors import (
        TransactionCoordinatorNotFoundError as TransactionCoordinatorNotFoundError,
    )
    from geminga.errors import TransactionError as TransactionError
    from geminga.errors import TransactionNotFoundError as TransactionNotFoundError
    from geminga.errors import UndecodableValueError as UndecodableValueError
    from geminga.errors import UnknownBrokerError as UnknownBrokerError
    from geminga.errors import UnsupportedVersionError as UnsupportedVersionError
    from geminga.errors import WrongProtocolError as WrongProtocolError
    from geminga.failover import AutoClusterFailover as AutoClusterFailover
    from geminga.failover import FailoverCluster as FailoverCluster
    from geminga.message import Message as Message
    from geminga.options import BatchingType as BatchingType
    from geminga.options import BatchReceivePolicy as BatchReceivePolicy
    from geminga.options import ClientOptions as ClientOptions
    from geminga.options import CompressionType as CompressionType
    from geminga.options import ConsumerEventListener as ConsumerEventListener
    from geminga.options import ConsumerInterceptor as ConsumerInterceptor
    from geminga.options import ConsumerOptions as ConsumerOptions
    from geminga.options import ConsumerType as ConsumerType
    from geminga.options import DeadLetterPolicy as DeadLetterPolicy
    from geminga.options import HashingScheme as HashingScheme
    from geminga.options import InitialPosition as InitialPosition
    from geminga.options import KeySharedPolicy as KeySharedPolicy
    from geminga.options import MultiplierBackoff as MultiplierBackoff
    from geminga.options import ProducerAccessMode as ProducerAccessMode
    from geminga.options import ProducerInterceptor as ProducerInterceptor
    from geminga.options import ProducerMessage as ProducerMessage
    from geminga.options import ProducerOptions as ProducerOptions
    from geminga.options import ReaderOptions as ReaderOptions
    from geminga.options import RegexSubscriptionMode as RegexSubscriptionMode
    from geminga.options import RoutedMessage as RoutedMessage
    from geminga.options import RoutingMode as RoutingMode
    from geminga.producer import Producer as Producer
    from geminga.reader import Reader as Reader
    from geminga.table_changes import TableChanges as TableChanges
    from geminga.table_view import TableView as TableView
    from geminga_protocol.message_id import EARLIEST_ID as EARLIEST
    from geminga_protocol.message_id import LATEST_ID as LATEST
    from geminga_protocol.message_id import MessageId as MessageId

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
    "WrongProtocolError",
    "connect",
]
_HOMES = {
    "geminga._connection.statistics": ("ProducerStatistics",),
    "geminga._consuming.statistics": ("ConsumerStatistics",),
    "geminga._producing.receipt": ("Receipt",),
    "geminga.auth": (
        *("Authentication", "AuthenticationBasic", "AuthenticationOAuth2"),
        *("AuthenticationTls", "AuthenticationToken"),
    ),
    "geminga.client": ("Client", "connect"),
    "geminga.consumer": ("Consumer",),
    "geminga.encryption": (
        *("ConsumerCryptoFailureAction", "CryptoKeyReader"),
        *("DefaultCryptoKeyReader", "EncryptionContext", "EncryptionKeyInfo"),
        *("ProducerCryptoFailureAction",),
    ),
    "geminga.entry_batch": ("EntryBatch",),
    "geminga.errors": (
        *("AlreadyClosedError", "AuthenticationError", "AuthorizationError"),
        *("BrokerError", "ChecksumError", "ConnectionFailedError"),
        *("ConsumerAssignError", "ConsumerBusyError", "ConsumerNotFoundError"),
        *("CorruptMessageError", "CryptoError", "ForkError", "GemingaError"),
        *("IncompatibleSchemaError", "InvalidArgumentError"),
        *("InvalidSchemaError", "InvalidServiceUrlError", "InvalidStateError"),
        *("InvalidTopicNameError", "InvalidTransactionStatusError"),
        *("InvalidValueError", "MemoryLimitError", "MessageTooBigError"),
        *("MetadataError", "NotAllowedError", "OperationTimeoutError"),
        *("PersistenceError", "ProducerBusyError", "ProducerFencedError"),
        *("ProducerQueueFullError", "QuotaExceededError", "SchemaError"),
        *("SchemaUnavailableError", "ServiceNotReadyError"),
        *("SubscriptionNotFoundError", "TlsError", "TooManyRequestsError"),
        *("TopicNotFoundError", "TopicTerminatedError"),
        *("TransactionConflictError", "TransactionCoordinatorNotFoundError"),
        *("TransactionError", "TransactionNotFoundError"),
        *("UndecodableValueError", "UnknownBrokerError"),
        *("UnsupportedVersionError", "WrongProtocolError"),
    ),
    "geminga.failover": ("AutoClusterFailover", "FailoverCluster"),
    "geminga.message": ("Message",),
    "geminga.options": (
        *("BatchReceivePolicy", "BatchingType", "ClientOptions"),
        *("CompressionType", "ConsumerEventListener", "ConsumerInterceptor"),
        *("ConsumerOptions", "ConsumerType", "DeadLetterPolicy", "HashingScheme"),
        *("InitialPosition", "KeySharedPolicy", "MultiplierBackoff"),
        *("ProducerAccessMode", "ProducerInterceptor", "ProducerMessage"),
        *("ProducerOptions", "ReaderOptions", "RegexSubscriptionMode"),
        *("RoutedMessage", "RoutingMode"),
    ),
    "geminga.producer": ("Producer",),
    "geminga.reader": ("Reader",),
    "geminga.table_changes": ("TableChanges",),
    "geminga.table_view": ("TableView",),
    "geminga_protocol.message_id": ("EARLIEST_ID as EARLIEST", "LATEST_ID as LATEST", "MessageId"),
}
__getattr__, __dir__ = lazily(
    __name__,
    _HOMES,
    (
        "admin",
        "aio",
        "auth",
        "blocking",
        "encryption",
        "errors",
        "failover",
        "options",
        "schema",
        "otel",
        "testing",
    ),
)
logging.getLogger("geminga").addHandler(logging.NullHandler())
