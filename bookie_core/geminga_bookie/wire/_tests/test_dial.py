"""Connecting with start-TLS."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import trio

from geminga_bookie._tests.support import KEY, Outcomes, packets
from geminga_bookie.errors import BookieUnavailable
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import open_remote
from geminga_bookie.wire.server import BookieServerOptions, serve_bookie
from geminga_bookie.wire.session import BookieSession
from geminga_bookie.wire.session_limits import SessionLimits, Shared
from geminga_protocol.bookkeeper import v3
from geminga_protocol.bookkeeper.framing import FrameCutter
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    EBADREQ,
    EOK,
    FORCE_LEDGER,
    START_TLS,
    OperationType,
    StatusCode,
)
from geminga_runtime._tests.certificates import Authority
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import ClientTls, ServerTls, TlsContexts
from geminga_runtime.tls_stream import TlsStream


class TlsBookie:
    """A bookie that answers START_TLS as told, then speaks TLS."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        leaf = authority.server()
        files = {"certificate_file": str(leaf.certificate), "key_file": str(leaf.key)}
        self.contexts = TlsContexts(ServerTls(**files))
        trusted = ClientTls(trust_certs_file=str(authority.certificate))
        self.options = RemoteOptions(tls=TlsContexts(trusted), backoff_s=0.01, backoff_max_s=0.01)
        self.answer = v3.frame(v3.response(START_TLS, 0, EOK))

    async def serve(self, *, task_status: trio.TaskStatus[int]) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        task_status.started(listeners[0].socket.getsockname()[1])
        await trio.serve_listeners(self._run, listeners)

    async def _run(self, stream: trio.SocketStream) -> None:
        cutter = FrameCutter()
        _, bounds = cutter.feed(bytes(await stream.receive_some(1000)))
        assert len(bounds) == 2
        # The answer in pieces.
        await stream.send_all(self.answer[:3])
        await stream.send_all(self.answer[3:])
        secured = TlsStream(stream, self.contexts.current(), server_side=True)
        try:
            await secured.do_handshake()
        except OSError:
            await stream.aclose()
            return
        framed = FramedStream(secured, name="client")
        bookie = MemoryBookie()
        session = BookieSession(bookie, framed, SessionLimits(), Shared(bookie))
        try:
            await session.run()
        except* ConnectionError:
            pass
        finally:
            await framed.aclose()


@pytest.fixture
async def tls_bookie(tmp_path: Path) -> TlsBookie:
    return TlsBookie(tmp_path)


async def test_requests_go_by_tls(tls_bookie: TlsBookie, nursery: trio.Nursery) -> None:
    port = await nursery.start(tls_bookie.serve)
    async with open_remote("b:1", "127.0.0.1", port, tls_bookie.options) as bookie:
        outcomes = Outcomes()
        bookie.add(7, KEY, 0, packets(7, range(100), 10_000), outcomes)
        await outcomes.wait_for(100)
        assert outcomes.errors == []
        found = await bookie.read(7, 0, entries_max=100, bytes_max=1 << 30)
        assert found == packets(7, range(100), 10_000)
    nursery.cancel_scope.cancel()


async def test_our_server_offers_tls(tls_bookie: TlsBookie, nursery: trio.Nursery) -> None:
    options = BookieServerOptions("127.0.0.1", 0, tls=tls_bookie.contexts)
    bound = await nursery.start(serve_bookie, MemoryBookie(), options)
    async with (
        open_remote("b:1", *bound[0], tls_bookie.options) as secured,
        open_remote("b:1", *bound[0]) as plain,
    ):
        outcomes = Outcomes()
        secured.add(7, KEY, 0, packets(7, range(50), 20_000), outcomes)
        await outcomes.wait_for(50)
        for each in (secured, plain):
            found = await each.read(7, 0, entries_max=50, bytes_max=1 << 30)
            assert found == packets(7, range(50), 20_000)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("behind", "gap_s"),
    [(b"\x00", 0), (v3.encode_reads(7, 0, 1, 5), 0), (v3.encode_reads(7, 0, 1, 5), 0.01)],
)
async def test_nothing_may_come_behind_the_request_for_tls(
    tls_bookie: TlsBookie, nursery: trio.Nursery, behind: bytes, gap_s: float
) -> None:
    """Else others could send requests on behalf of whom the certificate names."""
    bookie = MemoryBookie()
    outcomes = Outcomes()
    bookie.add(7, KEY, 0, packets(7, range(1)), outcomes)
    options = BookieServerOptions("127.0.0.1", 0, tls=tls_bookie.contexts)
    bound = await nursery.start(serve_bookie, bookie, options)
    async with await trio.open_tcp_stream(*bound[0]) as stream:
        request = v3.request(START_TLS, 9)
        request.startTLSRequest.SetInParent()
        await stream.send_all(v3.frame(request) + (b"" if gap_s else behind))
        await trio.sleep(gap_s)
        if gap_s:
            await stream.send_all(behind)
        answer = v3.response(START_TLS, 9, EOK)
        answer.startTLSResponse.SetInParent()
        got = b""
        with contextlib.suppress(trio.BrokenResourceError):
            async for data in stream:
                got += data
        # An alert of TLS may follow.
        assert got.removeprefix(v3.frame(answer))[:1] in (b"", b"\x15")
    nursery.cancel_scope.cancel()


def wrong(
    status: StatusCode = EOK, behind: bytes = b"", operation: OperationType = START_TLS
) -> bytes:
    return v3.frame(v3.response(operation, 0, status)) + behind


@pytest.mark.parametrize(
    "answer",
    [
        wrong(EBADREQ),
        wrong(behind=b"what was sent before TLS"),
        wrong(behind=b"\0"),
        wrong(operation=FORCE_LEDGER),
        b"\xff" * 8,
        b"\x00\x00\x00\x04\xff\xff\xff\xff",
    ],
)
async def test_a_bookie_without_tls_is_not_spoken_to(
    tls_bookie: TlsBookie, nursery: trio.Nursery, answer: bytes
) -> None:
    tls_bookie.answer = answer
    port = await nursery.start(tls_bookie.serve)
    async with open_remote("b:1", "127.0.0.1", port, tls_bookie.options) as bookie:
        with pytest.raises(BookieUnavailable):
            await bookie.last_entry(7)
    nursery.cancel_scope.cancel()
