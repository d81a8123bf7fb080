"""Clients without a block, and what is opened by them, in all three faces."""

from __future__ import annotations

import asyncio
import gc
from datetime import UTC, datetime

import pytest
import trio

import geminga
import geminga.aio as ga
import geminga.blocking as gb


async def test_trio(url: str, topic: str) -> None:
    client = geminga.Client(url)
    async with client.create_producer(topic) as producer:
        receipts = await producer.submit_many([b"one", b"two"])
        assert [(await each.wait()).partition for each in receipts] == [-1, -1]
    with pytest.raises(geminga.AlreadyClosedError):
        await producer.send(b"three")
    reader = await client.create_reader(topic, geminga.MessageId.EARLIEST)
    message = await reader.read_next(60)
    assert (message.data, message.topic, message.key) == (b"one", message.topic_name, None)
    await reader.seek(datetime.fromtimestamp(message.publish_time_ms / 1000 - 1, UTC))
    assert (await reader.read_next(60)).data == b"one"
    with pytest.raises(geminga.InvalidArgumentError, match="time zone"):
        await reader.seek(datetime(2020, 1, 1))
    await client.aclose()
    await client.aclose()
    with pytest.raises(geminga.AlreadyClosedError):
        await client.create_producer(topic)


async def test_connect_can_be_awaited(url: str, topic: str) -> None:
    client = await geminga.connect(url)
    async with client, client.create_producer(topic) as producer:
        await producer.send(b"x")
    with pytest.raises(geminga.AlreadyClosedError):
        await client.create_producer(topic)


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


def test_asyncio(url: str, topic: str) -> None:
    async def program() -> None:
        client = ga.Client(url)
        assert repr(client).startswith("<Client")
        async with client.create_producer(topic) as producer:
            receipts = await producer.submit_many([b"one", b"two"])
            await receipts[1].wait()
        with pytest.raises(ga.AlreadyClosedError):
            await producer.send(b"three")
        other = await ga.connect(url)
        async with other, other.create_reader(topic, ga.EARLIEST) as reader:
            assert (await reader.read_next(60)).data == b"one"
        await client.aclose()
        await client.aclose()
        with pytest.raises(ga.AlreadyClosedError):
            await client.create_producer(topic)

    asyncio.run(asyncio.wait_for(program(), 100))


def test_asyncio_closes_what_was_never_used(url: str) -> None:
    async def program() -> None:
        await ga.Client(url).aclose()

    asyncio.run(asyncio.wait_for(program(), 100))


def test_threads(url: str, topic: str) -> None:
    client = gb.Client(url)
    with client.create_producer(topic) as producer:
        producer.submit_many([b"one", b"two"])[1].wait()
    client.close()
    with pytest.raises(gb.AlreadyClosedError):
        client.create_producer(topic)


def test_where_no_loop_runs_the_right_face_is_named() -> None:
    with pytest.raises(geminga.InvalidArgumentError, match=r"use geminga\.aio\.Client in asyncio"):
        geminga.Client("pulsar://localhost:1")
    with pytest.raises(ga.InvalidArgumentError, match=r"geminga\.blocking\.connect without"):
        ga.Client("pulsar://localhost:1")
    refused = pytest.raises(geminga.InvalidArgumentError, match="async with")
    with refused, geminga.connect("pulsar://localhost:1"):
        raise AssertionError("it was made")
