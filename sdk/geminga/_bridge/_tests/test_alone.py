"""Clients without a block: awaited, left open, created in the wrong surroundings."""

from __future__ import annotations

import gc

import pytest
import trio

import geminga
import geminga.aio as ga
from geminga._bridge._tests.three_faces import FACES, Face


@pytest.mark.parametrize("face", FACES[:2], ids=["trio", "aio"])
def test_connect_can_be_awaited(face: Face, url: str, topic: str) -> None:
    async def script() -> None:
        client = await face.connect(url)
        async with client, client.create_producer(topic) as producer:
            await producer.send(b"x")
        with pytest.raises(geminga.AlreadyClosedError):
            await client.create_producer(topic)

    face.run(script)


@pytest.mark.slow
def test_a_client_that_is_left_open_stops_no_program(url: str, topic: str) -> None:
    async def program() -> None:
        client = geminga.Client(url)
        await (await client.create_producer(topic)).send(b"x")

    async def guarded() -> None:
        with trio.fail_after(60):
            await program()
        gc.collect()

    with pytest.warns(ResourceWarning, match="was not closed"):
        trio.run(guarded)


def test_where_no_loop_runs_the_right_face_is_named() -> None:
    with pytest.raises(geminga.InvalidArgumentError, match=r"use geminga\.aio\.Client in asyncio"):
        geminga.Client("pulsar://localhost:1")
    with pytest.raises(ga.InvalidArgumentError, match=r"geminga\.blocking\.connect without"):
        ga.Client("pulsar://localhost:1")
    refused = pytest.raises(geminga.InvalidArgumentError, match="async with")
    with refused, geminga.connect("pulsar://localhost:1"):
        raise AssertionError("it was made")
