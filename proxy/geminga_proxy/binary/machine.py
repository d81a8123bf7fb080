"""The state of one client's connection: handshake, then lookups or a tunnel (spec PX-01, PX-02,
PX-04). Pure: events in, effects out.

`ClientMachine.handle` yields effects. The driver carries out each one before it takes the next:
an effect may cause another event (credentials can be refused at once).

Rules:
- Nothing but CONNECT and AUTH_RESPONSE is taken until the client is authenticated.
- A client that wants a tunnel sends nothing before the broker's CONNECTED.
- Pending requests are still answered after the end; nothing else is taken then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from geminga_protocol.commands import answers, connection
from geminga_protocol.frames import BROKEN, Frame, FrameReader, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandConnect,
    FeatureFlags,
    ServerError,
)
from geminga_proxy.addresses import Address, BadAddress, parse_target
from geminga_proxy.binary.events import (
    Answered,
    Ask,
    Authenticated,
    Drained,
    Effects,
    End,
    Event,
    Learn,
    Left,
    OpenTunnel,
    Prove,
    Reached,
    Received,
    Refused,
    Respond,
    Send,
    ServeLookups,
    Ticked,
    TooLate,
    Unanswered,
    Unreachable,
    Warn,
)  # fmt: skip
from geminga_proxy.binary.requests import PASSED_ON, ClientRequest, LookupFailed, Redirected
from geminga_proxy.binary.state import TRANSITIONS, Cause, State
from geminga_proxy.bounds import REQUEST_BYTES_MAX, RequestBudget, Unfinished
from geminga_proxy.trust import Targets
from geminga_runtime.auth.api import Identity
from geminga_runtime.logs import shown

HANDSHAKE_S = 30.0
"""Time for a client to authenticate."""
HELLO_BYTES_MAX = 64 * 1024
"""Size of a command before authentication: many clients may shake hands at once."""
KEEP_ALIVE_S = 30.0
"""Interval of PINGs to clients that do lookups (PR-12); in tunnels brokers send them."""
REQUESTS_MAX = 5000
"""Pending requests of one client; no more are taken."""

NO_REQUEST = (1 << 64) - 1
_UNAVAILABLE = "No broker can be reached now"
_HTTP = "the peer speaks HTTP on the port for Pulsar's binary protocol"
_TOO_EARLY = "closed: a command before authentication"
_FLAGS = FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)
_TLS_HELLO = b"\x16\x03"
"""First bytes of a TLS handshake (RFC 8446, 5.1)."""

_C = BaseCommand.Type


class Options(NamedTuple):
    """Settings of a proxy that the machine needs."""

    version: str
    authenticates: bool
    by_tls: bool
    """Whether brokers are connected to by TLS."""
    max_message_size: int


def _failed(code: ServerError, text: str) -> Send:
    return Send(answers.error(NO_REQUEST, code, text))


_NOT_AUTHENTICATED = _failed(ServerError.AuthenticationError, "Failed to authenticate")


class ClientMachine:
    """One client's connection."""

    __slots__ = (
        "_budget",
        "_frames",
        "_heard_s",
        "_options",
        "_pending",
        "_reader",
        "_targets",
        "_unfinished",
        "hello",
        "identity",
        "state",
        "target",
    )

    def __init__(self, options: Options, targets: Targets, budget: RequestBudget) -> None:
        """`targets` and `budget` are all clients'; `release` returns this client's share."""
        self._options = options
        self._targets = targets
        self._budget = budget
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._frames: list[Frame] = []
        """Commands not handled yet, newest first."""
        self._pending: dict[ClientRequest, None] = {}
        self._heard_s = 0.0
        self._unfinished = Unfinished(budget.held)
        self.state = State.HELLO
        self.hello = CommandConnect()
        self.identity: Identity | None = None
        """None before authentication, and if authentication is off."""
        self.target: Address | None = None
        """The broker of the tunnel."""

    @property
    def pending(self) -> int:
        """The number of pending requests."""
        return len(self._pending)

    @property
    def is_full(self) -> bool:
        """Whether the client must not be read until a request is answered."""
        return len(self._pending) >= REQUESTS_MAX

    @property
    def protocol_version(self) -> int:
        """The version to speak with the client."""
        return min(self.hello.protocol_version, connection.PROTOCOL_VERSION)

    def handle(self, event: Event) -> Effects:
        """Effects of an event; carry out each one before the next is taken."""
        match event:
            case Received(data, at_s):
                return self._received(data, at_s)
            case Left(text):
                return self._end(text, logging.DEBUG)
            case TooLate():
                return self._end(f"closed: not authenticated within {HANDSHAKE_S:g} s")
            case Authenticated(identity):
                return self._authenticated(identity)
            case Refused(why):
                return self._refused(why)
            case Reached(data):
                return self._reached(data)
            case Unreachable(code, text):
                return self._unreachable(code, text)
            case Answered(request, broker, frame):
                return self._answered(request, broker, frame)
            case Unanswered(request, code, text):
                return self._unanswered(request, code, text)
            case Ticked(at_s):
                return self._ticked(at_s)
            case Drained():
                return self._end()

    def release(self) -> None:
        """Return this client's share of the proxy's budget. Call it last."""
        self._unfinished.becomes(0, 0.0)
        for request in self._pending:
            self._budget.give(request.held_bytes)
        self._pending.clear()

    def _go(self, cause: Cause) -> None:
        self.state = TRANSITIONS[self.state][cause]

    def _end(self, text: str = "", level: int = logging.WARNING) -> Effects:
        if Cause.OVER in TRANSITIONS[self.state]:
            self._go(Cause.OVER)
            yield End(text, level)

    # ---- bytes and commands ----

    def _received(self, data: bytes, at_s: float) -> Effects:
        if self.state is State.CONNECTING:
            yield from self._end(_TOO_EARLY)
        if self.state not in _COMMANDS:
            return
        assert not self._frames, "a full machine is not fed"
        self._heard_s = at_s
        if self.state is State.HELLO and data.startswith(_TLS_HELLO):
            yield from self._end("closed: the peer speaks TLS on the plaintext port")
            return
        try:
            self._frames += reversed(self._reader.feed(data))
        except FramingError as error:
            if self.state is State.HELLO:
                yield _NOT_AUTHENTICATED
            yield from self._end(f"closed: {_HTTP if error.is_http else shown(str(error))}")
            return
        if not self._unfinished.becomes(self._reader.buffered, at_s):
            yield from self._end("closed: too many large requests of all clients are under way")
            return
        yield from self._take_frames()

    def _take_frames(self) -> Effects:
        while self._frames and not self.is_full and self.state in _COMMANDS:
            yield from _COMMANDS[self.state](self, self._frames.pop())

    def _take_hello(self, frame: Frame) -> Effects:
        if frame.type != _C.CONNECT:
            yield from self._end("closed: the first command is not CONNECT")
            return
        self.hello = frame.command.connect
        self._go(Cause.HELLO)
        if self._options.authenticates:
            yield Prove(self.hello)
        else:
            yield from self._admit()

    def _take_proof(self, frame: Frame) -> Effects:
        if frame.type != _C.AUTH_RESPONSE:
            yield from self._end(_TOO_EARLY)
            return
        response = frame.command.authResponse.response
        yield Respond(response.auth_method_name, response.auth_data)

    def _take_command(self, frame: Frame) -> Effects:
        kind = frame.type
        if kind in PASSED_ON:
            yield from self._pass_on(ClientRequest(frame))
        elif kind == _C.PING:
            yield Send(connection.PONG)
        elif kind == _C.AUTH_RESPONSE and self._options.authenticates:
            yield from self._take_proof(frame)
        elif kind == BROKEN:
            yield from self._end(f"closed: {shown(str(frame.error))}")
        elif kind != _C.PONG:
            name = _C.Name(kind) if kind in _C.values() else kind
            yield from self._end(f"closed: {name} needs a tunnel to a broker")

    # ---- authentication ----

    def _authenticated(self, identity: Identity) -> Effects:
        if self.state is State.PROVING:
            self.identity = identity
            yield from self._admit()

    def _refused(self, why: str) -> Effects:
        if Cause.OVER in TRANSITIONS[self.state]:
            yield _NOT_AUTHENTICATED
            yield from self._end(f"closed: authentication failed: {shown(why)}")

    def _admit(self) -> Effects:
        text = self.hello.proxy_to_broker_url
        if text:
            yield from self._admit_tunnel(text)
            return
        self._go(Cause.FOR_LOOKUPS)
        self._reader.max_message_size = self._options.max_message_size
        yield Send(
            connection.connected(
                self._options.version, protocol_version=self.protocol_version, feature_flags=_FLAGS
            )
        )
        yield ServeLookups()
        yield from self._take_frames()

    # ---- tunnel ----

    def _admit_tunnel(self, text: str) -> Effects:
        if self._frames or self._reader.buffered:
            yield from self._end(_TOO_EARLY)
            return
        try:
            target = parse_target(text)
        except BadAddress as error:
            yield from self._refuse_target(str(error))
            return
        if not self._targets.allows(target):
            why = f"{target} is not a known broker, and the configuration does not allow it"
            yield from self._refuse_target(why)
            return
        self.target = target
        self._go(Cause.FOR_TUNNEL)
        yield OpenTunnel(target)

    def _refuse_target(self, why: str) -> Effects:
        yield _failed(ServerError.ServiceNotReady, "Target broker cannot be validated.")
        yield from self._end(f"closed: tunnel refused: {shown(why)}")

    def _reached(self, data: bytes) -> Effects:
        if self.state is State.CONNECTING:
            self._go(Cause.REACHED)
            yield Send(data)

    def _unreachable(self, code: ServerError, text: str) -> Effects:
        if self.state is State.CONNECTING:
            yield _failed(code, "Target broker isn't available.")
            yield from self._end(f"closed: {shown(text)}")

    # ---- requests ----

    def _pass_on(self, request: ClientRequest) -> Effects:
        kind = request.kind.counted_as
        if self._budget.is_full:
            yield self._reject(request)
        elif request.is_too_large:
            text = f"The request is larger than {REQUEST_BYTES_MAX} bytes"
            yield Send(request.refusal(ServerError.NotAllowedError, text))
        elif not self._budget.take(kind, request.held_bytes):
            yield self._reject(request)
        else:
            self._pending[request] = None
            yield Ask(request)

    def _reject(self, request: ClientRequest) -> Send:
        self._budget.rejected[request.kind.counted_as] += 1
        text = "Too many lookups run at once in the proxy"
        return Send(request.refusal(ServerError.ServiceNotReady, text))

    def _answered(self, request: ClientRequest, broker: Address, frame: Frame) -> Effects:
        try:
            step = request.follow(frame, by_tls=self._options.by_tls)
            if isinstance(step, Redirected) and not self._targets.allows(step.address):
                raise LookupFailed(
                    f"{broker} redirects to {step.address}, which is neither listed in "
                    "brokerServiceURL (or -TLS), discovered, nor allowed by "
                    "brokerProxyAllowedHostNames or -IPAddresses"
                )
        except LookupFailed as error:
            yield from self._unanswered(request, ServerError.ServiceNotReady, str(error))
            return
        if isinstance(step, Redirected):
            yield Ask(request, step.address)
            return
        if step.names is not None:
            yield Learn(step.names)
        yield Send(step.data)
        yield from self._done(request)

    def _unanswered(self, request: ClientRequest, code: ServerError, text: str) -> Effects:
        yield Warn(shown(text))
        yield Send(request.refusal(code, _UNAVAILABLE))
        yield from self._done(request)

    def _done(self, request: ClientRequest) -> Effects:
        del self._pending[request]
        self._budget.give(request.held_bytes)
        yield from self._take_frames()

    # ---- keep-alive ----

    def _ticked(self, at_s: float) -> Effects:
        """Drop a client that was silent for two intervals. Not while requests are pending: the
        client may not be read then, and brokers' timeouts bound the time.
        """
        if self.state is not State.LOOKUPS:
            return
        silent_s = at_s - self._heard_s
        since_s = self._unfinished.since_s
        if silent_s >= 2 * KEEP_ALIVE_S and not self._pending:
            yield from self._end(f"silent for {silent_s:g} s, dropped", logging.INFO)
        elif since_s is not None and at_s - since_s >= KEEP_ALIVE_S:
            yield from self._end("closed: a request did not come in time")
        else:
            yield Send(connection.PING)


_COMMANDS: dict[State, Callable[[ClientMachine, Frame], Effects]] = {
    State.HELLO: ClientMachine._take_hello,
    State.PROVING: ClientMachine._take_proof,
    State.LOOKUPS: ClientMachine._take_command,
}
"""Handlers of a client's commands, by state; other states take no commands."""
