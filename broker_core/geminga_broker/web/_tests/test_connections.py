"""Errors of single connections don't end the web server (spec OP-08)."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from geminga_broker.web._tests.served import CLOSING, ask, served
from geminga_broker.web.connection import Connection


@pytest.mark.parametrize("error", [RuntimeError("planted"), trio.BusyResourceError("planted")])
async def test_one_connection_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async with served() as port:
        assert b"hello" in await ask(port, CLOSING)

        async def breaks(_connection: Connection) -> None:
            await trio.lowlevel.checkpoint()
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(Connection, "_serve", breaks)
            assert await ask(port, CLOSING) == b""
        assert b"hello" in await ask(port, CLOSING)
    assert "failed" in caplog.text
    assert "planted" in caplog.text


async def test_a_client_that_leaves_before_its_answer() -> None:
    """Also one that resets the connection: nothing is told, and nothing is left."""
    async with served() as port:
        for reset in (False, True):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(b"GET /slow HTTP/1.1\r\nHost: p\r\n\r\n")
            if reset:
                linger = b"\x01\0\0\0\0\0\0\0"
                stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, linger)
            await stream.aclose()
        assert b"hello" in await ask(port, CLOSING)


async def test_a_client_that_sends_nothing_more_gets_its_answer() -> None:
    """It has ended its side (`nc -N`), not left."""
    async with served() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"GET /slow HTTP/1.1\r\nHost: p\r\n\r\n")
        await stream.send_eof()
        found = b""
        while piece := await stream.receive_some():
            found += piece
        assert found.endswith(b"late")
