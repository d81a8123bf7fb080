from __future__ import annotations

from collections.abc import Callable

import pytest
from trio.testing import MockClock

import geminga
from geminga import errors
from geminga._consuming.lanes import lanes_of
from geminga._entries.entry import Entry
from geminga._tests.fake_broker import fake_broker
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata, ServerError


def test_every_code_of_the_protocol_has_its_error() -> None:
    assert set(errors.BY_CODE) == set(ServerError.keys())


def test_an_unknown_code_is_an_error_still() -> None:
    error = errors.from_broker("ServerError99", "", "t")
    assert type(error) is errors.UnknownBrokerError
    assert (error.code, error.topic, error.retryable) == ("ServerError99", "t", True)
    assert str(error) == "ServerError99 (t)"


def test_the_topic_is_told_once() -> None:
    assert str(errors.TopicNotFoundError("no t here", topic="t")) == "no t here"
    assert str(errors.TopicNotFoundError("no such", topic="t")) == "no such (t)"


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.OperationTimeoutError, TimeoutError),
        (errors.ConnectionFailedError, ConnectionError),
        (errors.InvalidServiceUrlError, ValueError),
        (errors.MessageTooBigError, ValueError),
    ],
)
def test_builtin_bases(kind: type[errors.GemingaError], base: type[Exception]) -> None:
    assert issubclass(kind, base)
    assert kind("x").code == kind.__name__


def test_the_documented_tree_is_the_real_one() -> None:
    assert errors.__doc__ is not None
    lines = errors.__doc__.partition("\n\n")[2].partition("\n\nEach carries")[0].splitlines()
    path: list[str] = []
    told: dict[str, str] = {}
    for line in lines:
        depth = (len(line) - len(line.lstrip()) - 4) // 2
        name = line.split()[0]
        path = [*path[:depth], name]
        told[name] = path[depth - 1] if depth else "Exception"
    for name, parent in told.items():
        assert parent in {base.__name__ for base in getattr(errors, name).__bases__}, name
    real = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.GemingaError)
    }
    assert real == set(told)


@pytest.mark.parametrize("data", [b"", b"\x08\x01", b"\xff", b"no id"])
def test_bytes_that_are_no_message_id(data: bytes) -> None:
    with pytest.raises(ValueError, match="message id"):
        geminga.MessageId.deserialize(data)


def test_the_ends_of_a_topic() -> None:
    assert geminga.MessageId.EARLIEST is geminga.EARLIEST
    assert geminga.MessageId.LATEST is geminga.LATEST
    assert geminga.MessageId.EARLIEST < geminga.MessageId(0, 0) < geminga.MessageId.LATEST


def _unreadable() -> geminga.Message:
    described = b"\x0a\xff\xff\xff"
    entry = Entry(1, 2, -1, 0, (), MessageMetadata(), described + b"data", None, "topic")  # type: ignore[arg-type]
    entry.bounds = [0, 4, 12]
    entry.message_count = 2
    return geminga.Message(entry, 0)


def _wrong_key() -> geminga.Message:
    metadata = MessageMetadata(partition_key="no base64!", partition_key_b64_encoded=True)
    return geminga.Message(Entry(1, 2, -1, 0, (), metadata, b"", None, "topic"), -1)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [_unreadable, _wrong_key])
def test_a_listener_gets_what_has_no_readable_key(make: Callable[[], geminga.Message]) -> None:
    assert lanes_of(geminga.ConsumerType.KEY_SHARED)(make()) is None


async def test_a_table_view_leaves_out_what_it_cannot_read(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        view = await client.create_table_view("t")
        view._apply(_unreadable())
        assert len(view) == 0


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((_unreadable, name) for name in ("properties", "partition_key", "is_null")),
        *((_unreadable, name) for name in ("event_time_ms", "ordering_key", "sequence_id")),
        *((make, "partition_key_bytes") for make in (_unreadable, _wrong_key)),
    ],
)
def test_what_describes_a_message_cannot_be_read(
    make: Callable[[], geminga.Message], name: str
) -> None:
    with pytest.raises(geminga.CorruptMessageError, match="1:2") as caught:
        getattr(make(), name)
    assert caught.value.topic == "topic"
