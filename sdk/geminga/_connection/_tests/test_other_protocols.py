"""A service URL with another server's port."""

from __future__ import annotations

from functools import partial

import pytest
import trio

import geminga
from geminga.testing import broker


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x0a"]
)
async def test_a_port_of_another_protocol_fails_at_once(answer: bytes) -> None:
    connections = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        await stream.receive_some()
        await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        serving = partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serving)
        url = f"pulsar://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with geminga.connect(url) as client:
            with trio.fail_after(20), pytest.raises(geminga.WrongProtocolError, match="is this"):
                await client.create_producer("t")
        nursery.cancel_scope.cancel()
    assert connections == 1


async def test_http_at_the_port_of_pulsar_s_protocol_fails_at_once() -> None:
    with broker() as url:
        async with geminga.connect(url.replace("pulsar://", "http://")) as client:
            with trio.fail_after(20), pytest.raises(geminga.WrongProtocolError) as caught:
                await client.create_producer("t")
    assert "it speaks Pulsar's binary protocol" in str(caught.value)


async def test_a_web_service_that_closes_is_tried_again() -> None:
    connections = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        await stream.receive_some()

    async with trio.open_nursery() as nursery:
        serving = partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serving)
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with geminga.connect(url, operation_timeout_s=1) as client:
            with trio.fail_after(20), pytest.raises(geminga.GemingaError) as caught:
                await client.create_producer("t")
        nursery.cancel_scope.cancel()
    assert not isinstance(caught.value, geminga.WrongProtocolError)
    assert connections > 2
