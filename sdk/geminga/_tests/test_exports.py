"""The public API is this list; all other names are private."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import geminga
from geminga import errors

GOLDEN = [
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
    "EntryBatch",
    "RegexSubscriptionMode",
    "RoutedMessage",
    "RoutingMode",
    "SchemaError",
    "SchemaUnavailableError",
    "ServiceNotReadyError",
    "SubscriptionNotFoundError",
    "TableChanges",
    "TableView",
    "OperationTimeoutError",
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


def test_public_list() -> None:
    assert sorted(geminga.__all__) == sorted(GOLDEN)
    for name in geminga.__all__:
        value = getattr(geminga, name)
        assert value is not None
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name


def test_all_errors_are_public() -> None:
    own = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert own <= set(geminga.__all__)


def test_unknown_names_are_refused() -> None:
    assert not hasattr(geminga, "no_such_name")
    assert "connect" in dir(geminga)


def test_a_module_that_is_not_imported_is_named() -> None:
    code = "import geminga; geminga.blocking"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "import geminga.blocking first" in done.stderr


def test_import_is_lazy() -> None:
    code = (
        "import sys, geminga; print(*[m for m in ('trio', 'google.protobuf') if m in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == ""
    assert loaded.stderr == ""


def test_version_is_the_package_version() -> None:
    for folder in Path(__file__).resolve().parents:
        project = folder / "pyproject.toml"
        if project.exists():
            assert f'version = "{geminga.__version__}"' in project.read_text()
            return
    raise AssertionError("no pyproject.toml above the tests")
