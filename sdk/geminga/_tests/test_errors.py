from __future__ import annotations

import pytest

from geminga import errors
from geminga_protocol.pb.pulsar_api_pb2 import ServerError


def test_every_code_of_the_protocol_has_its_error() -> None:
    assert set(errors.BY_CODE) == set(ServerError.keys())


def test_an_unknown_code_is_an_error_still() -> None:
    error = errors.from_broker("ServerError99", "", "t")
    assert type(error) is errors.UnknownBrokerError
    assert (error.code, error.topic, error.retryable) == ("ServerError99", "t", True)
    assert str(error) == "ServerError99 (t)"


def test_the_topic_is_told_once() -> None:
    assert str(errors.TopicNotFound("no t here", topic="t")) == "no t here"
    assert str(errors.TopicNotFound("no such", topic="t")) == "no such (t)"


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.Timeout, TimeoutError),
        (errors.ConnectionFailed, ConnectionError),
        (errors.InvalidServiceUrl, ValueError),
        (errors.MessageTooBig, ValueError),
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
