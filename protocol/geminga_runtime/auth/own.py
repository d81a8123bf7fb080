"""The credentials of a process of its own, which a proxy or a broker shows to brokers, by Apache's
plug-in names (spec PX-04, PX-23).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from geminga_runtime.json_text import BadJson, read_json
from geminga_runtime.settings import ConfigError

_log = logging.getLogger(__name__)

_KEY = "brokerClientAuthenticationParameters"
_PACKAGE = "org.apache.pulsar.client.impl.auth."
_DISABLED = _PACKAGE + "AuthenticationDisabled"
"""The default of Apache's classes."""
PLUGINS = {
    "token": "token",
    "basic": "basic",
    "tls": "tls",
    _PACKAGE + "AuthenticationToken": "token",
    _PACKAGE + "AuthenticationBasic": "basic",
    _PACKAGE + "AuthenticationTls": "tls",
}


class OwnCredentials(NamedTuple):
    """A method and its data; the data is read for each connection."""

    method: str = ""
    data: Callable[[], bytes] = lambda: b""
    certificate_file: str = ""
    key_file: str = ""

    def header(self) -> str | None:
        """The value of an Authorization header; None if the method needs none."""
        if self.method == "token":
            return "Bearer " + self.data().decode("ascii")
        if self.method == "basic":
            import base64

            return "Basic " + base64.b64encode(self.data()).decode("ascii")
        return None


def own_credentials(plugin: str, parameters: str) -> OwnCredentials:
    """Raises ConfigError."""
    if plugin in ("", _DISABLED):
        return OwnCredentials()
    kind = PLUGINS.get(plugin)
    if kind == "token":
        return OwnCredentials(kind, _token(parameters))
    if kind == "basic":
        return OwnCredentials(kind, _basic(parameters))
    if kind == "tls":
        files = dict(_pair(part) for part in parameters.split(",") if part.strip())
        if not {"tlsCertFile", "tlsKeyFile"} <= files.keys():
            raise ConfigError(
                "brokerClientAuthenticationParameters: tlsCertFile:… and tlsKeyFile:… are needed"
            )
        return OwnCredentials(
            kind, certificate_file=files["tlsCertFile"], key_file=files["tlsKeyFile"]
        )
    known = ", ".join(PLUGINS)
    raise ConfigError(f"brokerClientAuthenticationPlugin: {plugin!r} is not one of {known}")


def _token(parameters: str) -> Callable[[], bytes]:
    if parameters.startswith("file:"):
        return _TokenFile(Path(parameters.removeprefix("file://").removeprefix("file:"))).read
    text = parameters.removeprefix("token:").strip()
    if text.startswith("{"):
        text = _json(text).get("token", "")
    if not text:
        raise ConfigError("brokerClientAuthenticationParameters: no token")
    _check_token(text.encode())
    return text.encode


class _TokenFile:
    """Reads the file each time: it may be renewed. While the file is missing or invalid, the last
    valid token is used, so that no connection fails meanwhile.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError."""
        self._path = path
        try:
            self._last = path.read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"{_KEY}: {path} can't be read: {error.strerror}") from None
        _check_token(self._last)
        self._is_broken = False

    def read(self) -> bytes:
        """The current token, or the last valid one."""
        try:
            found = self._path.read_bytes().strip()
            why = None if _is_token(found) else "it contains no token"
        except OSError as error:
            found, why = b"", error.strerror or "it can't be read"
        if why is None:
            self._last, self._is_broken = found, False
        elif not self._is_broken:
            self._is_broken = True
            _log.warning("%s: %s; using the last valid token", self._path, why)
        return self._last


def _check_token(token: bytes) -> None:
    """Refuse at the start a token that no header can hold, not at the first request."""
    if not _is_token(token):
        raise ConfigError(f"{_KEY}: a token must be ASCII without white space")


def _is_token(token: bytes) -> bool:
    return len(token.split()) == 1 and token.isascii()


def _basic(parameters: str) -> Callable[[], bytes]:
    found = _json(parameters)
    if not {"userId", "password"} <= found.keys():
        raise ConfigError("brokerClientAuthenticationParameters: userId and password are needed")
    return f"{found['userId']}:{found['password']}".encode


def _json(text: str) -> dict[str, str]:
    try:
        return read_json(text, dict[str, str])
    except BadJson:
        raise ConfigError(f"{_KEY}: not a JSON object of strings") from None


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.strip().partition(":")
    return name, value
