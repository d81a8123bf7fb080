"""Enums with the names and values of the official Python client (pulsar-client 3.x)."""

from __future__ import annotations

import enum


class OfficialEnum(enum.IntEnum):
    """Members equal their numbers, and print as `Result.Ok`, as the official client's do."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class Result(OfficialEnum):
    """The outcome of an operation, as passed to callbacks of `Producer.send_async`."""

    Ok = 0
    UnknownError = 1
    InvalidConfiguration = 2
    Timeout = 3
    LookupError = 4
    ConnectError = 5
    ReadError = 6
    AuthenticationError = 7
    AuthorizationError = 8
    ErrorGettingAuthenticationData = 9
    BrokerMetadataError = 10
    BrokerPersistenceError = 11
    ChecksumError = 12
    ConsumerBusy = 13
    NotConnected = 14
    AlreadyClosed = 15
    InvalidMessage = 16
    ConsumerNotInitialized = 17
    ProducerNotInitialized = 18
    ProducerBusy = 19
    TooManyLookupRequestException = 20
    InvalidTopicName = 21
    InvalidUrl = 22
    ServiceUnitNotReady = 23
    OperationNotSupported = 24
    ProducerBlockedQuotaExceededError = 25
    ProducerBlockedQuotaExceededException = 26
    ProducerQueueIsFull = 27
    MessageTooBig = 28
    TopicNotFound = 29
    SubscriptionNotFound = 30
    ConsumerNotFound = 31
    UnsupportedVersionError = 32
    TopicTerminated = 33
    CryptoError = 34
    IncompatibleSchema = 35
    ConsumerAssignError = 36
    CumulativeAcknowledgementNotAllowedError = 37
    TransactionCoordinatorNotFoundError = 38
    InvalidTxnStatusError = 39
    NotAllowedError = 40
    TransactionConflict = 41
    TransactionNotFound = 42
    ProducerFenced = 43
    MemoryBufferIsFull = 44
    Interrupted = 45


class CompressionType(OfficialEnum):
    """Compression of payloads."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class ConsumerType(OfficialEnum):
    """Distribution of a subscription's messages over its consumers."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(OfficialEnum):
    """Start of a new subscription."""

    Latest = 0
    Earliest = 1


class PartitionsRoutingMode(OfficialEnum):
    """Partition of a message without a key; CustomPartition needs a `message_router`."""

    UseSinglePartition = 0
    RoundRobinDistribution = 1
    CustomPartition = 2


class BatchingType(OfficialEnum):
    """Messages of a batch: any, or those of one key."""

    Default = 0
    KeyBased = 1


class LoggerLevel(OfficialEnum):
    """Levels of ConsoleLogger and FileLogger."""

    Debug = 0
    Info = 1
    Warn = 2
    Error = 3


class KeySharedMode(OfficialEnum):
    """Distribution of keys in Key_Shared: by the broker, or by the consumer's fixed ranges."""

    AutoSplit = 0
    Sticky = 1


class ProducerAccessMode(OfficialEnum):
    """Access of other producers to the topic."""

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class RegexSubscriptionMode(OfficialEnum):
    """The topics of a pattern."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class ConsumerCryptoFailureAction(OfficialEnum):
    """The action for a message that can't be decrypted."""

    FAIL = 0
    DISCARD = 1
    CONSUME = 2
