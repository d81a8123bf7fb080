"""What an unauthenticated client of a bookie is answered (spec BK-08; Apache's
AuthHandler.ServerSideHandler).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import trio

from geminga_bookie.errors import UnauthorizedAccess
from geminga_bookie.wire.auth import (
    AUTHENTICATION_S,
    MESSAGES_MAX,
    PAYLOAD_BYTES_MAX,
    AuthFailed,
    AuthPeer,
    BookieAuth,
    ServerExchange,
)
from geminga_bookie.wire.speech import Add, Aside, Read, Speech
from geminga_protocol.bookkeeper.framing import WireError
from geminga_protocol.buffers import Buffer
from geminga_protocol.pb.bookkeeper_protocol_pb2 import AuthMessage
from geminga_runtime.stream import FramedStream

_log = logging.getLogger(__name__)

FRAME_BYTES_MAX = 2 * PAYLOAD_BYTES_MAX
"""Of a client that isn't authenticated."""


class Gate:
    """Answers one client until it is authenticated."""

    def __init__(self, auth: BookieAuth | None, stream: FramedStream) -> None:
        self.is_open = auth is None
        self._auth = auth
        self._stream = stream
        self._messages = 0
        self._exchange: ServerExchange | None = None
        if auth is None:
            return
        try:
            self._exchange = auth.begin(AuthPeer(stream.name, stream.peer_certificate))
        except AuthFailed as error:
            # Without TLS its client may ask for that yet.
            if stream.is_secure:
                _log.warning("%s: not authenticated: %s", stream.name, error)
        else:
            self.is_open = self._exchange is None

    async def close_when_late(self, scope: trio.CancelScope) -> None:
        """End the connection if it isn't authenticated in time."""
        await trio.sleep(AUTHENTICATION_S)
        if not self.is_open:
            _log.warning("%s: closed: not authenticated in time", self._stream.name)
            scope.cancel()

    async def answer(self, speech: Speech, request: Add | Read | Aside) -> None:
        """Answer a request. Raises WireError where the connection is to be closed."""
        if not isinstance(request, Aside):
            self._stream.write(*_denied(speech, request))
            return
        message = request.auth
        if message is None or not self._is_for_us(message):
            denial = list(request.deny())
            if not denial:
                raise WireError("a request before authentication")
            self._stream.write(*denial)
            return
        await self._take(request, message)

    def _is_for_us(self, message: AuthMessage) -> bool:
        return (
            self._exchange is not None
            and self._auth is not None
            and message.authPluginName == self._auth.plugin_name
        )

    async def _take(self, request: Aside, message: AuthMessage) -> None:
        """A message of the client. Raises WireError if it ends the authentication."""
        assert self._exchange is not None
        assert self._auth is not None
        self._messages += 1
        why = ""
        try:
            if len(message.payload) > PAYLOAD_BYTES_MAX or self._messages > MESSAGES_MAX:
                raise AuthFailed("too many messages, or too large ones")
            step = await self._exchange.process(message.payload)
        except Exception as error:
            # A plug-in's error fails this client only. Its text may hold the client's data.
            why = str(error) if isinstance(error, AuthFailed) else type(error).__name__
        if why:
            self._stream.write(*request.deny())
            with trio.move_on_after(1):
                await self._stream.flush()
            raise WireError(f"not authenticated: {why}")
        self.is_open = step.is_done
        self._stream.write(*request.answer_auth(self._auth.plugin_name, step.payload))


def _denied(speech: Speech, request: Add | Read) -> Iterable[Buffer]:
    error = UnauthorizedAccess("not authenticated")
    if isinstance(request, Add):
        return [speech.add_answers(request.ledger_id, request.first_entry_id, request.tags, error)]
    made: list[Buffer] = []
    for entry_id, tag in enumerate(request.tags, request.first_entry_id):
        made += speech.read_failed(request.ledger_id, entry_id, tag, error)
    return made
