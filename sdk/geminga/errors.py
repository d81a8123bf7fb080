"""The errors of the SDK (spec SDK-47). Every one of them is a GemingaError.

    GemingaError
      InvalidArgument            (ValueError)       an argument or option can't be; names it
        InvalidServiceUrl
        InvalidTopicName
        MessageTooBig                               above the broker's maxMessageSize
        InvalidSchema                               no schema can be made of it
        InvalidValue               (SchemaError)    a value doesn't fit the schema; names the field
      ForkedClient                                  made before os.fork, used in the child
      AlreadyClosed                                 client, producer, consumer or reader was closed
      Timeout                    (TimeoutError)     the operation's own deadline passed
      ConnectionFailed           (ConnectionError)  no connection to the broker, or it was lost
        TlsFailed                                   it answers, but TLS with it can't be had
      CorruptMessage                                a received message can't be decoded
      CryptoError                                   a key for end-to-end encryption can't be used
      SchemaError                                   reading or writing a typed value; `message_id`
        UndecodableValue                            the payload doesn't fit the schema
        SchemaUnavailable                           the writer's schema can't be had
      ProducerQueueFull                             max_pending_messages are pending (send_nowait)
      MemoryLimitExceeded                           memory_limit_bytes are in use (send_nowait)
      BrokerError                                   the broker answered with an error
        UnknownBrokerError                          one without a name of its own
        AuthenticationFailed
        AuthorizationFailed
        TopicNotFound
        TopicTerminated
        SubscriptionNotFound
        ConsumerNotFound
        ConsumerBusy                                the subscription has its one consumer
        ConsumerAssignFailed
        ProducerBusy                                the name is taken, or the topic is another's
        ProducerFenced                              another producer took the topic over
        QuotaExceeded                               backlog quota of the topic
        TooManyRequests
        ServiceNotReady
        MetadataFailed
        PersistenceFailed
        ChecksumFailed
        UnsupportedVersion
        IncompatibleSchema
        NotAllowed
        TransactionFailed
          TransactionCoordinatorNotFound
          TransactionNotFound
          TransactionConflict
          InvalidTransactionStatus

Each carries
  code       name of the error, stable: the broker's ServerError name where the broker sent one
  topic      full name of the topic, None where none is concerned
  retryable  whether the same call can succeed later without anything being changed
             (PulsarClientException.isRetriableError)

Outside of it, `MessageId.deserialize` raises ValueError for bytes that are no id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from geminga_protocol.message_id import MessageId


class GemingaError(Exception):
    """Base of all errors of the SDK."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None, topic: str | None = None) -> None:
        super().__init__(message)
        self.code = code or type(self).__name__
        self.topic = topic

    def of_topic(self, topic: str) -> GemingaError:
        """The same error about that topic; itself if it names one already."""
        if self.topic is not None:
            return self
        return type(self)(str(self), code=self.code, topic=topic)

    def __str__(self) -> str:
        text = str(self.args[0])
        return text if self.topic is None or self.topic in text else f"{text} ({self.topic})"


class InvalidArgument(GemingaError, ValueError):
    """An argument or an option can't be; the message names it."""


class InvalidServiceUrl(InvalidArgument):
    """The service URL can't be understood."""


class InvalidTopicName(InvalidArgument):
    """The topic's name can't be understood, or the broker refuses it."""


class MessageTooBig(InvalidArgument):
    """The message is above the size that the broker takes."""


class ForkedClient(GemingaError):
    """The client was made before the process was forked: the child needs one of its own.

    What the child does with it raises this, of the Trio face all that sends or makes something; of
    a copied Trio loop nothing works in the child.
    """


class AlreadyClosed(GemingaError):
    """The client, producer, consumer or reader was closed."""


class Timeout(GemingaError, TimeoutError):
    """The operation's own deadline passed (send timeout, receive timeout, operation timeout)."""

    retryable = True


class ConnectionFailed(GemingaError, ConnectionError):
    """The broker can't be reached, or the connection was lost before it answered."""

    retryable = True


class TlsFailed(ConnectionFailed):
    """The broker answers, but it speaks no TLS, its certificate isn't trusted or is another host's,
    or it refuses ours. Producers and consumers that were attached before go on trying.
    """

    retryable = False


class CorruptMessage(GemingaError):
    """A received message can't be decoded."""


class SchemaError(GemingaError):
    """A typed value can't be read or written. `message_id` is the id of the message that was read,
    None if none was.
    """

    message_id: MessageId | None = None

    def of_message(self, topic: str, message_id: MessageId) -> SchemaError:
        """The same error about that message."""
        made = type(self)(f"message {message_id!r}: {self.args[0]}", code=self.code, topic=topic)
        made.message_id = message_id
        return made


class InvalidSchema(InvalidArgument):
    """No schema can be made of that type or definition."""


class InvalidValue(InvalidArgument, SchemaError):
    """The value doesn't fit the producer's schema; the message names the field."""


class UndecodableValue(SchemaError):
    """A message's payload doesn't fit its schema, or its schema not the reader's."""


class SchemaUnavailable(SchemaError):
    """The schema that a message was written with can't be had from the broker."""

    retryable = True


class CryptoError(GemingaError):
    """A message can't be encrypted or decrypted: a key is missing, unreadable or another one, or
    the library for it isn't installed. Names the key.
    """


class ProducerQueueFull(GemingaError):
    """`max_pending_messages` wait for their receipts; only `send_nowait` raises it."""

    retryable = True


class MemoryLimitExceeded(GemingaError):
    """The client's `memory_limit_bytes` are in use; only `send_nowait` raises it."""

    retryable = True


class BrokerError(GemingaError):
    """The broker answered with an error; `code` is its ServerError name."""


class UnknownBrokerError(BrokerError):
    """An error without a name of its own; often passing."""

    retryable = True


class AuthenticationFailed(BrokerError):
    """The broker doesn't know who we are."""


class AuthorizationFailed(BrokerError):
    """The broker knows who we are and doesn't allow it."""


class TopicNotFound(BrokerError):
    """The topic doesn't exist and isn't created by itself."""


class TopicTerminated(BrokerError):
    """The topic was terminated: no message can be added to it."""


class SubscriptionNotFound(BrokerError):
    """The subscription doesn't exist and isn't created by itself."""


class ConsumerNotFound(BrokerError):
    """The broker doesn't know the consumer any more."""


class ConsumerBusy(BrokerError):
    """An Exclusive subscription already has its consumer, or consumers of another type."""


class ConsumerAssignFailed(BrokerError):
    """A Key_Shared consumer's ranges collide with another's."""


class ProducerBusy(BrokerError):
    """The producer's name is in use, or another producer holds the topic exclusively."""


class ProducerFenced(BrokerError):
    """Another producer has taken the topic over; this one is done for good."""


class QuotaExceeded(BrokerError):
    """The topic's backlog quota is exceeded."""

    retryable = True


class TooManyRequests(BrokerError):
    """The broker has too many lookups or topic loads at once."""

    retryable = True


class ServiceNotReady(BrokerError):
    """The broker can't serve the topic now (it is loading, moving, or fenced)."""

    retryable = True


class MetadataFailed(BrokerError):
    """The broker's metadata store failed."""

    retryable = True


class PersistenceFailed(BrokerError):
    """The broker couldn't store it."""

    retryable = True


class ChecksumFailed(BrokerError):
    """The message was damaged on its way."""


class UnsupportedVersion(BrokerError):
    """The broker doesn't speak this version, or lacks the feature."""


class IncompatibleSchema(BrokerError):
    """The topic's schema doesn't allow this one."""


class NotAllowed(BrokerError):
    """The broker's policies don't allow it."""


class TransactionFailed(BrokerError):
    """A transaction can't go on."""


class TransactionCoordinatorNotFound(TransactionFailed):
    """The broker doesn't hold that transaction coordinator."""

    retryable = True


class TransactionNotFound(TransactionFailed):
    """The transaction doesn't exist."""


class TransactionConflict(TransactionFailed):
    """Another transaction acknowledged the message."""


class InvalidTransactionStatus(TransactionFailed):
    """The transaction isn't open."""


BY_CODE: dict[str, type[GemingaError]] = {
    "UnknownError": UnknownBrokerError,
    "MetadataError": MetadataFailed,
    "PersistenceError": PersistenceFailed,
    "AuthenticationError": AuthenticationFailed,
    "AuthorizationError": AuthorizationFailed,
    "ConsumerBusy": ConsumerBusy,
    "ServiceNotReady": ServiceNotReady,
    "ProducerBlockedQuotaExceededError": QuotaExceeded,
    "ProducerBlockedQuotaExceededException": QuotaExceeded,
    "ChecksumError": ChecksumFailed,
    "UnsupportedVersionError": UnsupportedVersion,
    "TopicNotFound": TopicNotFound,
    "SubscriptionNotFound": SubscriptionNotFound,
    "ConsumerNotFound": ConsumerNotFound,
    "TooManyRequests": TooManyRequests,
    "TopicTerminatedError": TopicTerminated,
    "ProducerBusy": ProducerBusy,
    "InvalidTopicName": InvalidTopicName,
    "IncompatibleSchema": IncompatibleSchema,
    "ConsumerAssignError": ConsumerAssignFailed,
    "TransactionCoordinatorNotFound": TransactionCoordinatorNotFound,
    "InvalidTxnStatus": InvalidTransactionStatus,
    "NotAllowedError": NotAllowed,
    "TransactionConflict": TransactionConflict,
    "TransactionNotFound": TransactionNotFound,
    "ProducerFenced": ProducerFenced,
}
"""The broker's ServerError names -> what is raised for them; every name of the protocol is here."""


def from_broker(code: str, message: str, topic: str | None = None) -> GemingaError:
    """The error for a broker's answer; a code that this version doesn't know is an
    UnknownBrokerError.
    """
    return BY_CODE.get(code, UnknownBrokerError)(message or code, code=code, topic=topic)
