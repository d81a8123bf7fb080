"""Client authentication (spec SDK-43; AuthenticationToken, -Basic, -Tls and -OAuth2 of the official
clients).

Secrets are read at each connection and at each challenge of the broker (PIP-30), so tokens may be
renewed while the client runs. No repr, message or log of the SDK contains them.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping

import trio

from geminga._connection.auth_config import (
    clean,
    kind_of,
    login_of,
    member,
    members,
    tls_files_of,
    token_of,
    token_reader,
)
from geminga._connection.authentication import Authentication as Authentication
from geminga._connection.authentication import check_authentication as check_authentication
from geminga._connection.oauth2 import AuthenticationOAuth2 as AuthenticationOAuth2
from geminga._options.callbacks import FAILURES
from geminga.errors import AuthenticationError, InvalidArgumentError


class AuthenticationToken(Authentication):
    """A token, for example a JSON web token.

    `token` is the token itself, also written `token:...`; the path of a file that has it, as a Path
    or written `file:///...`; `env:NAME`, a variable of the environment; or a function that returns
    it. Files are read and functions called in a worker thread, each time that the token is needed.
    """

    def __init__(self, token: str | os.PathLike[str] | Callable[[], str]) -> None:
        super().__init__("token")
        self._read = token_reader(token)
        self._is_quick = isinstance(token, str) and not token.startswith(("file:", "env:"))

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
        except FAILURES as error:
            # The error's text may contain the secret: report its type only.
            kind = type(error).__name__
            raise AuthenticationError(f"the token's function raised {kind}") from None
        if not isinstance(found, str):
            raise AuthenticationError(
                f"the token's function must return a text, not {type(found).__name__}"
            )
        try:
            return clean(found)
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
    return _PLUGINS[kind_of(name)](params.strip())


def _tls_of(params: str) -> Authentication:
    return AuthenticationTls(*tls_files_of(params))


def _oauth2_of(params: str) -> Authentication:
    given = members(params)
    kind = given.get("type", "client_credentials")
    if kind != "client_credentials":
        raise InvalidArgumentError(f"auth params: type {kind!r} is not client_credentials")
    return AuthenticationOAuth2(
        member(given, "issuerUrl"),
        member(given, "privateKey"),
        audience=given.get("audience"),
        scope=given.get("scope"),
        trust_certs_file_path=given.get("trustCertsFilePath"),
    )


_PLUGINS: Mapping[str, Callable[[str], Authentication]] = {
    "token": lambda params: AuthenticationToken(token_of(params)),
    "basic": lambda params: AuthenticationBasic(*login_of(params)),
    "tls": _tls_of,
    "oauth2": _oauth2_of,
}
