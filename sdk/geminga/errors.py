"""The errors of the SDK (spec SDK-47). Every one of them is a GemingaError.

    GemingaError
      InvalidArgumentError       (ValueError)       an argument or option can't be; names it
        InvalidServiceUrlError
        InvalidTopicNameError
        MessageTooBigError                          above the broker's maxMessageSize
        InvalidSchemaError                          no schema can be made of it
        InvalidValueError        (SchemaError)      a value doesn't fit the schema; names the field
      ForkError                                     made before os.fork, used in the child
      InvalidStateError          (RuntimeError)     not possible now: a pending receipt has no id
      AlreadyClosedError                            client, producer, consumer or reader was closed
      OperationTimeoutError      (TimeoutError)     the operation's own deadline passed
      ConnectionFailedError      (ConnectionError)  no connection to the broker, or it was lost
        TlsError                                    it answers, but TLS with it can't be had
        WrongProtocolError                          it answers, but speaks HTTP or TLS: wrong port
      CorruptMessageError                           a received message can't be decoded
      CryptoError                                   a key for end-to-end encryption can't be used
      SchemaError                                   reading or writing a typed value; `message_id`
        UndecodableValueError                       the payload doesn't fit the schema
        SchemaUnavailableError                      the writer's schema can't be had
      ProducerQueueFullError                        max_pending_messages are pending (send_nowait)
      MemoryLimitError                              memory_limit_bytes are in use (send_nowait)
      BrokerError                                   the broker answered with an error
        UnknownBrokerError                          one without a name of its own
        AuthenticationError
        AuthorizationError
        TopicNotFoundError
        TopicTerminatedError
        SubscriptionNotFoundError
        ConsumerNotFoundError
        ConsumerBusyError                           the subscription has its one consumer
        ConsumerAssignError
        ProducerBusyError                           the name is taken, or the topic is another's
        ProducerFencedError                         another producer took the topic over
        QuotaExceededError                          backlog quota of the topic
        TooManyRequestsError
        ServiceNotReadyError
        MetadataError
        PersistenceError
        ChecksumError
        UnsupportedVersionError
        IncompatibleSchemaError
        NotAllowedError
        TransactionError
          TransactionCoordinatorNotFoundError
          TransactionNotFoundError
          TransactionConflictError
          InvalidTransactionStatusError

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


class InvalidArgumentError(GemingaError, ValueError):
    """An argument or an option can't be; the message names it."""


class InvalidServiceUrlError(InvalidArgumentError):
    """The service URL can't be understood."""


class InvalidTopicNameError(InvalidArgumentError):
    """The topic's name can't be understood, or the broker refuses it."""


class MessageTooBigError(InvalidArgumentError):
    """The message is above the size that the broker takes."""


class ForkError(GemingaError):
    """The client was made before the process was forked: the child needs one of its own.

    What the child does with it raises this, of the Trio face all that sends or makes something; of
    a copied Trio loop nothing works in the child.
    """


class InvalidStateError(GemingaError, RuntimeError):
    """The call isn't possible now: the receipt is still pending, or a callback of the derived faces
    would wait in the thread that it has to wait for.
    """


class AlreadyClosedError(GemingaError):
    """The client, producer, consumer or reader was closed."""


class OperationTimeoutError(GemingaError, TimeoutError):
    """The operation's own deadline passed (send timeout, receive timeout, operation timeout)."""

    retryable = True


class ConnectionFailedError(GemingaError, ConnectionError):
    """The broker can't be reached, or the connection was lost before it answered."""

    retryable = True


class WrongProtocolError(ConnectionFailedError):
    """What listens there speaks HTTP or TLS, not Pulsar's binary protocol: another port, or another
    scheme of the service URL, is meant. Producers and consumers that were attached before go on
    trying.
    """

    retryable = False


class TlsError(ConnectionFailedError):
    """The broker answers, but it speaks no TLS, its certificate isn't trusted or is another host's,
    or it refuses ours. Producers and consumers that were attached before go on trying.
    """

    retryable = False


class CorruptMessageError(GemingaError):
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


class InvalidSchemaError(InvalidArgumentError):
    """No schema can be made of that type or definition."""


class InvalidValueError(InvalidArgumentError, SchemaError):
    """The value doesn't fit the producer's schema; the message names the field."""


class UndecodableValueError(SchemaError):
    """A message's payload doesn't fit its schema, or its schema not the reader's."""


class SchemaUnavailableError(SchemaError):
    """The schema that a message was written with can't be had from the broker."""

    retryable = True


class CryptoError(GemingaError):
    """A message can't be encrypted or decrypted: a key is missing, unreadable or another one, or
    the library for it isn't installed. Names the key.
    """


class ProducerQueueFullError(GemingaError):
    """`max_pending_messages` wait for their receipts; only `send_nowait` raises it."""

    retryable = True


class MemoryLimitError(GemingaError):
    """The client's `memory_limit_bytes` are in use; only `send_nowait` raises it."""

    retryable = True


class BrokerError(GemingaError):
    """The broker answered with an error; `code` is its ServerError name."""


class UnknownBrokerError(BrokerError):
    """An error without a name of its own; often passing."""

    retryable = True


class AuthenticationError(BrokerError):
    """The broker doesn't know who we are."""


class AuthorizationError(BrokerError):
    """The broker knows who we are and doesn't allow it."""


class TopicNotFoundError(BrokerError):
    """The topic doesn't exist and isn't created by itself."""


class TopicTerminatedError(BrokerError):
    """The topic was terminated: no message can be added to it."""


class SubscriptionNotFoundError(BrokerError):
    """The subscription doesn't exist and isn't created by itself."""


class ConsumerNotFoundError(BrokerError):
    """The broker doesn't know the consumer any more."""


class ConsumerBusyError(BrokerError):
    """An Exclusive subscription already has its consumer, or consumers of another type."""


class ConsumerAssignError(BrokerError):
    """A Key_Shared consumer's ranges collide with another's."""


class ProducerBusyError(BrokerError):
    """The producer's name is in use, or another producer holds the topic exclusively."""


class ProducerFencedError(BrokerError):
    """Another producer has taken the topic over; this one is done for good."""


class QuotaExceededError(BrokerError):
    """The topic's backlog quota is exceeded."""

    retryable = True


class TooManyRequestsError(BrokerError):
    """The broker has too many lookups or topic loads at once."""

    retryable = True


class ServiceNotReadyError(BrokerError):
    """The broker can't serve the topic now (it is loading, moving, or fenced)."""

    retryable = True


class MetadataError(BrokerError):
    """The broker's metadata store failed."""

    retryable = True


class PersistenceError(BrokerError):
    """The broker couldn't store it."""

    retryable = True


class ChecksumError(BrokerError):
    """The message was damaged on its way."""


class UnsupportedVersionError(BrokerError):
    """The broker doesn't speak this version, or lacks the feature."""


class IncompatibleSchemaError(BrokerError):
    """The topic's schema doesn't allow this one."""


class NotAllowedError(BrokerError):
    """The broker's policies don't allow it."""


class TransactionError(BrokerError):
    """A transaction can't go on."""


class TransactionCoordinatorNotFoundError(TransactionError):
    """The broker doesn't hold that transaction coordinator."""

    retryable = True


class TransactionNotFoundError(TransactionError):
    """The transaction doesn't exist."""


class TransactionConflictError(TransactionError):
    """Another transaction acknowledged the message."""


class InvalidTransactionStatusError(TransactionError):
    """The transaction isn't open."""


BY_CODE: dict[str, type[GemingaError]] = {
    "UnknownError": UnknownBrokerError,
    "MetadataError": MetadataError,
    "PersistenceError": PersistenceError,
    "AuthenticationError": AuthenticationError,
    "AuthorizationError": AuthorizationError,
    "ConsumerBusy": ConsumerBusyError,
    "ServiceNotReady": ServiceNotReadyError,
    "ProducerBlockedQuotaExceededError": QuotaExceededError,
    "ProducerBlockedQuotaExceededException": QuotaExceededError,
    "ChecksumError": ChecksumError,
    "UnsupportedVersionError": UnsupportedVersionError,
    "TopicNotFound": TopicNotFoundError,
    "SubscriptionNotFound": SubscriptionNotFoundError,
    "ConsumerNotFound": ConsumerNotFoundError,
    "TooManyRequests": TooManyRequestsError,
    "TopicTerminatedError": TopicTerminatedError,
    "ProducerBusy": ProducerBusyError,
    "InvalidTopicName": InvalidTopicNameError,
    "IncompatibleSchema": IncompatibleSchemaError,
    "ConsumerAssignError": ConsumerAssignError,
    "TransactionCoordinatorNotFound": TransactionCoordinatorNotFoundError,
    "InvalidTxnStatus": InvalidTransactionStatusError,
    "NotAllowedError": NotAllowedError,
    "TransactionConflict": TransactionConflictError,
    "TransactionNotFound": TransactionNotFoundError,
    "ProducerFenced": ProducerFencedError,
}
"""The broker's ServerError names -> what is raised for them; every name of the protocol is here."""


def from_broker(code: str, message: str, topic: str | None = None) -> GemingaError:
    """The error for a broker's answer; a code that this version doesn't know is an
    UnknownBrokerError.
    """
    return BY_CODE.get(code, UnknownBrokerError)(message or code, code=code, topic=topic)
