"""Errors with the names of the official Python client (`pulsar.exceptions`)."""

from __future__ import annotations

__all__ = [
    "AlreadyClosed",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConnectError",
    "ConsumerAssignError",
    "ConsumerBusy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "CryptoError",
    "CumulativeAcknowledgementNotAllowedError",
    "ErrorGettingAuthenticationData",
    "IncompatibleSchema",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "LookupError",
    "MemoryBufferIsFull",
    "MessageTooBig",
    "NotAllowedError",
    "NotConnected",
    "OperationNotSupported",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "ServiceUnitNotReady",
    "SubscriptionNotFound",
    "Timeout",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnsupportedVersionError",
]


class PulsarException(Exception):
    """Base of all of them. Its `__cause__` is the error of `geminga`, if there is one."""


class UnknownError(PulsarException):
    """An error without a specific name."""


class InvalidConfiguration(PulsarException):
    """An option or argument can't be used; the message names it."""


class Timeout(PulsarException):
    """The operation took too long, or no message came in time."""


class LookupError(PulsarException):
    """The topic's broker couldn't be found."""


class ConnectError(PulsarException):
    """The broker can't be reached, or refused the connection."""


class ReadError(PulsarException):
    """Reading from the connection failed."""


class AuthenticationError(PulsarException):
    """The client is not authenticated."""


class AuthorizationError(PulsarException):
    """The client's role is not allowed to do it."""


class ErrorGettingAuthenticationData(PulsarException):
    """The credentials can't be obtained."""


class BrokerMetadataError(PulsarException):
    """The broker's metadata store failed."""


class BrokerPersistenceError(PulsarException):
    """The broker couldn't store the message."""


class ChecksumError(PulsarException):
    """The message was damaged in transit."""


class ConsumerBusy(PulsarException):
    """The subscription has an Exclusive consumer, or consumers of another type."""


class NotConnected(PulsarException):
    """There is no connection to the broker."""


class AlreadyClosed(PulsarException):
    """The client, producer, consumer or reader was closed."""


class InvalidMessage(PulsarException):
    """A message can't be encoded or decoded."""


class ConsumerNotInitialized(PulsarException):
    """The consumer was not opened."""


class ProducerNotInitialized(PulsarException):
    """The producer was not opened."""


class ProducerBusy(PulsarException):
    """The producer's name is in use, or another one holds the topic exclusively."""


class TooManyLookupRequestException(PulsarException):
    """The broker has too many lookups at once."""


class InvalidTopicName(PulsarException):
    """The topic's name is invalid."""


class InvalidUrl(PulsarException):
    """The service URL is invalid."""


class ServiceUnitNotReady(PulsarException):
    """The broker can't serve the topic now."""


class OperationNotSupported(PulsarException):
    """The operation is not possible here; the message tells what to do."""


class ProducerBlockedQuotaExceededError(PulsarException):
    """The topic's backlog quota is exceeded; the producer waits."""


class ProducerBlockedQuotaExceededException(PulsarException):
    """The topic's backlog quota is exceeded."""


class ProducerQueueIsFull(PulsarException):
    """`max_pending_messages` wait for their receipts."""


class MessageTooBig(PulsarException):
    """The message is above the broker's size limit."""


class TopicNotFound(PulsarException):
    """The topic doesn't exist and isn't created automatically."""


class SubscriptionNotFound(PulsarException):
    """The subscription doesn't exist."""


class ConsumerNotFound(PulsarException):
    """The broker doesn't know the consumer any more."""


class UnsupportedVersionError(PulsarException):
    """The broker doesn't support the protocol version or the feature."""


class TopicTerminated(PulsarException):
    """The topic was terminated: no message can be added to it."""


class CryptoError(PulsarException):
    """A message can't be encrypted or decrypted."""


class IncompatibleSchema(PulsarException):
    """The schema is incompatible with the topic's."""


class ConsumerAssignError(PulsarException):
    """A Key_Shared consumer's hash ranges overlap another's."""


class CumulativeAcknowledgementNotAllowedError(PulsarException):
    """Shared and Key_Shared subscriptions have no cumulative acknowledgement."""


class TransactionCoordinatorNotFoundError(PulsarException):
    """The broker doesn't own that transaction coordinator."""


class InvalidTxnStatusError(PulsarException):
    """The transaction isn't open."""


class NotAllowedError(PulsarException):
    """The broker's policies don't allow it."""


class TransactionConflict(PulsarException):
    """Another transaction acknowledged the message."""


class TransactionNotFound(PulsarException):
    """The transaction doesn't exist."""


class ProducerFenced(PulsarException):
    """Another producer has taken over the topic."""


class MemoryBufferIsFull(PulsarException):
    """The client's memory limit is used up."""


class Interrupted(PulsarException):
    """The operation was interrupted."""
