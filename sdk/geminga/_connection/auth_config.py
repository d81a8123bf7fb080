"""What a client's configuration says of authentication, and where tokens are read: no I/O but the
token's file. `geminga.auth` has the methods; a command that only needs a header takes it here.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from geminga.errors import AuthenticationError, InvalidArgumentError

_log = logging.getLogger("geminga.auth")

TOKEN_BYTES_MAX = 256 * 1024
"""Bound of the bytes read from a token's file."""

KINDS = ("token", "basic", "tls", "oauth2")


def kind_of(plugin: str) -> str:
    """The kind that a configuration names: by a Java class, its last part, or the short name.
    Raises InvalidArgumentError.
    """
    short = plugin.strip().rpartition(".")[2].removeprefix("Authentication").lower()
    if short not in KINDS:
        raise InvalidArgumentError(
            f"authentication: {plugin!r} is none of {', '.join(KINDS)}, nor their Java classes"
        )
    return short


def header_of(kind: str, params: str) -> dict[str, str]:
    """The header of kind token or basic. Raises InvalidArgumentError, and AuthenticationError if a
    token can't be read.
    """
    if kind == "token":
        return {"Authorization": f"Bearer {clean(token_reader(token_of(params.strip()))())}"}
    user, password = login_of(params.strip())
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def token_of(params: str) -> str:
    """The token, or where it is, in the text of parameters. Raises InvalidArgumentError."""
    return member(members(params), "token") if params.startswith("{") else params


def login_of(params: str) -> tuple[str, str]:
    """User name and password in the text of parameters. Raises InvalidArgumentError."""
    given = members(params)
    user = member(given, "userId" if "userId" in given else "username")
    if ":" in user:
        raise InvalidArgumentError("username must not have a colon")
    return user, member(given, "password")


def tls_files_of(params: str) -> tuple[str, str]:
    """Certificate and key in the text of parameters. Raises InvalidArgumentError."""
    given = members(params) if params.startswith("{") else pairs(params)
    return member(given, "tlsCertFile"), member(given, "tlsKeyFile")


def token_reader(token: str | os.PathLike[str] | Callable[[], str]) -> Callable[[], str]:
    """Reads a token each time: given as `token:...`, as `file:...` or a path, as `env:NAME`, or by
    a function. Raises InvalidArgumentError.
    """
    if isinstance(token, str) and not token.startswith(("file:", "env:")):
        text = clean(token.removeprefix("token:"))
        return lambda: text
    if isinstance(token, str) and token.startswith("env:"):
        variable = token.removeprefix("env:")
        return lambda: _read_variable(variable)
    if isinstance(token, str):
        return TokenFile(Path(token.removeprefix("file:").removeprefix("//"))).read
    if isinstance(token, os.PathLike):
        return TokenFile(Path(token)).read
    if callable(token):
        return token
    raise InvalidArgumentError(
        f"token must be a text, a path or a function, not {type(token).__name__}"
    )


def members(params: str) -> dict[str, str]:
    """Parameters as a JSON object of texts. Raises InvalidArgumentError."""
    try:
        found = json.loads(params)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise InvalidArgumentError("auth params must be a JSON object of texts")
    return found


def pairs(params: str) -> dict[str, str]:
    """Parameters as `key:value,key:value`. Raises InvalidArgumentError."""
    found = {}
    for pair in params.split(","):
        key, colon, value = pair.partition(":")
        if not colon:
            raise InvalidArgumentError("auth params must be key:value,key:value")
        found[key.strip()] = value.strip()
    return found


def member(given: Mapping[str, str], name: str) -> str:
    """A parameter that must be there. Raises InvalidArgumentError."""
    if not given.get(name):
        raise InvalidArgumentError(f"auth params: {name} is missing")
    return given[name]


def clean(token: str) -> str:
    """The token without surrounding white space. Raises InvalidArgumentError without its text."""
    token = token.strip()
    if not token:
        raise InvalidArgumentError("token is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidArgumentError("token has invalid characters")
    return token


class TokenFile:
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
                found = clean(file.read(TOKEN_BYTES_MAX))
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
