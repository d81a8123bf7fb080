"""The REST API of `admin.url`: credentials, TLS, redirects, and errors."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from geminga_runtime._tests.certificates import Authority
from pyspark_pulsar._options._client import ClientSettings
from pyspark_pulsar._positions import LedgerSpan
from pyspark_pulsar._rest import ledgers_by_rest
from pyspark_pulsar.errors import InvalidOption, TopicMissing

TOPIC = "persistent://public/default/a b%c"
STATS = {
    "currentLedgerEntries": 3,
    "ledgers": [
        {"ledgerId": 9, "entries": 0, "size": 0},
        {"ledgerId": 4, "entries": 20, "size": 2000},
    ],
}
Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def server(
    answer: Callable[[BaseHTTPRequestHandler], Answer], tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A web server that answers so; its `host:port`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        running.socket = tls.wrap_socket(running.socket, server_side=True)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"localhost:{running.server_port}"
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def good(_: BaseHTTPRequestHandler) -> Answer:
    return 200, {}, json.dumps(STATS).encode()


def settings(url: str, **more: object) -> ClientSettings:
    return ClientSettings("pulsar://h", admin_url=url, **more)


def test_ledgers_and_the_path() -> None:
    asked = []

    def answer(handler: BaseHTTPRequestHandler) -> Answer:
        asked.append((handler.path, handler.headers.get("Authorization")))
        return good(handler)

    with server(answer) as host:
        found = ledgers_by_rest(settings(f"http://{host}/"), TOPIC)
    # The list doesn't count the entries of the ledger that is open.
    assert found == [LedgerSpan(4, 0, 19), LedgerSpan(9, 0, 2)]
    assert asked == [("/admin/v2/persistent/public/default/a%20b%25c/internalStats", None)]


@pytest.mark.parametrize(
    ("plugin", "params", "header"),
    [
        ("token", "token:abc", "Bearer abc"),
        ("basic", '{"userId": "u", "password": "p"}', "Basic dTpw"),
    ],
)
def test_credentials_go_along_and_follow_redirects_to_trusted_brokers(
    plugin: str, params: str, header: str
) -> None:
    seen = []

    def answer(handler: BaseHTTPRequestHandler) -> Answer:
        seen.append(handler.headers.get("Authorization"))
        return good(handler)

    with server(answer) as owner:
        sent_on = {"Location": f"http://{owner}/admin/v2/x"}
        with server(lambda _: (307, sent_on, b"")) as host:
            made = settings(f"http://{host}", auth_plugin=plugin, auth_params=params)
            assert len(ledgers_by_rest(made, TOPIC)) == 2
            for trusted in (owner, f"{owner[:4]}*", "other"):
                trusting = replace(made, trusted_broker_hosts=(trusted,))
                assert len(ledgers_by_rest(trusting, TOPIC)) == 2
    assert seen == [None, header, header, None]


def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with server(good, context) as host:
        url = f"https://{host}"
        trusting = settings(url, tls_trust_certs_file_path=str(authority.certificate))
        assert len(ledgers_by_rest(trusting, TOPIC)) == 2
        careless = settings(url, tls_allow_insecure_connection=True, tls_protocols=("TLSv1.3",))
        assert len(ledgers_by_rest(careless, TOPIC)) == 2
        with pytest.raises(InvalidOption) as caught:
            ledgers_by_rest(settings(url), TOPIC)
        assert caught.value.option == "admin.url"
        for option, more in (
            ("tlsTrustCertsFilePath", {"tls_trust_certs_file_path": str(tmp_path / "none.pem")}),
            ("tlsCiphers", {"tls_ciphers": ("NO_SUCH",), "tls_allow_insecure_connection": True}),
        ):
            with pytest.raises(InvalidOption) as caught:
                ledgers_by_rest(settings(url, **more), TOPIC)
            assert caught.value.option == f"pulsar.client.{option}"
        plain = {"Location": "http://127.0.0.1:1/"}
    with server(lambda _: (307, plain, b""), context) as host:
        made = settings(f"https://{host}", tls_trust_certs_file_path=str(authority.certificate))
        with pytest.raises(InvalidOption) as caught:
            ledgers_by_rest(made, TOPIC)
        assert "plain" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"", "401"),
        (500, b"oops", "500"),
        (200, b"<html>", "internalStats"),
        (200, b"{}", "internalStats"),
        (200, b'{"ledgers": 5, "currentLedgerEntries": 1}', "internalStats"),
        (200, b'{"ledgers": [5], "currentLedgerEntries": 1}', "internalStats"),
    ],
)
def test_invalid_responses(status: int, body: bytes, words: str) -> None:
    with server(lambda _: (status, {}, body)) as host, pytest.raises(InvalidOption) as caught:
        ledgers_by_rest(settings(f"http://{host}"), TOPIC)
    assert caught.value.option == "admin.url"
    assert words in str(caught.value)


def test_missing_topics_by_rest() -> None:
    with server(lambda _: (404, {}, b"")) as host, pytest.raises(TopicMissing) as caught:
        ledgers_by_rest(settings(f"http://{host}"), TOPIC)
    assert caught.value.topic == TOPIC


def test_no_response() -> None:
    with pytest.raises(InvalidOption) as caught:
        ledgers_by_rest(settings("http://127.0.0.1:1"), TOPIC)
    assert caught.value.option == "admin.url"
