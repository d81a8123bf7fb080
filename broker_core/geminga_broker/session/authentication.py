"""Authentication of a connection: the client's role and its original principal (PX-20, PX-22)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import version

import trio

from geminga_broker.authz.authorizer import Caller
from geminga_broker.authz.commands import INVALID_ROLES
from geminga_broker.session.session import NO_REQUEST, Session
from geminga_protocol.commands import answers
from geminga_protocol.pb.pulsar_api_pb2 import CommandConnect, ServerError
from geminga_runtime.auth.api import Identity, Peer
from geminga_runtime.auth.proof import Proof
from geminga_runtime.auth.service import Authenticator
from geminga_runtime.logs import shown

_log = logging.getLogger(__name__)

SERVER_VERSION = f"Geminga {version('geminga')}"
FAILED = "Failed to authenticate"
"""The peer gets this text only; the reason is logged."""


class Authentication:
    """Authenticates one session. `accept` is called once, on success."""

    def __init__(
        self,
        session: Session,
        authenticator: Authenticator,
        command: CommandConnect,
        accept: Callable[[], None],
    ) -> None:
        self._session = session
        # Don't keep the command: it would stay in memory as long as the connection.
        self._original = command.original_principal or None
        self._original_method = command.original_auth_method
        self._original_data = command.original_auth_data
        self._accept = accept
        refresh_s = session.service.config.auth.refresh_check_s
        self._proof = Proof(self, authenticator, refresh_s, self._let_in)
        self.respond = self._proof.respond

    def begin(self, command: CommandConnect) -> None:
        """Check the credentials of CONNECT."""
        session = self._session
        self._proof.begin(command, Peer(session.address, session.stream.peer_certificate))

    @property
    def nursery(self) -> trio.Nursery:
        """The session's nursery."""
        return self._session.nursery

    @property
    def server_version(self) -> str:
        """The version in CONNECTED."""
        return SERVER_VERSION

    @property
    def protocol_version(self) -> int:
        """The session's protocol version."""
        return self._session.protocol_version

    @property
    def supports_refresh(self) -> bool:
        """Whether the client's feature flags include it."""
        return self._session.features.supports_auth_refresh

    def write(self, data: bytes) -> None:
        """Send to the client."""
        self._session.write(data)

    def refuse(
        self,
        why: str,
        code: ServerError = ServerError.AuthenticationError,
        text: str = FAILED,
    ) -> None:
        """Send a short error, log the reason and close the connection."""
        _log.warning("address=%s authentication failed: %s", self._session.address, why)
        self._session.write(answers.error(NO_REQUEST, code, text))
        self._session.stop()

    async def _let_in(self, identity: Identity) -> Identity | None:
        session, original = self._session, self._original
        authorizer = session.service.authorizer
        role = identity.role
        session.caller = session.caller._replace(role=role)
        if authorizer.settings.authenticate_original and (original or self._original_data):
            # Even without credentials, which only the anonymous role may lack.
            method, data = self._original_method, self._original_data.encode()
            self._original_data = ""
            identity = await self._proof.ask_another(method, data, Peer(session.address))
            original = identity.role
        if authorizer.enabled and not authorizer.original_is_valid(role, original, http=False):
            why = f"role {role!r} with original principal {shown(original or '')!r}"
            self.refuse(why, ServerError.AuthorizationError, INVALID_ROLES)
            return None
        session.caller = Caller(role, original)
        self._accept()
        return identity
