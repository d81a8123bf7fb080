"""The authentication of one connection's peer: its steps, and fresh credentials when the old ones
expire (spec PR-06, PX-20; PIP-30, PIP-55). Broker and proxy hold one `Proof` for each client.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Protocol

import trio

from geminga_protocol.commands import connection
from geminga_protocol.pb.pulsar_api_pb2 import CommandConnect
from geminga_runtime.auth.api import (
    EXPIRED_TOKEN,
    REFRESH,
    AuthenticationFailed,
    Challenge,
    Exchange,
    Identity,
    Peer,
)
from geminga_runtime.auth.service import Authenticator

CLOCK_CHECK_S = 60.0
"""Interval of looking at the wall clock while waiting for an expiry: the clock may be adjusted."""


class Proved(Protocol):
    """The connection that a `Proof` authenticates."""

    @property
    def nursery(self) -> trio.Nursery:
        """Runs the checks; it ends with the connection."""
        ...

    @property
    def server_version(self) -> str:
        """For challenges."""
        ...

    @property
    def protocol_version(self) -> int:
        """For challenges."""
        ...

    @property
    def supports_refresh(self) -> bool:
        """Whether the peer can renew its credentials on request."""
        ...

    def write(self, data: bytes, /) -> None:
        """Send a frame."""

    def refuse(self, why: str) -> None:
        """Send the peer an authentication error, log why, and close."""


class _State(Enum):
    NEW = auto()
    CHECKING = auto()
    CHALLENGED = auto()
    OPEN = auto()


Accept = Callable[[Identity], Awaitable[Identity | None]]
"""Called once with the peer's identity. Returns the identity whose expiry is watched, or None if
the connection was refused after all. Raises AuthenticationFailed.
"""


class Proof:
    """The state of one connection's authentication."""

    def __init__(
        self, connection: Proved, authenticator: Authenticator, refresh_s: float, accept: Accept
    ) -> None:
        """The peer has `refresh_s` to answer a challenge to refresh."""
        self._connection = connection
        self._authenticator = authenticator
        self._refresh_s = refresh_s
        self._accept = accept
        self._state = _State.NEW
        self._method = ""
        self._exchange: Exchange | None = None
        self._identity: Identity | None = None
        self._renewed = trio.Event()
        self.on_renewed: Callable[[Identity, bytes], object] | None = None
        """Called with the identity and the credentials of each renewal."""

    def begin(self, command: CommandConnect, peer: Peer) -> None:
        """CONNECT came: check in a task."""
        self._state = _State.CHECKING
        self._method = command.auth_method_name
        try:
            self._exchange = self._authenticator.begin(self._method, peer)
        except AuthenticationFailed as error:
            self._connection.refuse(str(error))
            return
        self._connection.nursery.start_soon(self._step, command.auth_data)

    async def ask_another(self, method: str, data: bytes, peer: Peer) -> Identity:
        """Authenticate the original client behind the peer, a proxy; later challenges are for it.

        Raises AuthenticationFailed.
        """
        self._method = method
        self._exchange = self._authenticator.begin(method, peer)
        found = await self._exchange.step(data)
        if isinstance(found, Challenge):
            raise AuthenticationFailed("original credentials of several steps are unsupported")
        return found

    def respond(self, method: str, data: bytes) -> None:
        """AUTH_RESPONSE came: for the next step or a renewal, or unexpected."""
        if self._state not in (_State.CHALLENGED, _State.OPEN):
            self._connection.refuse("AUTH_RESPONSE out of turn")
        elif method and method != self._method:
            self._connection.refuse("AUTH_RESPONSE of another method")
        else:
            self._state = _State.CHECKING
            self._connection.nursery.start_soon(self._step, data)

    async def _step(self, data: bytes) -> None:
        assert self._exchange is not None
        try:
            found = await self._exchange.step(data)
            if isinstance(found, Challenge):
                self._challenge(found.data)
            elif self._identity is None:
                await self._let_in(found)
            else:
                self._renew(found)
                if self.on_renewed is not None:
                    self.on_renewed(found, data)
        except AuthenticationFailed as error:
            self._connection.refuse(str(error))

    def _challenge(self, data: bytes) -> None:
        self._state = _State.CHALLENGED
        self._connection.write(
            connection.auth_challenge(
                self._connection.server_version,
                self._method,
                data,
                protocol_version=self._connection.protocol_version,
            )
        )

    async def _let_in(self, identity: Identity) -> None:
        watched = await self._accept(identity)
        if watched is None:
            return
        self._state = _State.OPEN
        self._identity = watched
        if watched.expires_at_s is not None:
            self._connection.nursery.start_soon(self._watch_expiry)

    def _renew(self, identity: Identity) -> None:
        assert self._identity is not None
        if identity.role != self._identity.role:
            raise AuthenticationFailed(f"role {self._identity.role!r} became {identity.role!r}")
        if identity.expires_at_s is not None and identity.expires_at_s <= time.time():
            # A new challenge would bring the same token again, for ever.
            raise AuthenticationFailed("the new credentials have expired too", EXPIRED_TOKEN)
        self._state = _State.OPEN
        self._identity = identity
        self._renewed.set()

    async def _watch_expiry(self) -> None:
        """When the credentials expire, ask for new ones, and refuse if none come in time."""
        while self._identity is not None and self._identity.expires_at_s is not None:
            left_s = self._identity.expires_at_s - time.time()
            if left_s > 0:
                await trio.sleep(min(left_s, CLOCK_CHECK_S))
                continue
            if not self._connection.supports_refresh:
                self._connection.refuse("credentials expired and the client can't renew them")
                return
            self._renewed = trio.Event()
            self._challenge(REFRESH)
            with trio.move_on_after(self._refresh_s) as patience:
                await self._renewed.wait()
            if patience.cancelled_caught:
                self._connection.refuse(f"no new credentials within {self._refresh_s:g} s")
                return
