"""User and password (spec PX-21; Apache's `AuthenticationProviderBasic`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import trio

from geminga_runtime.auth.api import AuthenticationFailed, Identity, Peer
from geminga_runtime.auth.key_files import KeySourceError, read_key
from geminga_runtime.auth.settings import AuthSettings
from geminga_runtime.settings import ConfigError

if TYPE_CHECKING:
    from passlib.apache import HtpasswdFile

METHOD = "basic"
CREDENTIAL_BYTES_MAX = 4096
"""User, colon and password; a longer one isn't looked at, as its hash would cost too much."""

CHECKS_AT_ONCE_MAX = 2
"""Slow hashes (bcrypt) that are computed at the same time, each in a thread."""


class BasicProvider:
    """Checks against the lines of an htpasswd file: apr1, bcrypt, SHA and crypt."""

    method = METHOD
    name = "AuthenticationProviderBasic"

    def __init__(self, lines: bytes) -> None:
        """`lines` as in the file. Raises ValueError."""
        from passlib.apache import HtpasswdFile

        self._users: HtpasswdFile = HtpasswdFile.from_string(lines)
        for user in self._users.users():
            if _scheme(self._users, str(user)) == "plaintext":
                raise ValueError(f"the password of {user!r} is not hashed in a way that is known")
        self._limiter = trio.CapacityLimiter(CHECKS_AT_ONCE_MAX)

    @classmethod
    def from_settings(cls, settings: AuthSettings) -> BasicProvider:
        """Raises ConfigError."""
        if not settings.basic_file:
            raise ConfigError("authentication by password needs basicAuthConf, an htpasswd file")
        try:
            return cls(read_key(settings.basic_file))
        except (KeySourceError, ValueError) as error:
            raise ConfigError(f"basicAuthConf: {error}") from None

    def begin(self, peer: Peer) -> BasicProvider:
        """The provider itself: one step, no state."""
        return self

    async def step(self, data: bytes) -> Identity:
        """Raises AuthenticationFailed, which does not say whether user or password is wrong."""
        if len(data) > CREDENTIAL_BYTES_MAX:
            raise AuthenticationFailed(f"credentials longer than {CREDENTIAL_BYTES_MAX} bytes")
        try:
            user, colon, password = data.decode("utf-8").partition(":")
        except UnicodeDecodeError:
            raise AuthenticationFailed("credentials that are no text") from None
        if not colon or not user or "\0" in password or "\0" in user:
            raise AuthenticationFailed("credentials without user or password")
        right = await trio.to_thread.run_sync(
            self._check, user, password, limiter=self._limiter, abandon_on_cancel=True
        )
        if not right:
            raise AuthenticationFailed("unknown user or wrong password")
        return Identity(user, METHOD)

    def _check(self, user: str, password: str) -> bool:
        try:
            return bool(self._users.check_password(user, password))
        except ValueError:
            return False  # longer than its hash takes


def _scheme(users: HtpasswdFile, user: str) -> str | None:
    found = users.context.identify(users.get_hash(user))
    return cast("str | None", found)
