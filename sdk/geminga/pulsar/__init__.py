"""The official Python client's names: with `import geminga.pulsar as pulsar` for `import pulsar` a
program runs unchanged on `geminga` (spec SDK-45; pulsar-client 3.x).

    client = pulsar.Client("pulsar://localhost:6650")
    producer = client.create_producer("my-topic")
    producer.send(b"hello")
    consumer = client.subscribe("my-topic", "my-subscription")
    consumer.acknowledge(consumer.receive())
    client.close()

A thin layer over `geminga.blocking`, which new programs use themselves; docs/SDK.md, "Change the
import", has what is different.
"""

from __future__ import annotations

from geminga import __version__ as __version__
from geminga.pulsar import exceptions as exceptions
from geminga.pulsar import schema as schema
from geminga.pulsar._auth import Authentication as Authentication
from geminga.pulsar._auth import AuthenticationAthenz as AuthenticationAthenz
from geminga.pulsar._auth import AuthenticationBasic as AuthenticationBasic
from geminga.pulsar._auth import AuthenticationOauth2 as AuthenticationOauth2
from geminga.pulsar._auth import AuthenticationTLS as AuthenticationTLS
from geminga.pulsar._auth import AuthenticationToken as AuthenticationToken
from geminga.pulsar._client import Client as Client
from geminga.pulsar._consumer import Consumer as Consumer
from geminga.pulsar._enums import BatchingType as BatchingType
from geminga.pulsar._enums import CompressionType as CompressionType
from geminga.pulsar._enums import ConsumerCryptoFailureAction as ConsumerCryptoFailureAction
from geminga.pulsar._enums import ConsumerType as ConsumerType
from geminga.pulsar._enums import InitialPosition as InitialPosition
from geminga.pulsar._enums import KeySharedMode as KeySharedMode
from geminga.pulsar._enums import LoggerLevel as LoggerLevel
from geminga.pulsar._enums import PartitionsRoutingMode as PartitionsRoutingMode
from geminga.pulsar._enums import ProducerAccessMode as ProducerAccessMode
from geminga.pulsar._enums import RegexSubscriptionMode as RegexSubscriptionMode
from geminga.pulsar._enums import Result as Result
from geminga.pulsar._ids import MessageId as MessageId
from geminga.pulsar._logs import ConsoleLogger as ConsoleLogger
from geminga.pulsar._logs import FileLogger as FileLogger
from geminga.pulsar._message import EncryptionContext as EncryptionContext
from geminga.pulsar._message import EncryptionKey as EncryptionKey
from geminga.pulsar._message import Message as Message
from geminga.pulsar._message import MessageBatch as MessageBatch
from geminga.pulsar._policies import BatchReceivePolicy as BatchReceivePolicy
from geminga.pulsar._policies import ConsumerBatchReceivePolicy as ConsumerBatchReceivePolicy
from geminga.pulsar._policies import ConsumerDeadLetterPolicy as ConsumerDeadLetterPolicy
from geminga.pulsar._policies import ConsumerKeySharedPolicy as ConsumerKeySharedPolicy
from geminga.pulsar._policies import CryptoKeyReader as CryptoKeyReader
from geminga.pulsar._policies import DeadLetterPolicyBuilder as DeadLetterPolicyBuilder
from geminga.pulsar._policies import KeySharedPolicy as KeySharedPolicy
from geminga.pulsar._producer import Producer as Producer
from geminga.pulsar._reader import Reader as Reader
from geminga.pulsar._service import AutoClusterFailover as AutoClusterFailover
from geminga.pulsar._service import ServiceInfo as ServiceInfo
from geminga.pulsar._service import ServiceInfoProvider as ServiceInfoProvider
from geminga.pulsar.exceptions import AlreadyClosed as AlreadyClosed
from geminga.pulsar.exceptions import AuthenticationError as AuthenticationError
from geminga.pulsar.exceptions import AuthorizationError as AuthorizationError
from geminga.pulsar.exceptions import BrokerMetadataError as BrokerMetadataError
from geminga.pulsar.exceptions import BrokerPersistenceError as BrokerPersistenceError
from geminga.pulsar.exceptions import ChecksumError as ChecksumError
from geminga.pulsar.exceptions import ConnectError as ConnectError
from geminga.pulsar.exceptions import ConsumerAssignError as ConsumerAssignError
from geminga.pulsar.exceptions import ConsumerBusy as ConsumerBusy
from geminga.pulsar.exceptions import ConsumerNotFound as ConsumerNotFound
from geminga.pulsar.exceptions import ConsumerNotInitialized as ConsumerNotInitialized
from geminga.pulsar.exceptions import CryptoError as CryptoError
from geminga.pulsar.exceptions import (
    CumulativeAcknowledgementNotAllowedError as CumulativeAcknowledgementNotAllowedError,
)
from geminga.pulsar.exceptions import (
    ErrorGettingAuthenticationData as ErrorGettingAuthenticationData,
)
from geminga.pulsar.exceptions import IncompatibleSchema as IncompatibleSchema
from geminga.pulsar.exceptions import Interrupted as Interrupted
from geminga.pulsar.exceptions import InvalidConfiguration as InvalidConfiguration
from geminga.pulsar.exceptions import InvalidMessage as InvalidMessage
from geminga.pulsar.exceptions import InvalidTopicName as InvalidTopicName
from geminga.pulsar.exceptions import InvalidTxnStatusError as InvalidTxnStatusError
from geminga.pulsar.exceptions import InvalidUrl as InvalidUrl
from geminga.pulsar.exceptions import LookupError as LookupError
from geminga.pulsar.exceptions import MemoryBufferIsFull as MemoryBufferIsFull
from geminga.pulsar.exceptions import MessageTooBig as MessageTooBig
from geminga.pulsar.exceptions import NotAllowedError as NotAllowedError
from geminga.pulsar.exceptions import NotConnected as NotConnected
from geminga.pulsar.exceptions import OperationNotSupported as OperationNotSupported
from geminga.pulsar.exceptions import (
    ProducerBlockedQuotaExceededError as ProducerBlockedQuotaExceededError,
)
from geminga.pulsar.exceptions import (
    ProducerBlockedQuotaExceededException as ProducerBlockedQuotaExceededException,
)
from geminga.pulsar.exceptions import ProducerBusy as ProducerBusy
from geminga.pulsar.exceptions import ProducerFenced as ProducerFenced
from geminga.pulsar.exceptions import ProducerNotInitialized as ProducerNotInitialized
from geminga.pulsar.exceptions import ProducerQueueIsFull as ProducerQueueIsFull
from geminga.pulsar.exceptions import PulsarException as PulsarException
from geminga.pulsar.exceptions import ReadError as ReadError
from geminga.pulsar.exceptions import ServiceUnitNotReady as ServiceUnitNotReady
from geminga.pulsar.exceptions import SubscriptionNotFound as SubscriptionNotFound
from geminga.pulsar.exceptions import Timeout as Timeout
from geminga.pulsar.exceptions import TooManyLookupRequestException as TooManyLookupRequestException
from geminga.pulsar.exceptions import TopicNotFound as TopicNotFound
from geminga.pulsar.exceptions import TopicTerminated as TopicTerminated
from geminga.pulsar.exceptions import TransactionConflict as TransactionConflict
from geminga.pulsar.exceptions import (
    TransactionCoordinatorNotFoundError as TransactionCoordinatorNotFoundError,
)
from geminga.pulsar.exceptions import TransactionNotFound as TransactionNotFound
from geminga.pulsar.exceptions import UnknownError as UnknownError
from geminga.pulsar.exceptions import UnsupportedVersionError as UnsupportedVersionError
from geminga.pulsar.schema.schema import BytesSchema as BytesSchema
from geminga.pulsar.tableview import TableView as TableView

__all__ = [
    "AlreadyClosed",
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationError",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "AuthorizationError",
    "AutoClusterFailover",
    "BatchReceivePolicy",
    "BatchingType",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "BytesSchema",
    "ChecksumError",
    "Client",
    "CompressionType",
    "ConnectError",
    "ConsoleLogger",
    "Consumer",
    "ConsumerAssignError",
    "ConsumerBatchReceivePolicy",
    "ConsumerBusy",
    "ConsumerCryptoFailureAction",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "ConsumerType",
    "CryptoError",
    "CryptoKeyReader",
    "CumulativeAcknowledgementNotAllowedError",
    "DeadLetterPolicyBuilder",
    "EncryptionContext",
    "EncryptionKey",
    "ErrorGettingAuthenticationData",
    "FileLogger",
    "IncompatibleSchema",
    "InitialPosition",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "KeySharedMode",
    "KeySharedPolicy",
    "LoggerLevel",
    "LookupError",
    "MemoryBufferIsFull",
    "Message",
    "MessageBatch",
    "MessageId",
    "MessageTooBig",
    "NotAllowedError",
    "NotConnected",
    "OperationNotSupported",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "ServiceInfo",
    "ServiceInfoProvider",
    "ServiceUnitNotReady",
    "SubscriptionNotFound",
    "TableView",
    "Timeout",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnsupportedVersionError",
    "exceptions",
    "schema",
]
