"""User and password (spec PX-21; Apache's `AuthenticationProviderBasic`)."""

from __future__ import annotations

import hashlib
import hmac
import os

import trio

from geminga_runtime.auth.api import AuthenticationFailed, Identity, Peer
from geminga_runtime.auth.key_files import KeySourceError, read_key
from geminga_runtime.auth.settings import AuthSettings
from geminga_runtime.auth.turns import TooManyWaiting, Turns
from geminga_runtime.settings import ConfigError

METHOD = "basic"
CREDENTIAL_BYTES_MAX = 4096
"""User, colon and password; longer credentials are refused: hashing them costs too much."""

CHECKS_AT_ONCE_MAX = 2
"""Slow hashes (bcrypt) computed at the same time, each in a thread."""
WAITING_PER_ADDRESS_MAX = 1000
"""Passwords of one address that wait to be hashed; further ones are refused unchecked."""


class BasicProvider:
    """Checks against the lines of an htpasswd file: apr1, bcrypt, SHA and crypt."""

    method = METHOD
    name = "AuthenticationProviderBasic"

    def __init__(self, lines: bytes) -> None:
        """`lines` is the file's content. Raises ValueError."""
        from passlib.apache import HtpasswdFile

        file = HtpasswdFile.from_string(lines)
        self._context = file.context
        names = [str(user) for user in file.users()]
        self._hashes = {name: file.get_hash(name) or b"" for name in names}
        for user, hashed in self._hashes.items():
            if self._context.identify(hashed) == "plaintext":
                raise ValueError(f"the password of {user!r} has an unknown kind of hash")
        self._digest_key = os.urandom(32)
        self._right: dict[str, bytes] = {}
        """User -> digest of the password that was found right: it skips the slow hash,
        and the queue of wrong ones, in later calls.
        """
        self._decoy = max(self._hashes.values(), key=self._cost, default=None)
        self._limiter = trio.CapacityLimiter(CHECKS_AT_ONCE_MAX)
        self._turns = Turns(CHECKS_AT_ONCE_MAX, WAITING_PER_ADDRESS_MAX)

    @classmethod
    def from_settings(cls, settings: AuthSettings) -> BasicProvider:
        """Raises ConfigError."""
        if not settings.basic_file:
            raise ConfigError("authentication by password needs basicAuthConf, an htpasswd file")
        try:
            return cls(read_key(settings.basic_file))
        except (KeySourceError, ValueError) as error:
            raise ConfigError(f"basicAuthConf: {error}") from None

    def begin(self, peer: Peer) -> _Attempt:
        """One step."""
        return _Attempt(self, peer.address)

    async def step(self, data: bytes, address: str = "") -> Identity:
        """Raises AuthenticationFailed, which does not say whether user or password is wrong."""
        if len(data) > CREDENTIAL_BYTES_MAX:
            raise AuthenticationFailed(f"credentials longer than {CREDENTIAL_BYTES_MAX} bytes")
        try:
            user, colon, password = data.decode("utf-8").partition(":")
        except UnicodeDecodeError:
            raise AuthenticationFailed("credentials are not UTF-8") from None
        if not colon or not user or "\0" in password or "\0" in user:
            raise AuthenticationFailed("user or password is missing")
        digest = hashlib.blake2b(data, key=self._digest_key).digest()
        if hmac.compare_digest(self._right.get(user, b""), digest):
            await trio.lowlevel.checkpoint()
            return Identity(user, METHOD)
        try:
            # Unknown users count as one user: a client can invent any number of them.
            async with self._turns.turn(address, user if user in self._hashes else ""):
                right = await trio.to_thread.run_sync(
                    self._check, user, password, limiter=self._limiter, abandon_on_cancel=True
                )
        except TooManyWaiting as error:
            raise AuthenticationFailed(f"too many passwords: {error}", "too_many") from None
        if not right:
            raise AuthenticationFailed("unknown user or wrong password")
        self._right[user] = digest
        return Identity(user, METHOD)

    def _check(self, user: str, password: str) -> bool:
        hashed = self._hashes.get(user)
        # An unknown user costs as much as a known one: timing must not reveal names.
        compared = hashed or self._decoy
        if compared is None:
            return False
        try:
            right = bool(self._context.verify(password, compared))
        except ValueError:
            return False  # longer than its hash takes
        return right and hashed is not None

    def _cost(self, hashed: bytes) -> tuple[int, int]:
        """A sort key: greater for a slower hash."""
        scheme = self._context.identify(hashed)
        rounds = hashed[4:6] if scheme == "bcrypt" else b"0"
        return _BY_COST.index(scheme) if scheme in _BY_COST else len(_BY_COST), int(rounds)


class _Attempt:
    """One peer's password."""

    def __init__(self, provider: BasicProvider, address: str) -> None:
        self._provider = provider
        self._address = address

    async def step(self, data: bytes) -> Identity:
        return await self._provider.step(data, self._address)


_BY_COST = ("ldap_sha1", "des_crypt", "apr_md5_crypt", "bcrypt")
"""Schemes from fast to slow; others count as slow."""
