"""Authentication with the names of the official client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import geminga.auth
from geminga.errors import InvalidArgumentError
from geminga.pulsar._checks import check_type, staying
from geminga.pulsar.exceptions import InvalidConfiguration, OperationNotSupported


class Authentication:
    """Authentication by the name of one of Apache's plugins, and its parameters. Plugins of a
    shared library can't be loaded.

    Raises InvalidConfiguration.
    """

    auth: geminga.auth.Authentication

    def __init__(self, dynamicLibPath: str, authParamsString: str) -> None:
        check_type(str, dynamicLibPath, "dynamicLibPath")
        check_type(str, authParamsString, "authParamsString")
        try:
            self.auth = geminga.auth.from_config(dynamicLibPath, authParamsString)
        except InvalidArgumentError as error:
            raise InvalidConfiguration(str(error)) from error


class AuthenticationTLS(Authentication):
    """A client certificate; both files are PEM."""

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        check_type(str, certificate_path, "certificate_path")
        check_type(str, private_key_path, "private_key_path")
        self.auth = geminga.auth.AuthenticationTls(certificate_path, private_key_path)


class AuthenticationToken(Authentication):
    """A token, or a function that returns it each time that it is needed."""

    def __init__(self, token: str | Callable[[], str]) -> None:
        if not isinstance(token, str) and not callable(token):
            raise ValueError("token must be a text, or a function that returns one")
        given = token if isinstance(token, str) else staying(token)
        self.auth = geminga.auth.AuthenticationToken(given)


class AuthenticationAthenz(Authentication):
    """Athenz is not supported: raises OperationNotSupported."""

    def __init__(self, auth_params_string: str) -> None:
        check_type(str, auth_params_string, "auth_params_string")
        raise OperationNotSupported(
            "Athenz is not supported: use AuthenticationToken, AuthenticationTLS or "
            "AuthenticationOauth2"
        )


class AuthenticationOauth2(Authentication):
    """OAuth 2.0 client credentials: `auth_params_string` is a JSON object with `issuer_url`,
    `private_key` (a file's path, or a `file:` or `data:` URL of it), or `client_id` and
    `client_secret`, and optionally `audience` and `scope`.

    Raises InvalidConfiguration.
    """

    def __init__(self, auth_params_string: str) -> None:
        check_type(str, auth_params_string, "auth_params_string")
        given = _members(auth_params_string)
        try:
            self.auth = geminga.auth.AuthenticationOAuth2(
                given.get("issuer_url", ""),
                given.get("private_key"),
                client_id=given.get("client_id"),
                client_secret=given.get("client_secret"),
                audience=given.get("audience"),
                scope=given.get("scope"),
            )
        except InvalidArgumentError as error:
            raise InvalidConfiguration(str(error)) from error


class AuthenticationBasic(Authentication):
    """User name and password, also in a JSON object with `username`, `password` and `method`, which
    then counts alone.

    Raises RuntimeError for an object without a name or password.
    """

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str | None = None,
    ) -> None:
        if auth_params_string is not None:
            check_type(str, auth_params_string, "auth_params_string")
            given = _members(auth_params_string)
            for name in ("username", "password"):
                if not given.get(name):
                    raise RuntimeError(f"auth_params_string has no {name}")
            username, password = given["username"], given["password"]
            method = given.get("method", "basic")
        check_type(str, username, "username")
        check_type(str, password, "password")
        check_type(str, method, "method")
        self.auth = geminga.auth.AuthenticationBasic(username or "", password or "", method)


def _members(text: str) -> dict[str, Any]:
    """The JSON object. The error must not show what is in it."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidConfiguration("auth_params_string must be a JSON object")
    return found
