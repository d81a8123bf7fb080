"""Authentication of a bookie's clients: who gets in, what the others are answered, and those who do
what no client should."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from geminga_bookie._tests.support import KEY, Outcomes, packets
from geminga_bookie.errors import BookieUnavailable, UnauthorizedAccess
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.wire import auth as wire_auth
from geminga_bookie.wire._tests.auth_plugin import NAME, WordAuth, WordClient
from geminga_bookie.wire._tests.clients import Client, SlowBookie, adds
from geminga_bookie.wire.auth import (
    AUTHENTICATION_S,
    MESSAGES_MAX,
    PAYLOAD_BYTES_MAX,
    TLS_ROLES,
    AuthFailed,
    BookieAuth,
    ClientAuth,
    TlsRoles,
    certificate_role,
    load_bookie_auth,
    load_client_auth,
)
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import RemoteBookie, open_remote
from geminga_bookie.wire.server import BookieServerOptions, serve_bookie
from geminga_bookie.wire.session import BookieSession
from geminga_bookie.wire.session_limits import SessionLimits, Shared
from geminga_protocol.bookkeeper import v2, v3
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    AUTH,
    EOK,
    EUA,
    GET_BOOKIE_INFO,
    AuthMessage,
    Request,
)
from geminga_runtime._tests.certificates import Authority
from geminga_runtime.settings import ConfigError
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import ClientTls, ServerTls, TlsContexts


@asynccontextmanager
async def guarded(bookie: MemoryBookie, auth: BookieAuth | None = None) -> AsyncIterator[Client]:
    """A client of a session that asks for authentication."""
    shared = Shared(bookie)
    near, far = trio.testing.memory_stream_pair()
    stream = FramedStream(far, name="client")
    session = BookieSession(bookie, stream, SessionLimits(), shared, auth=auth or WordAuth())

    async def run() -> None:
        try:
            await session.run()
        finally:
            await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shared.run)
        nursery.start_soon(run)
        yield Client(near)
        nursery.cancel_scope.cancel()


def message(payload: bytes, name: str = NAME, txn: int = 5) -> Request:
    request = v3.request(AUTH, txn)
    request.authRequest.authPluginName, request.authRequest.payload = name, payload
    return request


async def prove(client: Client) -> None:
    for number in range(3):
        answer = await client.call(message(b"word %d" % number))
        assert answer.status == EOK
        said = answer.authResponse
        assert (said.authPluginName, said.payload) == (NAME, b"ok %d" % (number + 1))


async def is_closed(client: Client) -> bool:
    with pytest.raises((EOFError, trio.BrokenResourceError)):
        await client.frames(1)
    return True


@pytest.fixture
def bookie() -> SlowBookie:
    return SlowBookie()


class TestBeforeAuthentication:
    async def test_requests_are_answered_eua(self, bookie: SlowBookie) -> None:
        async with guarded(bookie) as client:
            await client.send(adds(0, 3), v3.encode_reads(7, 0, 2, 90))
            answers = await client.responses(5)
            assert [answer.status for answer in answers] == [EUA] * 5
            assert (await client.call(v3.request(GET_BOOKIE_INFO, 4))).status == EUA
            assert bookie.runs == []
            await prove(client)
            await client.send(adds(0, 3))
            assert {answer.status for answer in await client.responses(3)} == {EOK}

    async def test_half_a_handshake_opens_nothing(self, bookie: SlowBookie) -> None:
        async with guarded(bookie) as client:
            assert (await client.call(message(b"word 0"))).status == EOK
            await client.send(adds(0, 1))
            assert (await client.responses(1))[0].status == EUA
            assert bookie.runs == []

    async def test_requests_behind_the_last_message(self, bookie: SlowBookie) -> None:
        """In one read: what comes before it is refused, what comes behind it is served."""
        async with guarded(bookie) as client:
            frames = [v3.frame(message(b"word %d" % number)) for number in range(3)]
            await client.send(adds(0, 1), *frames, adds(0, 40))
            answers = await client.responses(44)
            assert [answer.status for answer in answers] == [EUA] + [EOK] * 43

    async def test_another_plugin_is_refused(self, bookie: SlowBookie) -> None:
        async with guarded(bookie) as client:
            assert (await client.call(message(b"word 0", "Other"))).status == EUA
            assert (await client.call(v3.request(AUTH, 9))).status == EUA
            await prove(client)

    async def test_v2(self, bookie: SlowBookie) -> None:
        async with guarded(bookie) as client:
            await client.send(*v2.encode_adds(KEY, packets(7, [0])), v2.encode_read(7, 0))
            frames = await client.frames(2)
            codes = [v2.decode_answers(frame, [0, len(frame)])[0].code for frame in frames]
            assert codes == [102, 102]
            for number in range(3):
                said = AuthMessage(authPluginName=NAME, payload=b"word %d" % number)
                await client.send(v2.encode_auth(said))
                (frame,) = await client.frames(1)
                (answer,) = v2.decode_answers(frame, [0, len(frame)])
                assert answer.auth is not None
                assert answer.auth.payload == b"ok %d" % (number + 1)
            await client.send(*v2.encode_adds(KEY, packets(7, [0])))
            (frame,) = await client.frames(1)
            assert v2.decode_answers(frame, [0, len(frame)])[0].code == 0

    @pytest.mark.parametrize(
        "data",
        [
            v2.encode_auth(AuthMessage(authPluginName="Other", payload=b"word 0")),
            v2.encode_auth(AuthMessage(authPluginName=NAME, payload=b"wrong")),
            v2.encode_read_many(7, 0, 1, 1, 100),
        ],
    )
    async def test_v2_closes(self, bookie: SlowBookie, data: bytes) -> None:
        async with guarded(bookie) as client:
            await client.send(data)
            assert await is_closed(client)


class TestHostileClients:
    @pytest.mark.parametrize("payload", [b"wrong", b"error", b"", b"x" * (PAYLOAD_BYTES_MAX + 1)])
    async def test_a_wrong_message_ends_the_connection(
        self, bookie: SlowBookie, payload: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with guarded(bookie) as client:
            assert (await client.call(message(payload))).status == EUA
            assert await is_closed(client)
        assert "a fault of the plug-in" not in caplog.text

    async def test_messages_without_end(self, bookie: SlowBookie) -> None:
        async with guarded(bookie) as client:
            for _ in range(MESSAGES_MAX):
                assert (await client.call(message(b"never"))).status == EOK
            assert (await client.call(message(b"never"))).status == EUA
            assert await is_closed(client)

    async def test_large_frames(self, bookie: SlowBookie) -> None:
        async with guarded(bookie) as client:
            await client.send((1 << 20).to_bytes(4, "big"))
            assert await is_closed(client)
        async with guarded(bookie) as client:
            await prove(client)
            await client.send(adds(0, 1, size=1 << 20))
            assert (await client.responses(1))[0].status == EOK

    @pytest.mark.parametrize("hangs", [False, True])
    async def test_a_deadline(
        self, bookie: SlowBookie, autojump_clock: trio.testing.MockClock, hangs: bool
    ) -> None:
        began = trio.current_time()
        async with guarded(bookie, WordAuth(hangs=hangs)) as client:
            await client.send(v3.frame(message(b"word 0")))
            if not hangs:
                await client.responses(1)
            assert await is_closed(client)
        assert trio.current_time() - began == pytest.approx(AUTHENTICATION_S)
        async with guarded(bookie) as client:
            await prove(client)
            await trio.sleep(2 * AUTHENTICATION_S)
            await client.send(adds(0, 1))
            assert (await client.responses(1))[0].status == EOK

    async def test_again_when_authenticated(self, bookie: SlowBookie) -> None:
        async with guarded(bookie) as client:
            await prove(client)
            answer = await client.call(message(b"wrong"))
            assert answer.authResponse.authPluginName == "AuthDisabledPlugin"
            await client.send(adds(0, 1))
            assert (await client.responses(1))[0].status == EOK


@asynccontextmanager
async def remote(
    server: BookieServerOptions, options: RemoteOptions
) -> AsyncIterator[RemoteBookie]:
    """Our client before our server, by TCP."""
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(serve_bookie, MemoryBookie(), server)
        async with open_remote("b:1", "127.0.0.1", bound[0].port, options) as port:
            yield port
        nursery.cancel_scope.cancel()


async def stored(port: RemoteBookie) -> None:
    outcomes = Outcomes()
    port.add(7, KEY, 0, packets(7, range(3)), outcomes)
    await outcomes.wait_for(3)
    if outcomes.errors:
        raise outcomes.errors[0]


def listening(auth: BookieAuth | None, tls: TlsContexts | None = None) -> BookieServerOptions:
    return BookieServerOptions("127.0.0.1", 0, auth=auth, tls=tls)


class TestOurClient:
    async def test_the_same_plugin(self) -> None:
        async with remote(listening(WordAuth()), RemoteOptions(auth=WordClient())) as port:
            await stored(port)

    async def test_a_bookie_without_authentication(self) -> None:
        async with remote(listening(None), RemoteOptions(auth=WordClient())) as port:
            await stored(port)

    async def test_a_wrong_word(self) -> None:
        async with remote(listening(WordAuth()), RemoteOptions(auth=WordClient(b"other"))) as port:
            with pytest.raises(BookieUnavailable, match=r"authentication failed.*EUA"):
                await stored(port)

    async def test_no_plugin(self) -> None:
        async with remote(listening(WordAuth()), RemoteOptions()) as port:
            with pytest.raises(UnauthorizedAccess):
                await stored(port)

    async def test_a_bookie_that_does_not_answer(self) -> None:
        server = listening(WordAuth(hangs=True))
        options = RemoteOptions(auth=WordClient(), connect_timeout_s=0.2)
        async with remote(server, options) as port:
            with pytest.raises(BookieUnavailable, match="deadline"):
                await stored(port)

    @pytest.mark.parametrize(
        ("name", "payload", "why"),
        [
            (NAME, b"?", "something else"),
            ("Other", b"ok 3", "'Other'"),
            (NAME, b"ok 1", "no end"),
            # The plug-in expects a number there.
            (NAME, b"ok three", "ValueError in the plug-in"),
        ],
    )
    async def test_a_bookie_that_says_other_things(
        self, name: str, payload: bytes, why: str
    ) -> None:
        class Odd(WordAuth):
            plugin_name = NAME

        async def answer(stream: trio.SocketStream) -> None:
            client = Client(stream)
            while True:
                try:
                    (frame,) = await client.frames(1)
                except EOFError:
                    return
                made = v3.response(AUTH, Request.FromString(frame[4:]).header.txnId, EOK)
                made.authResponse.authPluginName, made.authResponse.payload = name, payload
                await client.send(v3.frame(made))

        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, answer, listeners)
            port_number = listeners[0].socket.getsockname()[1]
            options = RemoteOptions(auth=WordClient())
            async with open_remote("b:1", "127.0.0.1", port_number, options) as port:
                with pytest.raises(BookieUnavailable, match=why):
                    await stored(port)
            nursery.cancel_scope.cancel()


class TestTlsRoles:
    @pytest.mark.parametrize(
        ("units", "lets_in"),
        [
            (["0:writer"], True),
            (["0: writer ,reader;1:cluster"], True),
            (["1:cluster;0:writer"], True),
            (["0:reader,writer"], False),
            (["writer"], False),
            (["0:other;0:writer"], True),
            (["0:writer", "0:other"], True),
            (["0:other", "0:writer"], False),
            ([], False),
        ],
    )
    async def test_the_role_in_the_certificate(
        self, tmp_path: Path, units: Sequence[str], lets_in: bool
    ) -> None:
        authority = Authority(tmp_path)
        leaf = authority.client("broker", units=units)
        server = TlsContexts(self._server(authority))
        client = TlsContexts(
            ClientTls(str(leaf.certificate), str(leaf.key), str(authority.certificate))
        )
        options = RemoteOptions(tls=client)
        async with remote(listening(TlsRoles(["writer"]), server), options) as port:
            if lets_in:
                await stored(port)
            else:
                with pytest.raises(UnauthorizedAccess):
                    await stored(port)

    def _server(self, authority: Authority) -> ServerTls:
        leaf = authority.server()
        return ServerTls(str(leaf.certificate), str(leaf.key), str(authority.certificate))

    async def test_no_certificate(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        server = TlsContexts(self._server(authority))
        trusting = TlsContexts(ClientTls(trust_certs_file=str(authority.certificate)))
        for tls in (trusting, None):
            async with remote(
                listening(TlsRoles(["writer"]), server), RemoteOptions(tls=tls)
            ) as port:
                with pytest.raises(UnauthorizedAccess):
                    await stored(port)

    def test_odd_certificates(self, tmp_path: Path) -> None:
        with pytest.raises(AuthFailed, match="parsed"):
            certificate_role(b"no certificate")
        leaf = Authority(tmp_path).client("x", units=["0:"])
        data = x509.load_pem_x509_certificate(leaf.certificate.read_bytes())
        assert certificate_role(data.public_bytes(Encoding.DER)) is None


PLUGIN = "geminga_bookie.wire._tests.auth_plugin"


def test_plugins_by_name() -> None:
    assert load_bookie_auth("", [], {}) is None
    assert load_client_auth("key", "", {}) is None
    assert isinstance(load_bookie_auth(TLS_ROLES, ["a"], {}), TlsRoles)
    found: BookieAuth | ClientAuth | None = load_bookie_auth(f"{PLUGIN}:server", [], {})
    assert isinstance(found, WordAuth)
    found = load_client_auth("key", f"{PLUGIN}:client", {})
    assert isinstance(found, WordClient)
    assert wire_auth.AUTHENTICATION_DISABLED == "AuthDisabledPlugin"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory", "is a Java class"),
        ("no_such_module:x", "can't be loaded: No module"),
        (f"{PLUGIN}:none", "can't be loaded"),
    ],
)
def test_other_names_are_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^bookieAuthProviderFactoryClass: .*{why}"):
        load_bookie_auth(name, ["a"], {})
    with pytest.raises(ConfigError, match=f"^clientAuth: .*{why}"):
        load_client_auth("clientAuth", name, {})


def test_roles_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"^authorizedRoles: must be set"):
        load_bookie_auth(TLS_ROLES, [], {})
