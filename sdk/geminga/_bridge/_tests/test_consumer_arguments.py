"""Wrong arguments of consumers raise at the call in the other faces too."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

import geminga.aio as ga
import geminga.blocking as gb
from geminga._consuming._tests.test_consumer_arguments import CALLS, KEYWORD_CALLS, READ, SUBSCRIBE


def test_blocking(url: str, topic: str) -> None:
    with gb.connect(url) as client:
        for name, value in SUBSCRIBE:
            arguments: dict[str, Any] = {"topic": topic, "subscription_name": "s", name: value}
            with pytest.raises(gb.InvalidArgumentError, match=name):
                client.subscribe(**arguments)
        for name, value in READ:
            arguments = {"topic": topic, "start_message_id": gb.EARLIEST, name: value}
            with pytest.raises(gb.InvalidArgumentError, match=name):
                client.create_reader(**arguments)
        consumer = client.subscribe(topic, "s")
        for method, name, values in CALLS:
            with pytest.raises(gb.InvalidArgumentError, match=name):
                getattr(consumer, method)(*values)
        for method, name, value in KEYWORD_CALLS:
            with pytest.raises(gb.InvalidArgumentError, match=name):
                getattr(consumer, method)(**{name: value})
        view: Any = client.create_table_view(topic)
        for listen in (view.listen, view.for_each_and_listen):
            with pytest.raises(gb.InvalidArgumentError, match="listener"):
                listen("print")

        async def listener(consumer: gb.Consumer, message: gb.Message) -> None:
            """Nobody would await it in a thread."""

        with pytest.raises(gb.InvalidArgumentError, match="message_listener"):
            client.subscribe(topic, "t", message_listener=listener)
        assert consumer.statistics().total_acks_sent == 0


def test_aio(url: str, topic: str) -> None:
    async def refuse(call: Any, name: str) -> None:
        with pytest.raises(ga.InvalidArgumentError, match=name):
            answer = call()
            if inspect.isawaitable(answer):
                await answer

    async def main() -> None:
        async with ga.connect(url) as client:
            for name, value in SUBSCRIBE:
                arguments: dict[str, Any] = {"topic": topic, "subscription_name": "s", name: value}
                await refuse(lambda: client.subscribe(**arguments), name)  # noqa: B023
            for name, value in READ:
                arguments = {"topic": topic, "start_message_id": ga.EARLIEST, name: value}
                await refuse(lambda: client.create_reader(**arguments), name)  # noqa: B023
            consumer = await client.subscribe(topic, "s")
            for method, name, values in CALLS:
                await refuse(lambda: getattr(consumer, method)(*values), name)  # noqa: B023
            for method, name, value in KEYWORD_CALLS:
                await refuse(lambda: getattr(consumer, method)(**{name: value}), name)  # noqa: B023
            view: Any = await client.create_table_view(topic)
            await refuse(lambda: view.listen(5), "listener")
            await refuse(lambda: view.for_each_and_listen("print"), "listener")

    asyncio.run(main())
