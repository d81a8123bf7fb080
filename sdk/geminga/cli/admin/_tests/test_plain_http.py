"""Commands over real sockets: addresses, credentials, TLS, `client.conf`."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from geminga.auth import AuthenticationToken
from geminga.cli.admin import admin
from geminga_runtime._tests.certificates import Authority

HOST = "127.0.0.1"


class Web(ThreadingHTTPServer):
    """Answers each GET with what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), Handler)
        self.redirect_to = ""
        self.scheme = "http"
        self.seen: list[tuple[str, str | None]] = []
        """Path and Authorization."""

    @property
    def url(self) -> str:
        return f"{self.scheme}://{HOST}:{self.server_port}"

    def secure(self, authority: Authority, *, client: bool = False) -> None:
        leaf = authority.server()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(leaf.certificate, leaf.key)
        if client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authority.certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.scheme = "https"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that refuses our certificate is no error."""


class Handler(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        if self.server.redirect_to and "there" not in self.path:
            self.send_response(307)
            self.send_header("Location", f"{self.server.redirect_to}/there")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = json.dumps([f"asked {self.path}"]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def web() -> Iterator[Web]:
    yield from served(Web())


other_web = web


def served(web: Web) -> Iterator[Web]:
    thread = threading.Thread(target=lambda: web.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    yield web
    web.shutdown()
    web.server_close()
    thread.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(admin, [*arguments, "tenants", "list"], env=environment)


def test_a_call(web: Web) -> None:
    result = run("--admin-url", web.url)
    assert (result.exit_code, result.output) == (0, "asked /admin/v2/tenants\n")
    assert web.seen == [("/admin/v2/tenants", None)]


@pytest.mark.parametrize(
    ("plugin", "params", "shown"),
    [
        ("token", "token:abc", "Bearer abc"),
        ("org.apache.pulsar.client.impl.auth.AuthenticationToken", '{"token":"abc"}', "Bearer abc"),
        ("token", "env:SOME_TOKEN", "Bearer from-env"),
        (
            "org.apache.pulsar.client.impl.auth.AuthenticationBasic",
            '{"userId":"u","password":"p"}',
            "Basic " + base64.b64encode(b"u:p").decode(),
        ),
    ],
)
def test_credentials(web: Web, plugin: str, params: str, shown: str) -> None:
    options = ("--admin-url", web.url, "--auth-plugin", plugin, "--auth-params", params)
    assert run(*options, SOME_TOKEN="from-env").exit_code == 0
    assert web.seen == [("/admin/v2/tenants", shown)]


def test_a_token_s_file(web: Web, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc\n")
    params = ("--auth-plugin", "token", "--auth-params", f"file://{file}")
    assert run("--admin-url", web.url, *params).exit_code == 0
    assert web.seen[0][1] == "Bearer abc"
    file.unlink()
    result = run("--admin-url", web.url, *params)
    assert (result.exit_code, "can't be read: No such file" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("plugin", "params"),
    [("magic", "x"), ("basic", "u:p"), ("token", "a b"), ("tls", "nonsense"), ("oauth2", "{}")],
)
def test_bad_credentials_are_wrong_use_and_never_shown(web: Web, plugin: str, params: str) -> None:
    options = ("--admin-url", web.url, "--auth-plugin", plugin, "--auth-params", f"{params}secret")
    result = run(*options)
    assert result.exit_code == 2
    assert "secret" not in result.output
    assert web.seen == []


def test_the_configuration_file(web: Web, tmp_path: Path) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text(f"webServiceUrl={web.url}\nauthPlugin=token\nauthParams=token:abc\n")
    assert run("-c", str(conf)).exit_code == 0
    assert run(PULSAR_CLIENT_CONF=str(conf)).exit_code == 0
    assert run("-c", str(conf), "--auth-params", "token:other").exit_code == 0
    assert [shown for _, shown in web.seen] == ["Bearer abc", "Bearer abc", "Bearer other"]
    assert run("-c", str(tmp_path / "no.conf")).exit_code == 2


def test_nobody_is_there() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        url = f"http://{HOST}:{taken.getsockname()[1]}"
        result = run("--admin-url", url)
    assert result.exit_code == 1
    assert "Connection refused" in result.stderr


def test_the_next_host_is_asked(web: Web) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        result = run("--admin-url", f"http://{HOST}:{taken.getsockname()[1]},{web.url[7:]}")
    assert result.output == "asked /admin/v2/tenants\n"


def test_what_speaks_no_http() -> None:
    with socket.create_server((HOST, 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        result = run("--admin-url", f"http://{HOST}:{listener.getsockname()[1]}")
        thread.join()
    assert (result.exit_code, "no HTTP/1.1 answer" in result.stderr) == (1, True)


@pytest.mark.slow
def test_no_answer_in_time() -> None:
    with socket.create_server((HOST, 0)) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        result = run("--admin-url", url, "--request-timeout", "1")
    assert (result.exit_code, "within 1 s" in result.stderr) == (1, True)


def test_a_redirect_to_another_broker(web: Web, tmp_path: Path) -> None:
    for other in served(Web()):
        web.redirect_to = other.url
        token = ("--auth-plugin", "token", "--auth-params", "token:abc")
        assert run("--admin-url", web.url, *token).output == "asked /there\n"
        trusted = ("--trusted-broker-hosts", f"{HOST}:{other.server_port}")
        assert run("--admin-url", web.url, *token, *trusted).exit_code == 0
        # Another port may be another server.
        assert other.seen == [("/there", None), ("/there", "Bearer abc")]


def test_tls(web: Web, authority: Authority, tmp_path: Path) -> None:
    web.secure(authority)
    trust = ("--tls-trust-cert-path", str(authority.certificate))
    assert run("--admin-url", web.url, *trust).output == "asked /admin/v2/tenants\n"
    result = run("--admin-url", web.url)
    assert (result.exit_code, "the certificate is refused" in result.stderr) == (1, True)
    assert run("--admin-url", web.url, "--tls-allow-insecure").exit_code == 0
    result = run("--admin-url", web.url, "--tls-trust-cert-path", str(tmp_path / "no.pem"))
    assert result.exit_code == 2
    plain = web.url.replace("https", "http")
    assert run("--admin-url", plain).exit_code == 1


def test_a_client_s_certificate(web: Web, authority: Authority) -> None:
    web.secure(authority, client=True)
    leaf = authority.client("me")
    trust = ("--admin-url", web.url, "--tls-trust-cert-path", str(authority.certificate))
    files = f"tlsCertFile:{leaf.certificate},tlsKeyFile:{leaf.key}"
    assert run(*trust, "--auth-plugin", "tls", "--auth-params", files).exit_code == 0
    own = ("--tls-cert-file", str(leaf.certificate), "--tls-key-file", str(leaf.key))
    assert run(*trust, *own).exit_code == 0
    assert run(*trust).exit_code == 1


def test_a_command_imports_little(web: Web) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['geminga', 'admin', '--admin-url', '{web.url}', '--auth-plugin', 'token',"
        " '--auth-params', 'token:x', 'topics', 'list', 'a/b']\n"
        "from geminga._command import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "heavy = ('trio', 'msgspec', 'google.protobuf', 'ssl', 'importlib.metadata', 'asyncio')\n"
        "print([each for each in heavy if each in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout


def test_credentials_that_need_trio(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geminga.auth.from_config", lambda *_: AuthenticationToken("from-server"))
    options = ("--auth-plugin", "oauth2", "--auth-params", "{}")
    assert run("--admin-url", web.url, *options).output == "asked /admin/v2/tenants\n"
    assert web.seen == [("/admin/v2/tenants", "Bearer from-server")]


def test_options_that_mean_nothing_are_wrong_use(web: Web, tmp_path: Path) -> None:
    result = run("--admin-url", web.url, "--auth-params", "token:secret")
    assert result.exit_code == 2
    assert "--auth-params has no effect without --auth-plugin" in result.output
    assert "secret" not in result.output
    for wrong in ("localhost:8080", "pulsar://localhost:6650", "ftp://x"):
        result = run("--admin-url", wrong)
        assert result.exit_code == 2
        assert "--admin-url must begin with http:// or https://" in result.output
    result = run("--admin-url", "http://a:b")
    assert (result.exit_code, "--admin-url has a bad host or port" in result.output) == (2, True)
    conf = tmp_path / "client.conf"
    conf.write_text("webServiceUrl=localhost:8080\nauthParams=token:secret\n")
    result = run("-c", str(conf))
    assert (result.exit_code, "webServiceUrl must begin" in result.output) == (2, True)
    assert web.seen == []
    result = run("-c", str(conf), "--admin-url", web.url, "--auth-plugin", "token")
    assert result.exit_code == 0
    assert web.seen == [("/admin/v2/tenants", "Bearer secret")]


def test_key_stores_of_java_are_refused(web: Web, tmp_path: Path) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text(f"webServiceUrl={web.url}\nuseKeyStoreTls=true\n")
    result = run("-c", str(conf))
    assert (result.exit_code, web.seen) == (2, [])
    assert "useKeyStoreTls in " in result.output
    assert "PEM files" in result.output
