"""TLS between serve and connect, and what goes wrong."""

from __future__ import annotations

import logging
import random
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from geminga_runtime._tests.certificates import Authority, Leaf, common_name
from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed, ConnectionLost, TlsFailed, TlsRefused
from geminga_runtime.server import Bound, ConnectionCount, serve
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import ClientTls, ServerTls, TlsContexts
from geminga_runtime.tls_stream import ENCRYPT_BYTES, TlsStream, _pieces

HOST = "127.0.0.1"
Handler = Callable[[FramedStream], object]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def leaf(authority: Authority) -> Leaf:
    return authority.server()


async def echo(stream: FramedStream) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_writer)
        while data := await stream.receive():
            stream.write(data)
        await stream.flush()
        stream.abort()


async def start(
    nursery: trio.Nursery, tls: ServerTls | None, handler: Handler = echo, **options: object
) -> Bound:
    contexts = None if tls is None else TlsContexts(tls, refresh_check_s=0)
    bound: list[Bound] = await nursery.start(
        partial(serve, handler, host=HOST, port=0, tls=contexts, **options)
    )
    return bound[0]


@asynccontextmanager
async def talk(stream: FramedStream) -> AsyncIterator[FramedStream]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_writer)
        yield stream
        await stream.aclose()


async def ask(bound: Bound, tls: ClientTls, host: str = HOST) -> bytes:
    async with talk(await connect(host, bound.port, tls=TlsContexts(tls))) as stream:
        stream.write(b"hello")
        try:
            return await stream.receive()
        except ConnectionLost as error:
            lost = error
    raise lost


def server_tls(leaf: Leaf, **options: object) -> ServerTls:
    return ServerTls(str(leaf.certificate), str(leaf.key), **options)


def trusting(authority: Authority, **options: object) -> ClientTls:
    return ClientTls(trust_certs_file=str(authority.certificate), **options)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_bytes_arrive_whole(
    nursery: trio.Nursery, authority: Authority, leaf: Leaf, version: str
) -> None:
    bound = await start(nursery, server_tls(leaf))
    chance = random.Random(7)
    sizes = [1, 5000, 20_000, 16_384, 3, ENCRYPT_BYTES + 1, 2_000_000]
    sent = [chance.randbytes(size) for size in sizes * 2]
    contexts = TlsContexts(trusting(authority, protocols=(version,)))
    async with talk(await connect("localhost", bound.port, tls=contexts)) as stream:
        stream.write_now(sent[0])
        stream.write(*sent[1:])
        got = bytearray()
        while len(got) < sum(map(len, sent)):
            data = await stream.receive(chance.choice([10, 16_384, 300_000]))
            assert data
            got += data
        assert got == b"".join(sent)
        assert stream.pending_bytes == 0
        assert common_name(stream.peer_certificate) == "broker"


def test_pieces() -> None:
    chance = random.Random(3)
    for _ in range(20):
        sizes = [chance.choice([1, 100, 60_000, ENCRYPT_BYTES, 600_000]) for _ in range(9)]
        buffers = [chance.randbytes(1000) * (size // 1000) + bytes(size % 1000) for size in sizes]
        pieces = _pieces(buffers)
        assert b"".join(pieces) == b"".join(buffers)
        assert max(map(len, pieces)) <= ENCRYPT_BYTES
        assert len(pieces) <= 2 * sum(sizes) // ENCRYPT_BYTES + 2


async def test_a_slow_reader_holds_the_writer_up(
    nursery: trio.Nursery, authority: Authority, leaf: Leaf
) -> None:
    waiting = trio.Event()

    async def flood(stream: FramedStream) -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(stream.run_writer)
            stream.write(b"x" * 30_000_000)
            assert not stream.writable
            await waiting.wait()
            assert stream.pending_bytes > 10_000_000
            await stream.flush()
            assert stream.writable
            stream.abort()

    bound = await start(nursery, server_tls(leaf), flood)
    async with talk(await connect(HOST, bound.port, tls=TlsContexts(trusting(authority)))) as it:
        got = len(await it.receive())
        with trio.move_on_after(0.001):
            await it.receive()
        waiting.set()
        while data := await it.receive():
            got += len(data)
        assert got >= 30_000_000 - 300_000


async def test_certificates_that_are_refused(
    nursery: trio.Nursery, authority: Authority, leaf: Leaf, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", "Other CA")
    bound = await start(nursery, server_tls(leaf))
    with pytest.raises(TlsRefused, match="refused: unable to get local issuer"):
        await ask(bound, trusting(other))
    assert await ask(bound, ClientTls(allow_insecure=True)) == b"hello"
    expired = await start(nursery, server_tls(authority.server(expired=True)))
    with pytest.raises(TlsRefused, match="certificate has expired"):
        await ask(expired, trusting(authority))
    elsewhere = await start(nursery, server_tls(authority.server("elsewhere.example")))
    with pytest.raises(TlsRefused, match=r"not valid for '127\.0\.0\.1'"):
        await ask(elsewhere, trusting(authority))
    assert await ask(elsewhere, trusting(authority, validate_hostname=False)) == b"hello"
    with pytest.raises(TlsRefused, match="local issuer"):
        await ask(elsewhere, trusting(other, validate_hostname=False))


async def test_certificates_of_clients(
    nursery: trio.Nursery, authority: Authority, leaf: Leaf, tmp_path: Path
) -> None:
    seen: list[bytes | None] = []

    async def handler(stream: FramedStream) -> None:
        seen.append(stream.peer_certificate)
        await echo(stream)

    ca = str(authority.certificate)
    must = server_tls(leaf, trust_certs_file=ca, require_client_certificate=True)
    may = server_tls(leaf, trust_certs_file=ca)

    def showing(who: Leaf) -> ClientTls:
        return trusting(authority, certificate_file=str(who.certificate), key_file=str(who.key))

    alice = showing(authority.client("alice"))
    stranger = showing(Authority(tmp_path / "other", "Other CA").client("alice"))
    late = showing(authority.client("alice", expired=True))
    for tls in (must, may):
        bound = await start(nursery, tls, handler)
        assert await ask(bound, alice) == b"hello"
        shown = seen.pop()
        assert shown is not None
        assert common_name(shown) == "alice"
        assert ssl.DER_cert_to_PEM_cert(shown) in await read(alice)
        for wrong in (stranger, late):
            with pytest.raises(
                (TlsRefused, ConnectionLost), match=r"TLS: tlsv1 alert|TLS: sslv3 alert"
            ):
                await ask(bound, wrong)
    with pytest.raises((TlsRefused, ConnectionLost), match="certificate required"):
        await ask(await start(nursery, must, handler), trusting(authority))
    assert await ask(bound, trusting(authority)) == b"hello"
    assert seen == [None]
    # With allow_insecure no certificate is requested: an unverified one is no identity.
    lax = await start(nursery, server_tls(leaf, trust_certs_file=ca, allow_insecure=True), handler)
    assert await ask(lax, stranger) == b"hello"
    assert seen[1:] == [None]


async def read(tls: ClientTls) -> str:
    return await trio.Path(tls.certificate_file).read_text()


async def test_replaced_on_disk(
    nursery: trio.Nursery, authority: Authority, tmp_path: Path
) -> None:
    first = authority.server(name="first")
    here = Leaf(tmp_path / "tls.pem", tmp_path / "tls.key")

    def install(leaf: Leaf) -> None:
        shutil.copy(leaf.certificate, here.certificate)
        shutil.copy(leaf.key, here.key)

    install(first)
    bound = await start(nursery, server_tls(here))
    contexts = TlsContexts(trusting(authority))
    async with talk(await connect(HOST, bound.port, tls=contexts)) as old:
        assert common_name(old.peer_certificate) == "first"
        install(authority.server(name="second"))
        async with talk(await connect(HOST, bound.port, tls=contexts)) as new:
            assert common_name(new.peer_certificate) == "second"
        old.write(b"still here")
        assert await old.receive() == b"still here"


@pytest.mark.slow
async def test_stalled_handshake(
    nursery: trio.Nursery, authority: Authority, leaf: Leaf, caplog: pytest.LogCaptureFixture
) -> None:
    # Long enough for the others to finish on a busy machine.
    bound = await start(nursery, server_tls(leaf), connections_max=1, handshake_timeout_s=3)
    silent = await trio.open_tcp_stream(*bound)
    async with silent:
        await silent.send_all(b"\x16\x03\x01")
        # It counts as a connection: another one is above the bound.
        with pytest.raises(ConnectFailed):
            await ask(bound, trusting(authority))
        assert await silent.receive_some() == b""
    assert caplog.text.count("failed: not done within 3 s") == 1
    assert await ask(bound, trusting(authority)) == b"hello"


@pytest.mark.slow
async def test_silent_clients_do_not_block_others(
    nursery: trio.Nursery, authority: Authority, leaf: Leaf, caplog: pytest.LogCaptureFixture
) -> None:
    count = ConnectionCount(1000)
    options = {"connections_max": count, "handshake_timeout_s": 3}
    bound = await start(nursery, server_tls(leaf), **options)
    silent = [await trio.open_tcp_stream(*bound) for _ in range(100)]
    assert await ask(bound, trusting(authority)) == b"hello"
    assert count.open >= 100
    for stream in silent:
        assert await stream.receive_some() == b""
        await stream.aclose()
    with trio.fail_after(60):
        while count.open:  # noqa: ASYNC110
            await trio.sleep(0.01)
    assert caplog.text.count("not done within 3 s") == 100


async def test_plain_client_on_the_tls_port(
    nursery: trio.Nursery, leaf: Leaf, caplog: pytest.LogCaptureFixture
) -> None:
    bound = await start(nursery, server_tls(leaf))
    for said in (b"\x00\x00\x00\x08\x00\x00\x00\x04\x08\x02\x12\x00", b"GET / HTTP/1.1\r\n\r\n"):
        caplog.clear()
        async with await trio.open_tcp_stream(*bound) as plain:
            await plain.send_all(said)
            with trio.fail_after(60):
                try:
                    while await plain.receive_some():
                        pass
                except trio.BrokenResourceError:
                    pass
        assert caplog.text.count("\n") == 1
        assert "does not speak TLS" in caplog.text


async def test_tls_client_on_a_plain_port(nursery: trio.Nursery, authority: Authority) -> None:
    async def closes(stream: FramedStream) -> None:
        await stream.receive()

    bound = await start(nursery, None)
    with pytest.raises(TlsRefused, match="TLS"):
        await ask(bound, trusting(authority))
    with pytest.raises(
        ConnectFailed,
        match=r"closed during the TLS handshake \(is this the TLS port\?\)",
    ) as caught:
        await ask(await start(nursery, None, closes), trusting(authority))
    assert not isinstance(caught.value, TlsRefused)


async def test_a_client_that_leaves_at_once_is_not_reported_as_a_failure(
    nursery: trio.Nursery, leaf: Leaf, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bound = await start(nursery, server_tls(leaf))
    async with await trio.open_tcp_stream(*bound):
        pass
    await trio.sleep(0.02)
    assert not caplog.text


async def raw_pair(authority: Authority, leaf: Leaf) -> tuple[TlsStream, TlsStream]:
    listener = (await trio.open_tcp_listeners(0, host=HOST))[0]
    near = await trio.open_tcp_stream(HOST, listener.socket.getsockname()[1])
    far = await listener.accept()
    await listener.aclose()
    mine = TlsStream(near, trusting(authority).context(), server_hostname=HOST)
    theirs = TlsStream(far, server_tls(leaf).context(), server_side=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine.do_handshake)
        nursery.start_soon(theirs.do_handshake)
    return mine, theirs


async def test_ends(authority: Authority, leaf: Leaf) -> None:
    mine, theirs = await raw_pair(authority, leaf)
    await mine.send_all(b"last words")
    await mine.aclose()
    assert await theirs.receive_some(4) == b"last"
    assert await theirs.receive_some() == b" words"
    assert await theirs.receive_some() == b""
    assert await theirs.receive_some() == b""
    await theirs.aclose()
    # Closed without close_notify: also an end.
    mine, theirs = await raw_pair(authority, leaf)
    await mine.transport_stream.aclose()
    assert await theirs.receive_some() == b""
    await theirs.aclose()
    # An invalid record raises after all data before it were read.
    mine, theirs = await raw_pair(authority, leaf)
    await mine.send_all(b"good")
    await mine.transport_stream.send_all(b"\x17\x03\x03\x00\x20" + bytes(32))
    await trio.sleep(0.01)
    assert await theirs.receive_some() == b"good"
    for _ in range(2):
        with pytest.raises(TlsFailed, match="TLS: "):
            await theirs.receive_some()
    await theirs.aclose()
    await mine.aclose()


async def test_cancelled_reads_lose_nothing(authority: Authority, leaf: Leaf) -> None:
    mine, theirs = await raw_pair(authority, leaf)
    sent = random.Random(5).randbytes(3_000_000)
    got = bytearray()
    async with mine, theirs, trio.open_nursery() as nursery:
        nursery.start_soon(mine.send_all, sent)
        while len(got) < len(sent):
            with trio.CancelScope() as scope:
                nursery.start_soon(_cancel_soon, scope)
                got += await theirs.receive_some(10_000)
    assert got == sent


async def _cancel_soon(scope: trio.CancelScope) -> None:
    scope.cancel()


async def test_both_directions_at_once(authority: Authority, leaf: Leaf) -> None:
    mine, theirs = await raw_pair(authority, leaf)
    sent = random.Random(6).randbytes(2_000_000)

    async def take(stream: TlsStream) -> None:
        got = bytearray()
        while len(got) < len(sent):
            got += await stream.receive_some()
        assert got == sent

    async with mine, theirs, trio.open_nursery() as nursery:
        for one in (mine, theirs):
            nursery.start_soon(one.send_all, sent)
            nursery.start_soon(take, one)
