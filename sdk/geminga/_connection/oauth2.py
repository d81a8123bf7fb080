"""OAuth 2.0 client credentials (spec SDK-43; RFC 6749, 4.4; AuthenticationOAuth2 of the official
clients).
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlencode, urlsplit

import trio

from geminga._connection.authentication import Authentication
from geminga.errors import (
    AuthenticationError,
    ConnectionFailedError,
    InvalidArgumentError,
    TlsError,
)
from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed, ConnectionLost, TlsRefused
from geminga_runtime.host_port import host_port
from geminga_runtime.http.get import BadHttpAnswer, HttpAnswer, get, post
from geminga_runtime.tls import ClientTls, TlsConfigError, TlsContexts

logger = logging.getLogger("geminga")

REQUEST_TIMEOUT_S = 10.0
RENEW_AT = 0.9
"""Share of a token's life after which a new one is fetched."""
FRESH_S = 5.0
"""A newer token isn't fetched again, even if many connections are challenged at once."""
LIFE_UNKNOWN_S = 300.0
"""Life of a token if the response has none."""
FILE_BYTES_MAX = 256 * 1024
METADATA_PATH = "/.well-known/openid-configuration"


class _Token(NamedTuple):
    text: str
    fetched_s: float
    renew_s: float


class _Credentials(NamedTuple):
    client_id: str
    client_secret: str

    def __repr__(self) -> str:
        return f"<_Credentials of {self.client_id!r}>"


class _Place(NamedTuple):
    """The parts of an http or https URL."""

    is_secure: bool
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        return host_port(self.host, self.port)


class AuthenticationOAuth2(Authentication):
    """A token of an authorization server, fetched with client credentials, cached until a tenth of
    its life is left, and renewed at the broker's challenge.

    `issuer_url` is the server's; its token endpoint is read from
    `{issuer_url}/.well-known/openid-configuration`. The credentials are either `client_id` and
    `client_secret`, or `private_key`: the path or `file:` URL of a JSON file with them, as for the
    official clients, or a `data:application/json;base64,...` URL. The file is reread for each
    token. Without `trust_certs_file_path` the system's authorities are trusted.

    `data` raises AuthenticationError if the credentials are refused, and ConnectionFailedError if
    the server is unreachable.
    """

    def __init__(
        self,
        issuer_url: str,
        private_key: str | os.PathLike[str] | None = None,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        audience: str | None = None,
        scope: str | None = None,
        trust_certs_file_path: str | None = None,
    ) -> None:
        super().__init__("token")
        self._issuer = _place(issuer_url, "issuer_url")
        self._private_key = None if private_key is None else os.fspath(private_key)
        self._given: _Credentials | None = None
        if private_key is None:
            for name, value in (("client_id", client_id), ("client_secret", client_secret)):
                if not isinstance(value, str) or not value:
                    raise InvalidArgumentError(f"{name} must be a text, without a private_key")
            self._given = _Credentials(str(client_id), str(client_secret))
        elif client_id is not None or client_secret is not None:
            raise InvalidArgumentError("private_key: conflicts with client_id and client_secret")
        self._wishes = {
            name: value for name, value in (("audience", audience), ("scope", scope)) if value
        }
        self._trust = ClientTls(trust_certs_file=trust_certs_file_path or "")
        self._token: _Token | None = None
        self._clock = time.monotonic
        self._lock: trio.Lock | None = None
        if not self._issuer.is_secure:
            logger.warning("issuer_url is not https: the client's secret is sent unencrypted")

    async def data(self) -> bytes:
        """The cached token, or a new one."""
        return (await self._current()).encode()

    async def renewed(self) -> bytes:
        """A new token, unless the cached one was just fetched."""
        return (await self._current(must_be_new=True)).encode()

    async def http_headers(self) -> dict[str, str]:
        """A bearer token."""
        return {"Authorization": f"Bearer {await self._current()}"}

    async def _current(self, *, must_be_new: bool = False) -> str:
        # Created here, as it belongs to the running loop; one fetch at a time serves all.
        self._lock = self._lock or trio.Lock()
        async with self._lock:
            now_s = self._clock()
            kept = self._token
            if kept is not None:
                until_s = kept.fetched_s + FRESH_S if must_be_new else kept.renew_s
                if now_s < until_s:
                    return kept.text
            with trio.move_on_after(REQUEST_TIMEOUT_S):
                self._token = await self._fetch()
                return self._token.text
            raise ConnectionFailedError(
                f"{self._issuer.authority}: no token within {REQUEST_TIMEOUT_S:g} s"
            )

    async def _fetch(self) -> _Token:
        credentials = self._given
        if credentials is None:
            source = str(self._private_key)
            read = partial(_read_credentials, source)
            credentials = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
        path = self._issuer.target.rstrip("/") + METADATA_PATH
        found = _decoded(await self._ask(self._issuer._replace(target=path)), "token_endpoint")
        try:
            endpoint = _place(found, "token_endpoint")
        except InvalidArgumentError as error:
            raise AuthenticationError(str(error)) from error
        if self._issuer.is_secure and not endpoint.is_secure:
            raise AuthenticationError("token_endpoint is not https, although issuer_url is")
        form = {"grant_type": "client_credentials", **credentials._asdict(), **self._wishes}
        answer = await self._ask(endpoint, urlencode(form).encode())
        text = _decoded(answer, "access_token")
        if not text.isascii() or not text.isprintable() or " " in text:
            raise AuthenticationError("access_token has invalid characters")
        now_s = self._clock()
        return _Token(text, now_s, now_s + RENEW_AT * _life_s(answer))

    async def _ask(self, place: _Place, form: bytes | None = None) -> HttpAnswer:
        """Raises ConnectionFailedError (no response, or a server error), AuthenticationError."""
        try:
            tls = TlsContexts(self._trust) if place.is_secure else None
            stream = await connect(place.host, place.port, tls=tls)
            if form is None:
                answer = await get(stream, place.authority, place.target, {})
            else:
                headers = {"Content-Type": "application/x-www-form-urlencoded"}
                answer = await post(stream, place.authority, place.target, headers, form)
        except TlsConfigError as error:
            raise AuthenticationError(f"trust_certs_file_path: {error.reason}") from error
        except TlsRefused as error:
            raise TlsError(str(error)) from error
        except (ConnectFailed, ConnectionLost, BadHttpAnswer) as error:
            raise ConnectionFailedError(f"{place.authority}: {error}") from error
        if answer.status >= 500 or answer.status == 429:
            raise ConnectionFailedError(f"{place.authority}: HTTP status {answer.status}")
        if answer.status != 200:
            # The response's text may repeat the request: report its code only.
            code = _error_code(answer)
            raise AuthenticationError(f"{place.authority}: HTTP status {answer.status}{code}")
        return answer


def _place(url: object, name: str) -> _Place:
    """Raises InvalidArgumentError."""
    wrong = f"{name} must be an http or https URL, not {url!r}"
    if not isinstance(url, str):
        raise InvalidArgumentError(wrong)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidArgumentError(wrong) from None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        raise InvalidArgumentError(wrong)
    is_secure = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Place(is_secure, host, port or (443 if is_secure else 80), target)


def _object(data: bytes) -> Mapping[str, object]:
    try:
        found: object = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _decoded(answer: HttpAnswer, name: str) -> str:
    value = _object(answer.body).get(name)
    if not isinstance(value, str) or not value:
        raise AuthenticationError(f"the authorization server's answer has no {name}")
    return value


def _life_s(answer: HttpAnswer) -> float:
    life = _object(answer.body).get("expires_in")
    if isinstance(life, bool) or not isinstance(life, int | float) or life <= 0:
        return LIFE_UNKNOWN_S
    return float(life)


def _error_code(answer: HttpAnswer) -> str:
    code = _object(answer.body).get("error")
    if isinstance(code, str) and code.isascii() and code.replace("_", "").isalnum():
        return f" ({code[:64]})"
    return ""


def _read_credentials(source: str) -> _Credentials:
    """In a worker thread. Raises AuthenticationError."""
    if source.startswith("data:"):
        head, comma, text = source.partition(",")
        try:
            data = base64.b64decode(text) if head.endswith(";base64") else unquote(text).encode()
        except (binascii.Error, ValueError):
            data = b""
        if not comma or not data:
            raise AuthenticationError("private_key: its data: URL can't be read")
    else:
        path = Path(source.removeprefix("file://").removeprefix("file:"))
        try:
            with path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX)
        except OSError as error:
            raise AuthenticationError(f"private_key can't be read: {error}") from error
    found = _object(data)
    if found.get("type", "client_credentials") != "client_credentials":
        raise AuthenticationError("private_key: its type is not client_credentials")
    values = []
    for name in _Credentials._fields:
        value = found.get(name)
        if not isinstance(value, str) or not value:
            raise AuthenticationError(f"private_key: it has no {name}")
        values.append(value)
    return _Credentials(*values)
