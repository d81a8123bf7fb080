"""A server with authentication, authorization and TLS, ours or Apache's, and a proxy of ours before
it. Fixtures of other tests may start more of either with the same keys.

Roles: `admin` may do all, `proxy` speaks for others, `alice` may use public/default (granted over
REST), `mallory` is known and may do nothing. Each proves itself by token, by certificate or by
password.
"""

from __future__ import annotations

import base64
import json
import math
import re
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulsar
import pytest
from passlib.hash import apr_md5_crypt

import geminga
from compat_tests.apache.server import start_apache
from compat_tests.missing import APACHE, skipped_without
from compat_tests.processes import (
    ServerProcess,
    free_port,
    geminga_command,
    spawn,
    start_geminga,
    wait_until,
)
from geminga_protocol import tokens
from geminga_runtime._tests.certificates import Authority, Leaf

_PACKAGE = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
PROVIDERS = ",".join(_PACKAGE + name for name in ("Token", "Tls", "Basic"))
TOKEN_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
ROLES = ("admin", "proxy", "alice", "mallory")
METHODS = ("token", "tls", "basic")
_READY = re.compile(r"^ready in (?P<seconds>[0-9.]+) s: (?P<urls>.*)\n", re.MULTILINE)


class Keys:
    """All secrets of one set-up, in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority = Authority(folder / "ca", with_rsa=True)
        self.server: Leaf = self.authority.server()
        self.secret = secrets.token_bytes(32)
        self.secret_file = folder / "secret.key"
        self.secret_file.write_bytes(self.secret)
        self.certificates = {role: self.authority.client(role) for role in ROLES}
        self.passwords = {role: secrets.token_hex(12) for role in ROLES}
        self.password_file = folder / "users.htpasswd"
        self.password_file.write_text(
            "".join(f"{role}:{apr_md5_crypt.hash(self.passwords[role])}\n" for role in ROLES)
        )
        self.made: list[str] = []
        """Every token that was handed out."""

    @property
    def ca(self) -> str:
        """Path of the authority's certificate."""
        return str(self.authority.certificate)

    def token(self, role: str, lasts_s: float | None = None) -> str:
        """A token of a role, for so long or for ever."""
        expires = None if lasts_s is None else math.ceil(time.time() + lasts_s)
        made = tokens.create(self.secret, role, expires_at_s=expires)
        self.made.append(made)
        return made

    def secrets(self) -> list[str]:
        """All that no log may hold."""
        shown = [base64.b64encode(self.secret).decode(), *self.passwords.values(), *self.made]
        pairs = [f"{role}:{password}" for role, password in self.passwords.items()]
        return shown + [base64.b64encode(pair.encode()).decode() for pair in pairs]

    def server_settings(self) -> dict[str, str]:
        """Certificates and authentication, for broker and proxy."""
        return {
            "authenticationEnabled": "true",
            "authenticationProviders": PROVIDERS,
            "authenticationRefreshCheckSeconds": "1",
            "tokenSecretKey": self.secret_file.as_uri(),
            "basicAuthConf": self.password_file.as_uri(),
            "tlsCertificateFilePath": str(self.server.certificate),
            "tlsKeyFilePath": str(self.server.key),
            "tlsTrustCertsFilePath": self.ca,
        }

    def broker_settings(self) -> dict[str, str]:
        """The same and authorization."""
        return {
            **self.server_settings(),
            "authorizationEnabled": "true",
            "superUserRoles": "admin,proxy",
            "proxyRoles": "proxy",
        }

    def proxy_settings(self, broker: ServerProcess) -> dict[str, str]:
        """A proxy that speaks to the broker by TLS."""
        return {
            **self.server_settings(),
            "brokerServiceURL": broker.service_url,
            "brokerServiceURLTLS": broker.service_url_tls,
            "brokerWebServiceURL": broker.web_url,
            "brokerWebServiceURLTLS": broker.web_url_tls,
            "tlsEnabledWithBroker": "true",
            "brokerClientTrustCertsFilePath": self.ca,
            "brokerClientAuthenticationPlugin": TOKEN_PLUGIN,
            "brokerClientAuthenticationParameters": f"token:{self.token('proxy')}",
            "proxyDrainSeconds": "1",
        }


def start_broker(
    kind: str,
    folder: Path,
    keys: Keys,
    settings: Mapping[str, str] | None = None,
    *,
    log_level: str = "DEBUG",
) -> ServerProcess:
    """A broker with the keys, `geminga` or `apache`; alice has her grants. Skips without Java."""
    every = {**keys.broker_settings(), **(settings or {})}
    if kind == "apache":
        ports = free_port(), free_port()
        every |= {
            "brokerServicePortTls": str(ports[0]),
            "webServicePortTls": str(ports[1]),
            "brokerClientAuthenticationPlugin": TOKEN_PLUGIN,
            "brokerClientAuthenticationParameters": f"token:{keys.token('admin')}",
        }
        with skipped_without(APACHE):
            server = start_apache(folder / "work", settings=every, wait_ready=False)
        server.service_url_tls = f"pulsar+ssl://127.0.0.1:{ports[0]}"
        server.web_url_tls = f"https://127.0.0.1:{ports[1]}"
    else:
        every |= {"brokerServicePortTls": "0", "webServicePortTls": "0"}
        folder.mkdir(parents=True, exist_ok=True)
        server = start_geminga(folder / "data", settings=every, options=["--log-level", log_level])
    path = "/admin/v2/namespaces/public/default/permissions/alice"

    def granted() -> bool:
        try:
            admin(server.web_url, keys, "POST", path, ["produce", "consume"])
        except OSError:
            return False
        return True

    try:
        wait_until(granted, server.process, server.log_path, timeout_s=200, poll_s=0.2)
    except BaseException:
        server.kill()
        raise
    return server


def admin(
    web_url: str, keys: Keys, method: str, path: str, body: object = None, role: str = "admin"
) -> Any:
    """A request to the REST API with a role's token. Raises URLError."""
    request = urllib.request.Request(
        web_url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Content-Type": "application/json",
            "Authorization": f"Bearer {keys.token(role)}",
        },
    )
    context = ssl.create_default_context(cafile=keys.ca) if web_url.startswith("https") else None
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def start_proxy(
    folder: Path, settings: Mapping[str, str], *, log_level: str = "DEBUG", timeout_s: float = 60
) -> ServerProcess:
    """`geminga proxy` with settings of Apache's proxy.conf, on free ports unless they name some.

    Its output goes to `proxy.log` in the folder. Raises StartError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ports = {"servicePort": "0", "webServicePort": "0", "bindAddress": "127.0.0.1"}
    if settings.get("tlsCertificateFilePath"):
        ports |= {"servicePortTls": "0", "webServicePortTls": "0"}
    config, log_path = folder / "proxy.conf", folder / "proxy.log"
    every = {**ports, **settings}
    config.write_text("".join(f"{key}={value}\n" for key, value in every.items()))
    before = log_path.stat().st_size if log_path.exists() else 0
    command = [*geminga_command(), "proxy", "--config", str(config), "--log-level", log_level]
    process = spawn(command, log_path=log_path)
    found: list[re.Match[str]] = []

    def is_ready() -> bool:
        found[:] = _READY.finditer(log_path.read_text(errors="replace")[before:])
        return bool(found)

    try:
        wait_until(is_ready, process, log_path, timeout_s=timeout_s)
    except BaseException:
        process.kill()
        process.wait()
        raise
    urls = {url.partition("://")[0]: url for url in found[0]["urls"].split()}
    return ServerProcess(
        kind="proxy",
        process=process,
        service_url=urls.get("pulsar", ""),
        service_url_tls=urls.get("pulsar+ssl", ""),
        web_url=urls.get("http", ""),
        web_url_tls=urls.get("https", ""),
        data_dir=folder,
        log_path=log_path,
        ready_s=float(found[0]["seconds"]),
    )


@dataclass
class Secured:
    """A broker with keys, and the proxy before it."""

    kind: str
    keys: Keys
    broker: ServerProcess
    proxy: ServerProcess
    folder: Path
    _serial: int = field(default=0, repr=False)

    def topic(self, about: str) -> str:
        """A fresh name in public/default."""
        self._serial += 1
        return f"persistent://public/default/{about}-{time.time_ns()}-{self._serial}"

    def sdk_options(self, method: str, role: str = "alice") -> dict[str, Any]:
        """For `geminga.connect`."""
        keys = self.keys
        who: geminga.Authentication = geminga.AuthenticationToken(keys.token(role))
        if method == "tls":
            who = geminga.AuthenticationTls(*keys.certificates[role])
        elif method == "basic":
            who = geminga.AuthenticationBasic(role, keys.passwords[role])
        return {"authentication": who, "tls_trust_certs_file_path": keys.ca}

    def python_client(self, url: str, method: str, role: str = "alice") -> pulsar.Client:
        """The official client; close it."""
        keys = self.keys
        who: Any = pulsar.AuthenticationToken(keys.token(role))
        if method == "tls":
            who = pulsar.AuthenticationTLS(*map(str, keys.certificates[role]))
        elif method == "basic":
            who = pulsar.AuthenticationBasic(role, keys.passwords[role])
        return pulsar.Client(
            url,
            authentication=who,
            tls_trust_certs_file_path=keys.ca,
            tls_validate_hostname=True,
            operation_timeout_seconds=30,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )

    def java_arguments(self, url: str, method: str, role: str = "alice") -> list[str]:
        """URL, method and two words of credentials for our Java programs."""
        keys = self.keys
        words = {
            "token": [keys.token(role), "-"],
            "tls": list(map(str, keys.certificates[role])),
            "basic": [role, keys.passwords[role]],
        }
        return [url, method, *words[method]]

    def proxy_url(self, method: str) -> str:
        """Certificates need TLS; passwords and tokens are tried without it."""
        return self.proxy.service_url_tls if method == "tls" else self.proxy.service_url

    def stop(self) -> None:
        """End both."""
        self.proxy.kill()
        self.broker.kill()


def start_secured(
    kind: str,
    folder: Path,
    *,
    broker_settings: Mapping[str, str] | None = None,
    proxy_settings: Mapping[str, str] | None = None,
) -> Secured:
    """Both, with keys of their own."""
    keys = Keys(folder / "keys")
    broker = start_broker(kind, folder / "broker", keys, broker_settings)
    try:
        settings = {**keys.proxy_settings(broker), **(proxy_settings or {})}
        proxy = start_proxy(folder / "proxy", settings)
    except BaseException:
        broker.kill()
        raise
    return Secured(kind, keys, broker, proxy, folder)


BOTH = ["geminga", pytest.param("apache", marks=[pytest.mark.java])]


@pytest.fixture(scope="session", params=BOTH)
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """Our proxy before our broker and before Apache's, with authentication all the way."""
    running = start_secured(request.param, tmp_path_factory.mktemp(f"secured-{request.param}"))
    yield running
    running.stop()
