"""Client authentication (spec SDK-43; AuthenticationToken, -Basic, -Tls and -OAuth2 of the official
clients).

Secrets are read at each connection and at each challenge of the broker (PIP-30), so tokens may be
renewed while the client runs. No repr, message or log of the SDK contains them.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from geminga._connection.authentication import Authentication as Authentication
from geminga._connection.authentication import check_authentication as check_authentication
from geminga._connection.oauth2 import AuthenticationOAuth2 as AuthenticationOAuth2
from geminga.errors import AuthenticationError, InvalidArgumentError

_log = logging.getLogger(__name__)

TOKEN_BYTES_MAX = 256 * 1024
"""Bound of the bytes read from a token's file."""


class AuthenticationToken(Authentication):
    """A token, for example a JSON web token.

    `token` is the token itself, also written `token:...`; the path of a file that has it, as a Path
    or written `file:///...`; `env:NAME`, a variable of the environment; or a function that returns
    it. Files are read and functions called in a worker thread, each time that the token is needed.
    """

    def __init__(self, token: str | os.PathLike[str] | Callable[[], str]) -> None:
        super().__init__("token")
        self._read: Callable[[], str]
        if isinstance(token, str) and not token.startswith(("file:", "env:")):
            text = _clean(token.removeprefix("token:"))
            self._read = lambda: text
            self._is_quick = True
            return
        self._is_quick = False
        if isinstance(token, str) and token.startswith("env:"):
            variable = token.removeprefix("env:")
            self._read = lambda: _read_variable(variable)
        elif isinstance(token, str):
            self._read = _TokenFile(Path(token.removeprefix("file:").removeprefix("//"))).read
        elif isinstance(token, os.PathLike):
            self._read = _TokenFile(Path(token)).read
        elif callable(token):
            self._read = token
        else:
            raise InvalidArgumentError(
                f"token must be a text, a path or a function, not {type(token).__name__}"
            )

    async def data(self) -> bytes:
        """The token. Raises AuthenticationError if it can't be obtained."""
        return (await self._token()).encode()

    async def http_headers(self) -> dict[str, str]:
        """A bearer token."""
        return {"Authorization": f"Bearer {await self._token()}"}

    async def _token(self) -> str:
        if self._is_quick:
            await trio.lowlevel.checkpoint()
            return self._read()
        try:
            found = await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)
        except AuthenticationError:
            raise
        except Exception as error:
            # The error's text may contain the secret: report its type only.
            kind = type(error).__name__
            raise AuthenticationError(f"the token's function raised {kind}") from None
        if not isinstance(found, str):
            raise AuthenticationError(
                f"the token's function must return a text, not {type(found).__name__}"
            )
        try:
            return _clean(found)
        except InvalidArgumentError as error:
            raise AuthenticationError(str(error)) from None


class AuthenticationBasic(Authentication):
    """User name and password, for brokers with AuthenticationProviderBasic."""

    def __init__(self, username: str, password: str, method: str = "basic") -> None:
        for name, value in (("username", username), ("password", password), ("method", method)):
            if not isinstance(value, str):
                raise InvalidArgumentError(f"{name} must be a text, not {type(value).__name__}")
        if not username or ":" in username:
            raise InvalidArgumentError("username must not be empty, nor have a colon")
        super().__init__(method)
        self._joined = f"{username}:{password}".encode()

    async def data(self) -> bytes:
        """`username:password`."""
        await trio.lowlevel.checkpoint()
        return self._joined

    async def http_headers(self) -> dict[str, str]:
        """HTTP basic authentication."""
        await trio.lowlevel.checkpoint()
        return {"Authorization": f"Basic {base64.b64encode(self._joined).decode()}"}


class AuthenticationTls(Authentication):
    """A client certificate for TLS: brokers with AuthenticationProviderTls take its common name as
    the role. Both files are PEM, the key without a password; they are reread when they change.
    """

    def __init__(
        self, certificate_path: str | os.PathLike[str], private_key_path: str | os.PathLike[str]
    ) -> None:
        super().__init__("tls")
        for name, value in (
            ("certificate_path", certificate_path),
            ("private_key_path", private_key_path),
        ):
            if not isinstance(value, str | os.PathLike) or not os.fspath(value):
                raise InvalidArgumentError(f"{name} must be the path of a file, not {value!r}")
        self._files = os.fspath(certificate_path), os.fspath(private_key_path)

    @property
    def tls_certificate(self) -> tuple[str, str]:
        """The files."""
        return self._files


def from_config(name: str, params: str = "") -> Authentication:
    """The authentication that a client's configuration names: `name` is a class of Apache's clients
    (such as `org.apache.pulsar.client.impl.auth.AuthenticationToken`), its last part, or the short
    `token`, `basic`, `tls`, `oauth2`; `params` is the class's parameter text:

    - token: `token:...`, `file:///...`, `env:NAME`, `{"token": ...}`, or the token itself;
    - basic: `{"userId": ..., "password": ...}`;
    - tls: `tlsCertFile:...,tlsKeyFile:...`, or the same as a JSON object;
    - oauth2: `{"issuerUrl": ..., "privateKey": ..., "audience": ..., "scope": ...}`.

    Raises InvalidArgumentError, whose text contains nothing of `params`.
    """
    last = name.strip().rpartition(".")[2]
    short = last.removeprefix("Authentication").lower()
    make = _PLUGINS.get(short)
    if make is None:
        known = ", ".join(_PLUGINS)
        raise InvalidArgumentError(
            f"authentication: {name!r} is none of {known}, nor their Java classes"
        )
    return make(params.strip())


def _token_of(params: str) -> Authentication:
    if params.startswith("{"):
        return AuthenticationToken(_member(_object(params), "token"))
    return AuthenticationToken(params)


def _basic_of(params: str) -> Authentication:
    given = _object(params)
    user = "userId" if "userId" in given else "username"
    return AuthenticationBasic(_member(given, user), _member(given, "password"))


def _tls_of(params: str) -> Authentication:
    given = _object(params) if params.startswith("{") else _pairs(params)
    return AuthenticationTls(_member(given, "tlsCertFile"), _member(given, "tlsKeyFile"))


def _oauth2_of(params: str) -> Authentication:
    given = _object(params)
    kind = given.get("type", "client_credentials")
    if kind != "client_credentials":
        raise InvalidArgumentError(f"auth params: type {kind!r} is not client_credentials")
    return AuthenticationOAuth2(
        _member(given, "issuerUrl"),
        _member(given, "privateKey"),
        audience=given.get("audience"),
        scope=given.get("scope"),
        trust_certs_file_path=given.get("trustCertsFilePath"),
    )


_PLUGINS: Mapping[str, Callable[[str], Authentication]] = {
    "token": _token_of,
    "basic": _basic_of,
    "tls": _tls_of,
    "oauth2": _oauth2_of,
}


def _object(params: str) -> dict[str, str]:
    try:
        found = json.loads(params)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise InvalidArgumentError("auth params must be a JSON object of texts")
    return found


def _pairs(params: str) -> dict[str, str]:
    found = {}
    for pair in params.split(","):
        key, colon, value = pair.partition(":")
        if not colon:
            raise InvalidArgumentError("auth params must be key:value,key:value")
        found[key.strip()] = value.strip()
    return found


def _member(given: Mapping[str, str], name: str) -> str:
    if not given.get(name):
        raise InvalidArgumentError(f"auth params: {name} is missing")
    return given[name]


def _clean(token: str) -> str:
    """The token without surrounding white space. Raises InvalidArgumentError without its text."""
    token = token.strip()
    if not token:
        raise InvalidArgumentError("token is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidArgumentError("token has invalid characters")
    return token


class _TokenFile:
    """A token's file, read each time. While it is missing or incomplete, as it may be for a moment
    during a renewal, the last valid token is used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: str | None = None
        self._is_broken = False

    def read(self) -> str:
        """Raises AuthenticationError if no valid token was ever read."""
        try:
            with self._path.open(encoding="ascii", errors="replace") as file:
                found = _clean(file.read(TOKEN_BYTES_MAX))
        except (OSError, InvalidArgumentError) as error:
            if self._last is None:
                raise AuthenticationError(f"the token can't be read: {error}") from error
            if not self._is_broken:
                self._is_broken = True
                _log.warning("%s: %s; using the last valid token", self._path, error)
            return self._last
        self._last, self._is_broken = found, False
        return found


def _read_variable(name: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise AuthenticationError(f"the token can't be read: no variable {name}")
    return found
