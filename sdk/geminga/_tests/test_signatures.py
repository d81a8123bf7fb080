"""The package at run time: names, options, and errors for the wrong face."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

import geminga
import geminga.aio
import geminga.blocking

FACES = pytest.mark.parametrize("face", [geminga, geminga.aio, geminga.blocking])


@FACES
def test_only_public_names_are_listed(face: ModuleType) -> None:
    listed = [name for name in dir(face) if name[:2] != "__"]
    modules = {"admin", "aio", "auth", "blocking", "encryption", "errors", "failover", "options"}
    assert set(listed) - set(face.__all__) <= modules | {"otel", "schema", "testing"}
    assert set(face.__all__) <= set(listed)
    assert not [name for name in listed if name.startswith("_")]


@FACES
def test_options_stand_in_signatures(face: ModuleType) -> None:
    connect = inspect.signature(face.connect)
    assert connect.parameters["operation_timeout_s"].default == 30.0
    assert connect.parameters["tls_trust_certs_file_path"].annotation == "str | None"
    functions: list[tuple[Callable[..., object], str, object]] = [
        (face.Client.create_producer, "batching_max_messages", 1000),
        (face.Client.subscribe, "receiver_queue_size", 1000),
        (face.Client.create_reader, "start_message_id_inclusive", False),
        (face.Producer.send, "partition_key", None),
        (face.Producer.submit, "properties", None),
    ]
    for function, option, default in functions:
        parameters = inspect.signature(function).parameters
        assert parameters[option].default == default
        assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY
        assert not [each for each in parameters.values() if each.kind is each.VAR_KEYWORD]


def test_a_trio_client_in_asyncio_names_the_right_face() -> None:
    async def program() -> None:
        async with geminga.connect("pulsar://localhost:1"):
            raise AssertionError("it was made")

    with pytest.raises(geminga.InvalidArgumentError, match=r"geminga\.aio\.connect in asyncio"):
        asyncio.run(program())


async def test_an_asyncio_client_in_trio_names_the_right_face() -> None:
    with pytest.raises(geminga.InvalidArgumentError, match=r"use geminga\.connect in Trio"):
        async with geminga.aio.connect("pulsar://localhost:1"):
            raise AssertionError("it was made")


@pytest.mark.parametrize("face", ["geminga", "geminga.aio", "geminga.blocking"])
def test_the_client_alone_shows_its_options(face: str) -> None:
    code = (
        f"import inspect, {face} as g; print(list(inspect.signature(g.Client).parameters)[:2]);"
        " print('operation_timeout_s' in inspect.signature(g.Client).parameters)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[1] == "True", run.stdout
