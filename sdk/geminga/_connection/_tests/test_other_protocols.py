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


@pytest.mark.parametrize("scheme", ["http", "pulsar+ssl"])
@pytest.mark.slow
async def test_a_server_that_closes_is_tried_again(scheme: str) -> None:
    connections = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        await stream.receive_some()

    async with trio.open_nursery() as nursery:
        serving = partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serving)
        url = f"{scheme}://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with geminga.connect(url, operation_timeout_s=1) as client:
            with trio.fail_after(20), pytest.raises(geminga.GemingaError) as caught:
                await client.create_producer("t")
        nursery.cancel_scope.cancel()
    assert not isinstance(caught.value, geminga.WrongProtocolError)
    assert connections > 2


async def test_tls_at_a_port_without_it_fails_at_once() -> None:
    with broker() as url:
        async with geminga.connect(url.replace("pulsar://", "pulsar+ssl://")) as client:
            with trio.fail_after(20), pytest.raises(geminga.WrongProtocolError) as caught:
                await client.create_producer("t")
    assert "it speaks Pulsar's protocol without TLS" in str(caught.value)


@pytest.mark.slow
async def test_no_credentials_are_sent_without_tls() -> None:
    received = b""

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal received
        data = await stream.receive_some()
        if not data.startswith(b"\x16\x03"):
            received += data
            await stream.send_all(b"\x00\x00\x00")

    async with trio.open_nursery() as nursery:
        serving = partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serving)
        url = f"pulsar+ssl://127.0.0.1:{listener.socket.getsockname()[1]}"
        secret = geminga.AuthenticationToken("secret")
        async with geminga.connect(url, authentication=secret, operation_timeout_s=1) as client:
            with trio.fail_after(20), pytest.raises(geminga.ConnectionFailedError) as caught:
                await client.create_producer("t")
        nursery.cancel_scope.cancel()
    assert received
    assert b"secret" not in received
    assert not isinstance(caught.value, geminga.WrongProtocolError)
