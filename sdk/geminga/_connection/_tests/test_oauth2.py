from __future__ import annotations

import base64
import json
import logging
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import trio

import geminga
from geminga import AuthenticationOAuth2
from geminga._connection.oauth2 import FRESH_S, METADATA_PATH
from geminga._tests.fake_broker import fake_broker
from geminga_runtime._tests.certificates import Authority
from geminga_runtime.server import Bound, serve
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import ServerTls, TlsContexts

HOST = "127.0.0.1"
SECRET = "cl13nt-s3cret"
GIVEN = {"client_id": "me", "client_secret": SECRET}


class Server:
    """An authorization server: tokens `t0k3n-1`, `t0k3n-2` and so on."""

    def __init__(self) -> None:
        self.forms: list[dict[str, list[str]]] = []
        self.status = 200
        self.answer: dict[str, Any] = {"expires_in": 100}
        self.metadata: dict[str, Any] = {}
        self.url = ""

    async def handle(self, stream: FramedStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.run_writer)
            head, _, form = (await stream.receive()).partition(b"\r\n\r\n")
            status, answer = self.status, self.answer
            if head.startswith(f"GET /realm{METADATA_PATH} ".encode()):
                status, answer = 200, {"token_endpoint": f"{self.url}/get?x=1", **self.metadata}
            else:
                assert head.startswith(b"POST /get?x=1 HTTP/1.1\r\n")
                assert b"\r\nContent-Type: application/x-www-form-urlencoded\r\n" in head
                self.forms.append(parse_qs(form.decode()))
                answer = {"access_token": f"t0k3n-{len(self.forms)}", **answer}
            body = json.dumps(answer).encode()
            stream.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            stream.write(body)
            await stream.flush()
            stream.abort()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
async def server(nursery: trio.Nursery, authority: Authority) -> Server:
    made, leaf = Server(), authority.server()
    tls = TlsContexts(ServerTls(str(leaf.certificate), str(leaf.key)))
    bound: list[Bound] = await nursery.start(
        partial(serve, made.handle, host=HOST, port=0, tls=tls)
    )
    made.url = f"https://{HOST}:{bound[0].port}"
    return made


def who_is(server: Server, authority: Authority, **options: Any) -> AuthenticationOAuth2:
    made = AuthenticationOAuth2(
        f"{server.url}/realm/",
        trust_certs_file_path=str(authority.certificate),
        **(options or GIVEN),
    )
    made.now_s = 0.0
    made._clock = lambda: made.now_s
    return made


async def test_fetched_kept_and_renewed(
    server: Server, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    who = who_is(server, authority, **GIVEN, audience="urn:pulsar", scope="a b")
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(who.data)
    assert await who.data() == b"t0k3n-1"
    assert await who.http_headers() == {"Authorization": "Bearer t0k3n-1"}
    assert who.method_name == "token"
    assert server.forms == [
        {
            "grant_type": ["client_credentials"],
            "client_id": ["me"],
            "client_secret": [SECRET],
            "audience": ["urn:pulsar"],
            "scope": ["a b"],
        }
    ]
    who.now_s = 89.9
    assert await who.data() == b"t0k3n-1"
    who.now_s = 90.0
    assert await who.data() == b"t0k3n-2"
    # After a challenge: a new one, but one for all connections challenged at the same moment.
    who.now_s = 91.0
    assert await who.renewed() == b"t0k3n-2"
    who.now_s = 90.0 + FRESH_S
    assert await who.renewed() == b"t0k3n-3"
    assert await who.renewed() == await who.data() == b"t0k3n-3"
    assert SECRET not in repr(who) + repr(vars(who)) + caplog.text
    assert "t0k3n" not in caplog.text


@pytest.mark.parametrize("how", ["path", "text", "url", "data", "plain data"])
async def test_files_of_credentials(
    server: Server, authority: Authority, tmp_path: Path, how: str
) -> None:
    text = json.dumps({"type": "client_credentials", "client_email": "x", **GIVEN})
    file = tmp_path / "key.json"
    file.write_text(text)
    key = {
        "path": file,
        "text": str(file),
        "url": file.as_uri(),
        "data": "data:application/json;base64," + base64.b64encode(text.encode()).decode(),
        "plain data": "data:application/json," + text,
    }[how]
    assert await who_is(server, authority, private_key=key).data() == b"t0k3n-1"
    assert server.forms[0]["client_secret"] == [SECRET]


async def test_what_the_server_refuses(server: Server, authority: Authority) -> None:
    async def fails(kind: type[geminga.GemingaError], text: str) -> None:
        with pytest.raises(kind, match=text) as caught:
            await who_is(server, authority).data()
        assert SECRET not in str(caught.value) + repr(caught.value.__cause__)

    server.status, server.answer = 401, {"error": "invalid_client", "error_description": SECRET}
    await fails(geminga.AuthenticationError, r"401 \(invalid_client\)")
    server.answer = {"error": f"no {SECRET}"}
    await fails(geminga.AuthenticationError, "401$")
    server.status = 503
    await fails(geminga.ConnectionFailedError, "503")
    server.status = 200
    for wrong in ("", 5, "two words"):
        server.answer = {"access_token": wrong}
        await fails(geminga.AuthenticationError, "access_token")
    server.metadata = {"token_endpoint": "http://127.0.0.1:1/"}
    await fails(geminga.AuthenticationError, "not https")
    server.metadata = {"token_endpoint": "gopher:"}
    await fails(geminga.AuthenticationError, "token_endpoint must be")
    with pytest.raises(geminga.TlsError):
        await AuthenticationOAuth2(server.url, **GIVEN).data()
    with pytest.raises(geminga.ConnectionFailedError):
        await AuthenticationOAuth2("https://127.0.0.1:1", **GIVEN).data()


async def test_files_that_can_not_be_used(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "key.json"
    for text, reason in (
        ("{", "no client_id"),
        (json.dumps({"client_id": "me"}), "no client_secret"),
        (json.dumps({"type": "password", **GIVEN}), "type is not"),
    ):
        file.write_text(text)
        with pytest.raises(geminga.AuthenticationError, match=reason):
            await who_is(server, authority, private_key=file).data()
    for wrong in ("/none", "data:application/json;base64,!", "data:x"):
        with pytest.raises(geminga.AuthenticationError, match="private_key"):
            await who_is(server, authority, private_key=wrong).data()


def test_wrong_arguments() -> None:
    for wrong, name in (
        ({"issuer_url": "ftp://x"}, "issuer_url"),
        ({"issuer_url": 5}, "issuer_url"),
        ({"issuer_url": "https://x"}, "client_id"),
        ({"issuer_url": "https://x", "client_id": "me"}, "client_secret"),
        ({"issuer_url": "https://x", "private_key": "/k", **GIVEN}, "private_key"),
    ):
        with pytest.raises(geminga.InvalidArgumentError, match=name) as caught:
            AuthenticationOAuth2(**wrong)
        assert SECRET not in str(caught.value)


async def test_a_broker_that_asks_again(server: Server, authority: Authority) -> None:
    who = who_is(server, authority)
    async with fake_broker() as broker, broker.client(authentication=who) as client:
        producer = await client.create_producer("t")
        who.now_s = 50.0
        broker.sessions[0].challenge()
        with trio.fail_after(60):
            while len(broker.auth) < 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
        await producer.send(b"still here")
        assert broker.auth == [("token", b"t0k3n-1"), ("token", b"t0k3n-2")]
