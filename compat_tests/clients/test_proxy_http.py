"""The proxy's web ports before our broker and before Apache's: the admin API (spec PX-06)."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2 as httpx
import pulsar
import pytest

from compat_tests.clients.conftest import eventually
from compat_tests.clients.test_rest import all_wrong
from compat_tests.processes import ServerProcess, start_geminga
from compat_tests.secured import Secured, start_proxy
from compat_tests.websocket import gate as gate
from geminga_proxy.http._tests.test_client_side import REFUSED, read
from geminga_proxy.http.errors import BadRequest

MIB = 1 << 20
STREAMED_BYTES = 200 * MIB
RSS_GROWTH_MAX_BYTES = 24 * MIB


def open_proxy(folder: Path, web_url: str, **settings: str) -> ServerProcess:
    return start_proxy(
        folder,
        {"brokerServiceURL": "pulsar://127.0.0.1:1", "brokerWebServiceURL": web_url, **settings},
        log_level="INFO",
    )


@pytest.fixture(scope="module")
def open_to_all(
    server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A proxy before the server without authentication."""
    proxy = open_proxy(tmp_path_factory.mktemp("proxy"), server.web_url)
    yield proxy
    assert proxy.stop() == 0, proxy.log_tail()


def test_admin_calls_go_through(open_to_all: ServerProcess) -> None:
    assert all_wrong(open_to_all.web_url, but=("/metrics", "/status.html")) == []


def raw(url: str, data: bytes) -> bytes:
    import socket

    host, _, port = url.partition("://")[2].rpartition(":")
    found = b""
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(data)
        while piece := connection.recv(65536):
            found += piece
    return found


def has_valid_head(data: bytes) -> bool:
    head, end, _ = data.partition(b"\r\n\r\n")
    try:
        return bool(read([head + end], ends=False))
    except BadRequest:
        return False


def test_nothing_is_smuggled(open_to_all: ServerProcess) -> None:
    tenant = f"smuggled{uuid.uuid4().hex[:8]}"
    body = b'{"adminRoles":[],"allowedClusters":["standalone"]}'
    hidden = (
        b"PUT /admin/v2/tenants/%b HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (tenant.encode(), len(body), body)
    )
    for name, data in REFUSED.items():
        answer = raw(open_to_all.web_url, data + hidden)
        refusals = [b"HTTP/1.1 400 ", b"HTTP/1.1 505 "]
        if has_valid_head(data):
            # A server that answers before it has read the body leaves nothing to refuse it with:
            # Apache's knows no such path, ours allows only GET for it.
            refusals += [b"HTTP/1.1 404 ", b"HTTP/1.1 405 "]
        assert answer.startswith(tuple(refusals)), (name, answer[:100])
        assert answer.count(b"HTTP/1.1 ") == 1, name
    tenants = httpx.get(f"{open_to_all.web_url}/admin/v2/tenants", timeout=60).json()
    assert tenant not in tenants
    assert httpx.get(f"{open_to_all.web_url}/metrics", timeout=60).status_code == 200


class _Streams(BaseHTTPRequestHandler):
    """Sends and takes more than anyone should hold."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        piece = b"x" * MIB
        for _ in range(STREAMED_BYTES // MIB):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def do_PUT(self) -> None:
        left = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, MIB)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.alone
@pytest.mark.slow
def test_large_bodies_leave_memory_flat(tmp_path: Path) -> None:
    broker = ThreadingHTTPServer(("127.0.0.1", 0), _Streams)
    threading.Thread(target=broker.serve_forever, daemon=True).start()
    proxy = open_proxy(tmp_path, f"http://127.0.0.1:{broker.server_port}")
    connection = http.client.HTTPConnection(proxy.web_url.removeprefix("http://"), timeout=60)
    try:
        connection.request("GET", "/warm", headers={"Connection": "close"})
        connection.getresponse().read(MIB)
        connection.close()
        before = proxy.rss_bytes()
        connection.request("GET", "/down")
        answer = connection.getresponse()
        got = 0
        while piece := answer.read(MIB):
            got += len(piece)
            if got < 20 * MIB:
                time.sleep(0.02)  # slower than the broker for a while
        assert got == STREAMED_BYTES
        pieces = (b"y" * MIB for _ in range(STREAMED_BYTES // MIB))
        connection.request("PUT", "/up", pieces, {"Content-Length": str(STREAMED_BYTES)})
        assert connection.getresponse().status == 204
        assert proxy.rss_peak_bytes() - before < RSS_GROWTH_MAX_BYTES
    finally:
        connection.close()
        proxy.kill()
        broker.shutdown()
        broker.server_close()


def test_a_killed_broker_is_told_and_the_next_one_asked(tmp_path: Path) -> None:
    brokers = [start_geminga(tmp_path / f"data{n}") for n in range(2)]
    hosts = ",".join(broker.web_url.removeprefix("http://") for broker in brokers)
    proxy = open_proxy(tmp_path / "proxy", f"http://{hosts}")
    try:
        url = f"{proxy.web_url}/admin/v2/clusters"
        with httpx.Client(timeout=60) as client:
            assert [client.get(url).status_code for _ in range(4)] == [200] * 4
            brokers[0].kill()
            assert [client.get(url).status_code for _ in range(4)] == [200] * 4
            brokers[1].kill()
            answer = client.get(url)
            assert (answer.status_code, answer.json()) == (
                502,
                {"reason": "No broker can be reached now"},
            )
        assert httpx.get(f"{proxy.web_url}/status.html", timeout=60).text == "OK"
    finally:
        for process in (*brokers, proxy):
            process.kill()


# ---- with authentication ----


def call(
    gate: Secured, path: str, role: str | None, *, by: str = "token", **headers: str
) -> httpx.Response:
    """A GET through the proxy's port with TLS."""
    keys = gate.keys
    context = ssl.create_default_context(cafile=keys.ca)
    if role is not None and by == "token":
        headers["Authorization"] = f"Bearer {keys.token(role)}"
    elif role is not None and by == "basic":
        pair = f"{role}:{keys.passwords[role]}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    elif role is not None:
        context.load_cert_chain(*map(str, keys.certificates[role]))
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.get(gate.proxy.web_url_tls + path, headers=named, verify=context, timeout=60)


TOPICS = "/admin/v2/persistent/public/default"


@pytest.mark.parametrize("by", ["token", "basic", "tls"])
def test_roles_keep_their_rights(gate: Secured, by: str) -> None:
    assert call(gate, TOPICS, "alice", by=by).status_code == 200
    assert call(gate, "/admin/v2/tenants", "admin", by=by).status_code == 200
    for path in (TOPICS, "/admin/v2/tenants"):
        assert call(gate, path, "mallory", by=by).status_code in (401, 403)
    assert call(gate, "/admin/v2/tenants", "alice", by=by).status_code in (401, 403)
    # Nobody speaks for somebody else but the proxy.
    spoofed = call(gate, "/admin/v2/tenants", "mallory", by=by, X_Original_Principal="admin")
    assert spoofed.status_code in (401, 403)
    assert call(gate, TOPICS, None).status_code == 401


def test_tokens_that_are_none(gate: Secured) -> None:
    expired = gate.keys.token("alice", -5)
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    for token in (expired, expired[:-3], none + ".e30.", "x" * 7000, "x"):
        answer = call(gate, TOPICS, None, Authorization=f"Bearer {token}")
        assert answer.status_code == 401
        assert answer.json() == {"reason": "Authentication required"}


def test_lookups_over_http(gate: Secured) -> None:
    path = gate.topic("lookup").replace("://", "/")
    answer = call(gate, f"/lookup/v2/topic/{path}", "alice")
    assert answer.status_code == 200
    assert answer.json()["brokerUrlTls"] == gate.broker.service_url_tls


def test_a_certificate_alone_opens_no_websocket_through_the_proxy(gate: Secured) -> None:
    """Apache's service would take the proxy's role for the client's."""
    path = gate.topic("certificate").replace("://", "/")
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    answer = call(gate, f"/ws/v2/producer/{path}", "mallory", by="tls", **headers)
    assert answer.status_code == 403
    assert "token" in answer.json()["reason"]


def test_official_client_looks_up_over_http_through_the_proxy(gate: Secured) -> None:
    """`http://` as a service URL: lookups by REST through the proxy, the rest at the broker."""
    client = gate.python_client(gate.proxy.web_url, "token")
    try:
        topic = gate.topic("http")
        consumer = client.subscribe(topic, "s")
        client.create_producer(topic).send(b"x")
        assert consumer.receive(60_000).data() == b"x"
    except pulsar.PulsarException as error:
        pytest.fail(str(error))
    finally:
        client.close()


def test_the_proxys_own_token_is_not_given_away(gate: Secured) -> None:
    """Neither echoed nor sent along with a redirect, however the page is spelled."""
    own = gate.keys.token("proxy")
    mine = f"Bearer {gate.keys.token('mallory')}"
    context = ssl.create_default_context(cafile=gate.keys.ca)
    paths = (TOPICS, "/%6detrics/", "//metrics/", "/metrics;x/", "/admin/..;/metrics/", "/metrics/")
    with httpx.Client(verify=context, timeout=60) as client:
        for path in paths:
            for method in ("TRACE", "TRACK", "trace", "GET", "OPTIONS"):
                url = gate.proxy.web_url_tls + path
                headers = {
                    "Authorization": mine,
                    "Host": "evil.example:1",
                    "X-Forwarded-Host": "evil.example:1",
                    "Forwarded": "host=evil.example:1",
                }
                answer = client.request(method, url, headers=headers, follow_redirects=False)
                assert own not in answer.text
                assert "evil.example" not in answer.headers.get("location", "")
                if method.upper() in ("TRACE", "TRACK"):
                    assert answer.status_code == 405
                elif path != "/metrics/":
                    assert "pulsar_topics_count" not in answer.text


def test_json_is_what_the_broker_said(gate: Secured) -> None:
    path = f"{TOPICS}?x=%20%2F"
    direct = httpx.get(
        gate.broker.web_url + path,
        headers={"Authorization": f"Bearer {gate.keys.token('alice')}"},
        timeout=60,
    )
    through = call(gate, path, "alice")
    assert sorted(json.loads(through.text)) == sorted(json.loads(direct.text))


def test_no_secret_is_logged(gate: Secured) -> None:
    """Runs last: what is shown here, and what the other tests used, stands in no log of ours."""
    keys, logs = gate.keys, [gate.proxy.log_path]
    if gate.kind == "geminga":
        logs.append(gate.broker.log_path)
    for by in ("token", "basic", "tls"):
        assert call(gate, TOPICS, "alice", by=by).status_code == 200
    assert call(gate, TOPICS, "mallory").status_code in (401, 403)
    before = [log.stat().st_size for log in logs]
    damaged = f"Bearer {keys.token('alice')}x"
    wrong = base64.b64encode(f"bob:{keys.passwords['alice']}".encode()).decode()
    for shown in (damaged, f"Basic {wrong}"):
        assert call(gate, TOPICS, None, Authorization=shown).status_code == 401
    # The client may hear of it a moment before the line is written.
    eventually(lambda: logs[0].stat().st_size > before[0], "the refusals were not logged")
    for log in logs:
        text = log.read_text(errors="replace")
        assert [secret for secret in (*keys.secrets(), wrong) if secret in text] == []
