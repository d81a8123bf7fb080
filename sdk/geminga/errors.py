"""The errors of the SDK (spec SDK-47). Every one of them is a GemingaError.

    GemingaError
      InvalidArgumentError       (ValueError)       invalid argument or option; names it
        InvalidServiceUrlError
        InvalidTopicNameError
        MessageTooBigError                          above the broker's maxMessageSize
        InvalidSchemaError                          not usable as a schema
        InvalidValueError        (SchemaError)      a value doesn't fit the schema; names the field
      ForkError                                     created before os.fork, used in the child
      InvalidStateError          (RuntimeError)     not possible now, e.g. id of a pending receipt
      AlreadyClosedError                            client, producer, consumer or reader was closed
      OperationTimeoutError      (TimeoutError)     the operation's own deadline passed
      ConnectionFailedError      (ConnectionError)  no connection to the broker, or it was lost
        TlsError                                    reachable, but the TLS handshake failed
        WrongProtocolError                          wrong port: the peer speaks HTTP or TLS
      CorruptMessageError                           a received message can't be decoded
      CryptoError                                   a key for end-to-end encryption can't be used
      SchemaError                                   reading or writing a typed value; `message_id`
        UndecodableValueError                       the payload doesn't fit the schema
        SchemaUnavailableError                      the writer's schema can't be fetched
      ProducerQueueFullError                        max_pending_messages are pending (send_nowait)
      MemoryLimitError                              memory_limit_bytes are in use (send_nowait)
      BrokerError                                   the broker answered with an error
        UnknownBrokerError                          without a specific error name
        AuthenticationError
        AuthorizationError
        TopicNotFoundError
        TopicTerminatedError
        SubscriptionNotFoundError
        ConsumerNotFoundError
        ConsumerBusyError                           the subscription has its one consumer
        ConsumerAssignError
        ProducerBusyError                           the name or the topic is in exclusive use
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
  topic      full name of the topic, or None
  retryable  whether the same call may succeed later (PulsarClientException.isRetriableError)

The one exception: `MessageId.deserialize` raises ValueError for bytes that are no id.
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
        """A copy with that topic; the error itself if it already names one."""
        if self.topic is not None:
            return self
        return type(self)(str(self), code=self.code, topic=topic)

    def __str__(self) -> str:
        text = str(self.args[0])
        return text if self.topic is None or self.topic in text else f"{text} ({self.topic})"


class InvalidArgumentError(GemingaError, ValueError):
    """An argument or an option is invalid; the message names it."""


class InvalidServiceUrlError(InvalidArgumentError):
    """The service URL is invalid."""


class InvalidTopicNameError(InvalidArgumentError):
    """The topic's name is invalid, or the broker refuses it."""


class MessageTooBigError(InvalidArgumentError):
    """The message is above the broker's size limit."""


class ForkError(GemingaError):
    """The client was created before the process forked: the child needs its own.

    In the child its calls raise this; of the Trio face only those that send or create something,
    as a copied Trio loop doesn't work.
    """


class InvalidStateError(GemingaError, RuntimeError):
    """The call isn't possible now: the receipt is still pending, or a callback of the derived faces
    would wait for its own thread.
    """


class AlreadyClosedError(GemingaError):
    """The client, producer, consumer or reader was closed."""


class OperationTimeoutError(GemingaError, TimeoutError):
    """The operation's own deadline passed (send timeout, receive timeout, operation timeout)."""

    retryable = True


class ConnectionFailedError(GemingaError, ConnectionError):
    """The broker can't be reached, or the connection was lost before its response."""

    retryable = True


class WrongProtocolError(ConnectionFailedError):
    """The peer speaks HTTP or TLS, not Pulsar's binary protocol, or that instead of HTTP or TLS:
    the service URL has the wrong port or scheme. Producers and consumers that were connected before
    keep retrying.
    """

    retryable = False


class TlsError(ConnectionFailedError):
    """The broker is reachable, but doesn't speak TLS, has an untrusted certificate or one for
    another host, or refuses ours. Producers and consumers that were connected before keep retrying.
    """

    retryable = False


class CorruptMessageError(GemingaError):
    """A received message can't be decoded."""


class SchemaError(GemingaError):
    """A typed value can't be read or written. `message_id`: id of the read message, or None."""

    message_id: MessageId | None = None

    def of_message(self, topic: str, message_id: MessageId) -> SchemaError:
        """A copy with that message."""
        made = type(self)(f"message {message_id!r}: {self.args[0]}", code=self.code, topic=topic)
        made.message_id = message_id
        return made


class InvalidSchemaError(InvalidArgumentError):
    """The type or definition is not usable as a schema."""


class InvalidValueError(InvalidArgumentError, SchemaError):
    """The value doesn't fit the producer's schema; the message names the field."""


class UndecodableValueError(SchemaError):
    """A message's payload doesn't fit its schema, or that doesn't fit the reader's."""


class SchemaUnavailableError(SchemaError):
    """The schema that a message was written with can't be fetched from the broker."""

    retryable = True


class CryptoError(GemingaError):
    """A message can't be encrypted or decrypted: a key is missing, unreadable or wrong, or the
    library isn't installed. Names the key.
    """


class ProducerQueueFullError(GemingaError):
    """`max_pending_messages` are without receipt; only `send_nowait` raises it."""

    retryable = True


class MemoryLimitError(GemingaError):
    """The client's `memory_limit_bytes` are in use; only `send_nowait` raises it."""

    retryable = True


class BrokerError(GemingaError):
    """The broker answered with an error; `code` is its ServerError name."""


class UnknownBrokerError(BrokerError):
    """An error without a specific name; often transient."""

    retryable = True


class AuthenticationError(BrokerError):
    """The client is not authenticated."""


class AuthorizationError(BrokerError):
    """The client's role is not allowed to do it."""


class TopicNotFoundError(BrokerError):
    """The topic doesn't exist and isn't created automatically."""


class TopicTerminatedError(BrokerError):
    """The topic was terminated: no message can be added to it."""


class SubscriptionNotFoundError(BrokerError):
    """The subscription doesn't exist and isn't created automatically."""


class ConsumerNotFoundError(BrokerError):
    """The broker doesn't know the consumer any more."""


class ConsumerBusyError(BrokerError):
    """The subscription has an Exclusive consumer, or consumers of another type."""


class ConsumerAssignError(BrokerError):
    """A Key_Shared consumer's hash ranges overlap another's."""


class ProducerBusyError(BrokerError):
    """The producer's name is in use, or another producer holds the topic exclusively."""


class ProducerFencedError(BrokerError):
    """Another producer has taken over the topic; this one can't be used any more."""


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
    """The broker couldn't store the message."""

    retryable = True


class ChecksumError(BrokerError):
    """The message was damaged in transit."""


class UnsupportedVersionError(BrokerError):
    """The broker doesn't support the protocol version or the feature."""


class IncompatibleSchemaError(BrokerError):
    """The schema is incompatible with the topic's."""


class NotAllowedError(BrokerError):
    """The broker's policies don't allow it."""


class TransactionError(BrokerError):
    """A transaction failed."""


class TransactionCoordinatorNotFoundError(TransactionError):
    """The broker doesn't own that transaction coordinator."""

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
"""Error classes by the broker's ServerError name; every name of the protocol is here."""


def from_broker(code: str, message: str, topic: str | None = None) -> GemingaError:
    """The error for a broker's response; UnknownBrokerError for an unknown code."""
    return BY_CODE.get(code, UnknownBrokerError)(message or code, code=code, topic=topic)
