"""Wrong arguments raise at the call in the other faces too, before anything is handed over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import geminga.aio as ga
import geminga.blocking as gb
from geminga._tests.test_arguments import CONNECT, CREATE, SEND


@pytest.mark.parametrize(("name", "value"), CONNECT, ids=str)
def test_connect(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"service_url": "pulsar://localhost", name: value}
    for connect in (gb.connect, ga.connect):
        with pytest.raises(gb.InvalidArgumentError, match=name):
            connect(**arguments)


def test_blocking(url: str, topic: str) -> None:
    with gb.connect(url) as client:
        for name, value in CREATE:
            arguments: dict[str, Any] = {"topic": topic, name: value}
            with pytest.raises(gb.InvalidArgumentError, match=name):
                client.create_producer(**arguments)
        producer = client.create_producer(topic)
        for name, value in SEND:
            arguments = {"data": b"x", name: value}
            for call in (producer.send, producer.submit, producer.send_nowait):
                with pytest.raises(gb.InvalidArgumentError, match=name):
                    call(**arguments)
        assert producer.pending_messages == 0
        assert producer.statistics().total_msgs_sent == 0


def test_aio(url: str, topic: str) -> None:
    async def main() -> None:
        async with ga.connect(url) as client:
            for name, value in CREATE:
                arguments: dict[str, Any] = {"topic": topic, name: value}
                with pytest.raises(ga.InvalidArgumentError, match=name):
                    await client.create_producer(**arguments)
            producer = await client.create_producer(topic)
            for name, value in SEND:
                arguments = {"data": b"x", name: value}
                for call in (producer.send, producer.submit):
                    with pytest.raises(ga.InvalidArgumentError, match=name):
                        await call(**arguments)
                with pytest.raises(ga.InvalidArgumentError, match=name):
                    producer.send_nowait(**arguments)
            assert producer.pending_messages == 0

    asyncio.run(main())
