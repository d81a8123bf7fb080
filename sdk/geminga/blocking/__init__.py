"""A Pulsar client for ordinary programs: every call waits in its thread (spec SDK-45).

    with geminga.blocking.connect("pulsar://localhost:6650") as client:
        producer = client.create_producer("my-topic")
        producer.send(b"hello")
        consumer = client.subscribe("my-topic", "my-subscription")
        for message in consumer:
            consumer.acknowledge(message)

The names are those of `geminga`, and so are messages, options and errors. All clients of a process
share one background thread, in which the Trio client works. After a fork the child makes its own:
what was made before raises ForkedClient there.

Made by tools/faces.py: don't edit.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import geminga

if TYPE_CHECKING:
    from geminga._bridge.threads import Receipt as Receipt
    from geminga._connection.statistics import ProducerStatistics as ProducerStatistics
    from geminga._consuming.statistics import ConsumerStatistics as ConsumerStatistics
    from geminga.auth import Authentication as Authentication
    from geminga.auth import AuthenticationBasic as AuthenticationBasic
    from geminga.auth import AuthenticationOAuth2 as AuthenticationOAuth2
    from geminga.auth import AuthenticationTls as AuthenticationTls
    from geminga.auth import AuthenticationToken as AuthenticationToken
    from geminga.blocking.client import Client as Client
    from geminga.blocking.client import connect as connect
    from geminga.blocking.consumer import Consumer as Consumer
    from geminga.blocking.producer import Producer as Producer
    from geminga.blocking.reader import Reader as Reader
    from geminga.blocking.table_changes import TableChanges as TableChanges
    from geminga.blocking.table_view import TableView as TableView
    from geminga.encryption import ConsumerCryptoFailureAction as ConsumerCryptoFailureAction
    from geminga.encryption import CryptoKeyReader as CryptoKeyReader
    from geminga.encryption import DefaultCryptoKeyReader as DefaultCryptoKeyReader
    from geminga.encryption import EncryptionContext as EncryptionContext
    from geminga.encryption import EncryptionKeyInfo as EncryptionKeyInfo
    from geminga.encryption import ProducerCryptoFailureAction as ProducerCryptoFailureAction
    from geminga.errors import AlreadyClosed as AlreadyClosed
    from geminga.errors import AuthenticationFailed as AuthenticationFailed
    from geminga.errors import AuthorizationFailed as AuthorizationFailed
    from geminga.errors import BrokerError as BrokerError
    from geminga.errors import ChecksumFailed as ChecksumFailed
    from geminga.errors import ConnectionFailed as ConnectionFailed
    from geminga.errors import ConsumerAssignFailed as ConsumerAssignFailed
    from geminga.errors import ConsumerBusy as ConsumerBusy
    from geminga.errors import ConsumerNotFound as ConsumerNotFound
    from geminga.errors import CorruptMessage as CorruptMessage
    from geminga.errors import CryptoError as CryptoError
    from geminga.errors import ForkedClient as ForkedClient
    from geminga.errors import GemingaError as GemingaError
    from geminga.errors import IncompatibleSchema as IncompatibleSchema
    from geminga.errors import InvalidArgument as InvalidArgument
    from geminga.errors import InvalidSchema as InvalidSchema
    from geminga.errors import InvalidServiceUrl as InvalidServiceUrl
    from geminga.errors import InvalidTopicName as InvalidTopicName
    from geminga.errors import InvalidTransactionStatus as InvalidTransactionStatus
    from geminga.errors import InvalidValue as InvalidValue
    from geminga.errors import MemoryLimitExceeded as MemoryLimitExceeded
    from geminga.errors import MessageTooBig as MessageTooBig
    from geminga.errors import MetadataFailed as MetadataFailed
    from geminga.errors import NotAllowed as NotAllowed
    from geminga.errors import PersistenceFailed as PersistenceFailed
    from geminga.errors import ProducerBusy as ProducerBusy
    from geminga.errors import ProducerFenced as ProducerFenced
    from geminga.errors import ProducerQueueFull as ProducerQueueFull
    from geminga.errors import QuotaExceeded as QuotaExceeded
    from geminga.errors import SchemaError as SchemaError
    from geminga.errors import SchemaUnavailable as SchemaUnavailable
    from geminga.errors import ServiceNotReady as ServiceNotReady
    from geminga.errors import SubscriptionNotFound as SubscriptionNotFound
    from geminga.errors import Timeout as Timeout
    from geminga.errors import TlsFailed as TlsFailed
    from geminga.errors import TooManyRequests as TooManyRequests
    from geminga.errors import TopicNotFound as TopicNotFound
    from geminga.errors import TopicTerminated as TopicTerminated
    from geminga.errors import TransactionConflict as TransactionConflict
    from geminga.errors import TransactionCoordinatorNotFound as TransactionCoordinatorNotFound
    from geminga.errors import TransactionFailed as TransactionFailed
    from geminga.errors import TransactionNotFound as TransactionNotFound
    from geminga.errors import UndecodableValue as UndecodableValue
    from geminga.errors import UnknownBrokerError as UnknownBrokerError
    from geminga.errors import UnsupportedVersion as UnsupportedVersion
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
    from geminga.received_entry import ReceivedEntry as ReceivedEntry
    from geminga_protocol.message_id import EARLIEST_ID as EARLIEST
    from geminga_protocol.message_id import LATEST_ID as LATEST
    from geminga_protocol.message_id import MessageId as MessageId

__all__ = [
    "AlreadyClosed",
    "Authentication",
    "AuthenticationBasic",
    "AuthenticationFailed",
    "AuthenticationOAuth2",
    "AuthenticationTls",
    "AuthenticationToken",
    "AuthorizationFailed",
    "AutoClusterFailover",
    "BatchReceivePolicy",
    "BatchingType",
    "BrokerError",
    "ChecksumFailed",
    "Client",
    "ClientOptions",
    "CompressionType",
    "ConnectionFailed",
    "Consumer",
    "ConsumerAssignFailed",
    "ConsumerBusy",
    "ConsumerCryptoFailureAction",
    "ConsumerEventListener",
    "ConsumerInterceptor",
    "ConsumerNotFound",
    "ConsumerOptions",
    "ConsumerStatistics",
    "ConsumerType",
    "CorruptMessage",
    "CryptoError",
    "CryptoKeyReader",
    "DeadLetterPolicy",
    "DefaultCryptoKeyReader",
    "EARLIEST",
    "EncryptionContext",
    "EncryptionKeyInfo",
    "FailoverCluster",
    "ForkedClient",
    "GemingaError",
    "HashingScheme",
    "IncompatibleSchema",
    "InitialPosition",
    "InvalidArgument",
    "InvalidSchema",
    "InvalidServiceUrl",
    "InvalidTopicName",
    "InvalidTransactionStatus",
    "InvalidValue",
    "KeySharedPolicy",
    "LATEST",
    "MemoryLimitExceeded",
    "Message",
    "MessageId",
    "MessageTooBig",
    "MetadataFailed",
    "MultiplierBackoff",
    "NotAllowed",
    "PersistenceFailed",
    "Producer",
    "ProducerAccessMode",
    "ProducerBusy",
    "ProducerCryptoFailureAction",
    "ProducerFenced",
    "ProducerInterceptor",
    "ProducerMessage",
    "ProducerOptions",
    "ProducerQueueFull",
    "ProducerStatistics",
    "QuotaExceeded",
    "Reader",
    "ReaderOptions",
    "Receipt",
    "ReceivedEntry",
    "RegexSubscriptionMode",
    "RoutedMessage",
    "RoutingMode",
    "SchemaError",
    "SchemaUnavailable",
    "ServiceNotReady",
    "SubscriptionNotFound",
    "TableChanges",
    "TableView",
    "Timeout",
    "TlsFailed",
    "TooManyRequests",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFound",
    "TransactionFailed",
    "TransactionNotFound",
    "UndecodableValue",
    "UnknownBrokerError",
    "UnsupportedVersion",
    "connect",
]
_OWN = {
    "Client": "geminga.blocking.client",
    "Consumer": "geminga.blocking.consumer",
    "Producer": "geminga.blocking.producer",
    "Reader": "geminga.blocking.reader",
    "Receipt": "geminga._bridge.threads",
    "TableChanges": "geminga.blocking.table_changes",
    "TableView": "geminga.blocking.table_view",
    "connect": "geminga.blocking.client",
}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: the import alone stays cheap."""
    if name not in __all__:
        raise AttributeError(f"module 'geminga.blocking' has no attribute {name!r}")
    module = importlib.import_module(_OWN[name]) if name in _OWN else geminga
    value: object = getattr(module, name)
    if name == "connect":
        importlib.import_module("geminga._options.signatures").show_options(module)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name[:2] == "__")])
