"""Errors of `geminga` as errors and results of the official client: one table."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from geminga import errors
from geminga.pulsar import exceptions
from geminga.pulsar._enums import Result

P = ParamSpec("P")
T = TypeVar("T")

RESULTS: dict[type[errors.GemingaError], Result] = {
    errors.GemingaError: Result.UnknownError,
    errors.InvalidArgumentError: Result.InvalidConfiguration,
    errors.InvalidServiceUrlError: Result.InvalidUrl,
    errors.InvalidTopicNameError: Result.InvalidTopicName,
    errors.MessageTooBigError: Result.MessageTooBig,
    errors.InvalidValueError: Result.InvalidMessage,
    errors.ForkError: Result.NotConnected,
    errors.InvalidStateError: Result.OperationNotSupported,
    errors.AlreadyClosedError: Result.AlreadyClosed,
    errors.OperationTimeoutError: Result.Timeout,
    errors.ConnectionFailedError: Result.ConnectError,
    errors.CorruptMessageError: Result.InvalidMessage,
    errors.CryptoError: Result.CryptoError,
    errors.SchemaError: Result.IncompatibleSchema,
    errors.ProducerQueueFullError: Result.ProducerQueueIsFull,
    errors.MemoryLimitError: Result.MemoryBufferIsFull,
    errors.AuthenticationError: Result.AuthenticationError,
    errors.AuthorizationError: Result.AuthorizationError,
    errors.TopicNotFoundError: Result.TopicNotFound,
    errors.TopicTerminatedError: Result.TopicTerminated,
    errors.SubscriptionNotFoundError: Result.SubscriptionNotFound,
    errors.ConsumerNotFoundError: Result.ConsumerNotFound,
    errors.ConsumerBusyError: Result.ConsumerBusy,
    errors.ConsumerAssignError: Result.ConsumerAssignError,
    errors.ProducerBusyError: Result.ProducerBusy,
    errors.ProducerFencedError: Result.ProducerFenced,
    errors.QuotaExceededError: Result.ProducerBlockedQuotaExceededException,
    errors.TooManyRequestsError: Result.TooManyLookupRequestException,
    errors.ServiceNotReadyError: Result.ServiceUnitNotReady,
    errors.MetadataError: Result.BrokerMetadataError,
    errors.PersistenceError: Result.BrokerPersistenceError,
    errors.ChecksumError: Result.ChecksumError,
    errors.UnsupportedVersionError: Result.UnsupportedVersionError,
    errors.IncompatibleSchemaError: Result.IncompatibleSchema,
    errors.NotAllowedError: Result.NotAllowedError,
    errors.TransactionCoordinatorNotFoundError: Result.TransactionCoordinatorNotFoundError,
    errors.TransactionNotFoundError: Result.TransactionNotFound,
    errors.TransactionConflictError: Result.TransactionConflict,
    errors.InvalidTransactionStatusError: Result.InvalidTxnStatusError,
}
"""An error's class, or the nearest of its bases, decides."""


def result_of(error: errors.GemingaError) -> Result:
    """The official result of an error."""
    if error.code == Result.ProducerBlockedQuotaExceededError.name:
        return Result.ProducerBlockedQuotaExceededError
    return next(RESULTS[kind] for kind in type(error).__mro__ if kind in RESULTS)


def official_error(error: errors.GemingaError) -> exceptions.PulsarException:
    """The official error for one of `geminga`."""
    name = result_of(error).name
    kind: type[exceptions.PulsarException] = getattr(exceptions, name)
    return kind(f"Pulsar error: {name}: {error}")


def officially(function: Callable[P, T]) -> Callable[P, T]:
    """A function that raises official errors."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except errors.GemingaError as error:
            raise official_error(error) from error

    return call
