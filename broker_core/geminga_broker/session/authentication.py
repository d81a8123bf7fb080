"""Who is at the other end of a connection: first proof, further steps, and fresh ones when the old
one expires (spec PR-06, PX-20, PX-22; PIP-30, PIP-55).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

import trio

from geminga_broker.authz.commands import INVALID_ROLES
from geminga_protocol.commands import answers, connection
from geminga_protocol.pb.pulsar_api_pb2 import CommandConnect, ServerError
from geminga_runtime.auth.api import (
    REFRESH,
    AuthenticationFailed,
    Challenge,
    Exchange,
    Identity,
    Peer,
)

if TYPE_CHECKING:
    from geminga_broker.session.session import Session
    from geminga_runtime.auth.service import Authenticator

_log = logging.getLogger(__name__)

NO_REQUEST = (1 << 64) - 1
FAILED = "Failed to authenticate"
"""All that a peer hears; why stands in the log."""
CLOCK_CHECK_S = 60.0
"""The wall clock is looked at so often while a proof lasts, as it may be set."""


class _State(Enum):
    NEW = auto()
    CHECKING = auto()
    CHALLENGED = auto()
    OPEN = auto()


class Authentication:
    """One connection's proofs. `accept` is called once, when the client is let in."""

    def __init__(
        self, session: Session, authenticator: Authenticator, accept: Callable[[], None]
    ) -> None:
        self._session = session
        self._authenticator = authenticator
        self._accept = accept
        self._state = _State.NEW
        self._method = ""
        self._exchange: Exchange | None = None
        self._identity: Identity | None = None
        self._renewed = trio.Event()

    def begin(self, command: CommandConnect) -> None:
        """CONNECT came: check in a task."""
        self._state = _State.CHECKING
        self._session.nursery.start_soon(self._first_proof, command)

    def respond(self, method: str, data: bytes) -> None:
        """AUTH_RESPONSE came: the next step, a fresh proof, or one that nobody asked for."""
        if self._state not in (_State.CHALLENGED, _State.OPEN):
            self._refuse("AUTH_RESPONSE out of turn")
            return
        if method and method != self._method:
            self._refuse("AUTH_RESPONSE of another method")
            return
        self._state = _State.CHECKING
        self._session.nursery.start_soon(self._next_proof, data)

    async def _first_proof(self, command: CommandConnect) -> None:
        session = self._session
        authorizer = session.service.authorizer
        certificate = session.tls_peer_certificate
        peer = Peer(session.address, certificate.der if certificate else None)
        self._method = command.auth_method_name
        try:
            self._exchange = self._authenticator.begin(self._method, peer)
            identity = await self._exchange.step(command.auth_data)
            if isinstance(identity, Challenge):
                self._challenge(identity.data)
                return
            session.principal = identity.role
            original = command.original_principal or None
            if authorizer.settings.authenticate_original and command.original_auth_data:
                # From now on the client behind the proxy is the one that is asked.
                self._method = command.original_auth_method
                self._exchange = self._authenticator.begin(self._method, Peer(session.address))
                found = await self._exchange.step(command.original_auth_data.encode())
                if isinstance(found, Challenge):
                    raise AuthenticationFailed("original credentials of several steps")
                identity, original = found, found.role
        except AuthenticationFailed as error:
            self._refuse(str(error))
            return
        if authorizer.enabled and not authorizer.original_is_valid(
            session.principal, original, http=False
        ):
            self._refuse(
                f"role {session.principal!r} with original principal {original!r}",
                ServerError.AuthorizationError,
                INVALID_ROLES,
            )
            return
        session.original_principal = original
        self._let_in(identity)

    async def _next_proof(self, data: bytes) -> None:
        assert self._exchange is not None
        try:
            identity = await self._exchange.step(data)
        except AuthenticationFailed as error:
            self._refuse(str(error))
            return
        if isinstance(identity, Challenge):
            self._challenge(identity.data)
        elif self._identity is None:
            self._session.principal = identity.role
            self._let_in(identity)
        elif identity.role != self._identity.role:
            self._refuse(f"role {self._identity.role!r} came back as {identity.role!r}")
        else:
            self._renew(identity)

    def _challenge(self, data: bytes) -> None:
        self._state = _State.CHALLENGED
        session = self._session
        session.write(
            connection.auth_challenge(
                session.server_version,
                self._method,
                data,
                protocol_version=session.protocol_version,
            )
        )

    def _let_in(self, identity: Identity) -> None:
        self._state = _State.OPEN
        self._identity = identity
        self._accept()
        if identity.expires_at_s is not None:
            self._session.nursery.start_soon(self._watch_expiry)

    def _renew(self, identity: Identity) -> None:
        self._state = _State.OPEN
        self._identity = identity
        self._renewed.set()

    async def _watch_expiry(self) -> None:
        """Ask for a fresh proof when the old one is over, and close if none comes in time."""
        session = self._session
        grace_s = session.service.config.auth.refresh_check_s
        while self._identity is not None and self._identity.expires_at_s is not None:
            left_s = self._identity.expires_at_s - time.time()
            if left_s > 0:
                await trio.sleep(min(left_s, CLOCK_CHECK_S))
                continue
            if not session.features.supports_auth_refresh:
                self._refuse("the proof expired and the client can't renew it")
                return
            self._renewed = trio.Event()
            self._challenge(REFRESH)
            with trio.move_on_after(grace_s) as patience:
                await self._renewed.wait()
            if patience.cancelled_caught:
                self._refuse(f"no fresh proof within {grace_s} s")
                return

    def _refuse(
        self,
        why: str,
        code: ServerError = ServerError.AuthenticationError,
        text: str = FAILED,
    ) -> None:
        session = self._session
        _log.warning("address=%s is not let in: %s", session.address, why)
        session.write(answers.error(NO_REQUEST, code, text))
        session.stop()
