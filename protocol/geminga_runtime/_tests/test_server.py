"""serve and connect."""

from __future__ import annotations

import logging
import socket
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from geminga_runtime._tests.certificates import Authority
from geminga_runtime.connect import connect
from geminga_runtime.errors import BindFailed, ConnectFailed, ConnectionLost
from geminga_runtime.server import Bound, ConnectionCount, serve
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import ClientTls, ServerTls, TlsContexts
from geminga_runtime.tls_stream import TlsStream

HOST = "127.0.0.1"


async def echo(stream: FramedStream) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_writer)
        while data := await stream.receive():
            stream.write(data)
        await stream.flush()
        stream.abort()


async def start(nursery: trio.Nursery, handler: object, **options: object) -> Bound:
    bound: list[Bound] = await nursery.start(partial(serve, handler, host=HOST, port=0, **options))
    assert bound[0].port > 0
    return bound[0]


async def ask(bound: Bound, text: bytes) -> bytes:
    stream = await connect(*bound)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_writer)
        stream.write(text)
        answer = await stream.receive()
        await stream.aclose()
    return answer


async def test_echo(nursery: trio.Nursery) -> None:
    bound = await start(nursery, echo)
    assert await ask(bound, b"hello") == b"hello"
    assert await ask(bound, b"again") == b"again"


async def test_failing_handler_ends_its_connection_only(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(stream: FramedStream) -> None:
        if await stream.receive() == b"bad":
            raise ValueError("a defect")
        await echo(stream)

    bound = await start(nursery, handler)
    assert await ask(bound, b"bad") == b""
    assert "failed" in caplog.text
    assert "a defect" in caplog.text


async def test_lost_connection_is_no_error(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    ended = trio.Event()

    async def handler(stream: FramedStream) -> None:
        try:
            async with trio.open_nursery():
                raise ConnectionLost("gone")
        finally:
            ended.set()

    caplog.set_level(logging.WARNING)
    bound = await start(nursery, handler)
    assert await ask(bound, b"") == b""
    await ended.wait()
    assert caplog.text == ""


async def test_connections_max(nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> None:
    count = ConnectionCount(1)
    bound = await start(nursery, echo, connections_max=count)
    first = await connect(*bound)
    second = await connect(*bound)
    assert await second.receive() == b""
    assert "refusing connections: 1 are open" in caplog.text
    await first.aclose()
    with trio.fail_after(60):
        while count.open:  # noqa: ASYNC110 - the system may tell the server a little later
            await trio.sleep(0.001)
    assert await ask(bound, b"free again") == b"free again"
    await second.aclose()


async def test_port_taken() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BindFailed, match=f"can't listen on {HOST}:{port}: Address already"):
            await serve(echo, host=HOST, port=port)


@pytest.mark.parametrize(("handler_s", "expected_s"), [(3.0, 3.0), (60.0, 10.0)])
async def test_drain(
    autojump_clock: trio.testing.MockClock, handler_s: float, expected_s: float
) -> None:
    ended_at: list[float] = []
    started = trio.Event()

    async def handler(stream: FramedStream) -> None:
        started.set()
        try:
            await trio.sleep(handler_s)
        finally:
            ended_at.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        bound = await start(nursery, handler, drain_s=10.0)
        stream = await trio.open_tcp_stream(*bound)
        async with stream:
            await started.wait()
            nursery.cancel_scope.cancel()
            stopped = trio.current_time()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked(0.001)
                with pytest.raises(OSError, match="connect"):
                    await trio.open_tcp_stream(*bound)
    assert ended_at
    assert ended_at[0] - stopped == pytest.approx(expected_s, abs=0.5)


async def test_connect_refused() -> None:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
        with pytest.raises(ConnectFailed, match=f"{HOST}:{port}: .*refused"):
            await connect(HOST, port)


async def test_connect_deadline(monkeypatch: pytest.MonkeyPatch, autojump_clock: object) -> None:
    async def never(host: str, port: int) -> trio.SocketStream:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(trio, "open_tcp_stream", never)
    with pytest.raises(ConnectFailed, match=r"\[::1\]:1: not connected before the deadline"):
        await connect("::1", 1, deadline=trio.current_time() + 3)
    assert trio.current_time() >= 3


async def test_a_proxy_header_names_the_client(nursery: trio.Nursery) -> None:
    names = []

    async def handler(stream: FramedStream) -> None:
        names.append(stream.name)
        await echo(stream)

    bound = await start(nursery, handler, proxy_header=True)
    header = b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 6650\r\n"
    assert await ask(bound, header + b"hello") == b"hello"
    assert await ask(bound, b"hello") == b"hello"
    assert names[0] == "192.0.2.7:4711"
    assert names[1].startswith("127.0.0.1:")
    stream = await trio.open_tcp_stream(*bound)
    for byte in header + b"x":
        await stream.send_all(bytes([byte]))
        await trio.lowlevel.checkpoint()
    assert await stream.receive_some() == b"x"
    await stream.aclose()


@pytest.mark.parametrize("inside", [False, True])
async def test_a_proxy_header_comes_before_tls_or_in_it(
    nursery: trio.Nursery, tmp_path: Path, inside: bool
) -> None:
    authority = Authority(tmp_path)
    leaf = authority.server()
    names = []

    async def handler(stream: FramedStream) -> None:
        names.append(stream.name)
        await echo(stream)

    server = ServerTls(certificate_file=str(leaf.certificate), key_file=str(leaf.key))
    bound = await start(nursery, handler, proxy_header=True, tls=TlsContexts(server))
    stream = await trio.open_tcp_stream(*bound)
    header = b"PROXY TCP6 2001:db8::1 ::1 4711 6651\r\n"
    if not inside:
        await stream.send_all(header)
    context = ClientTls(trust_certs_file=str(authority.certificate)).context()
    secured = TlsStream(stream, context, server_hostname=HOST)
    await secured.do_handshake()
    await secured.send_all(header[:9] if inside else b"")
    await secured.send_all(header[9:] + b"hello" if inside else b"hello")
    assert await secured.receive_some() == b"hello"
    assert names == ["[2001:db8::1]:4711"]
    await secured.aclose()


@pytest.mark.parametrize("begin", [b"PROXY nonsense\r\n", b"PROXY"])
async def test_a_bad_or_stalled_proxy_header_ends_the_connection(
    nursery: trio.Nursery, begin: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bound = await start(nursery, echo, proxy_header=True, handshake_timeout_s=0.05)
    stream = await trio.open_tcp_stream(*bound)
    await stream.send_all(begin)
    with trio.fail_after(60):
        assert not await ended(stream)
    assert caplog.text.count("PROXY header of 127.0.0.1") == 1
    await stream.aclose()


async def ended(stream: trio.SocketStream) -> bytes:
    try:
        return bytes(await stream.receive_some())
    except trio.BrokenResourceError:
        return b""


async def test_connections_of_one_address_are_bounded(nursery: trio.Nursery) -> None:
    count = ConnectionCount(100, per_ip_max=1)
    bound = await start(nursery, echo, proxy_header=True, connections_max=count)
    streams = [await trio.open_tcp_stream(*bound) for _ in range(3)]
    got = []
    for number, stream in enumerate(streams):
        await stream.send_all(b"PROXY TCP4 192.0.2.%d 10.0.0.1 1 2\r\nx" % (number // 2))
        got.append(len(await ended(stream)))
    assert got == [1, 0, 1]
    assert (count.open, count.rejected) == (2, 1)
    for stream in streams:
        await stream.aclose()
    while count.open:  # noqa: ASYNC110
        await trio.sleep(0.001)
    assert not count._by_ip
