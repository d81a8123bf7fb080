"""Events of a client's connection, and effects of its machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from geminga_protocol.frames import Frame
from geminga_protocol.pb.pulsar_api_pb2 import CommandConnect, ServerError
from geminga_proxy.addresses import Address
from geminga_proxy.binary.requests import ClientRequest
from geminga_runtime.auth.api import Identity

# ---- events ----


class Received(NamedTuple):
    """The client sent bytes."""

    data: bytes
    at_s: float


class Left(NamedTuple):
    """The client closed the connection, or it broke."""

    text: str


class TooLate(NamedTuple):
    """HANDSHAKE_S have passed."""


class Authenticated(NamedTuple):
    """The client's proof is good."""

    identity: Identity


class Refused(NamedTuple):
    """The client's proof is bad, or no fresh one came."""

    why: str


class Reached(NamedTuple):
    """The broker of the tunnel sent CONNECTED, and perhaps more."""

    data: bytes


class Unreachable(NamedTuple):
    """The broker of the tunnel can't be reached, or refused the proxy."""

    code: ServerError
    text: str


class Answered(NamedTuple):
    """A broker responded to a request."""

    request: ClientRequest
    broker: Address
    frame: Frame


class Unanswered(NamedTuple):
    """A request failed without a broker's response."""

    request: ClientRequest
    code: ServerError
    text: str


class Ticked(NamedTuple):
    """KEEP_ALIVE_S have passed since the last tick."""

    at_s: float


class Drained(NamedTuple):
    """The proxy stops."""


Event = (
    Received | Left | TooLate | Authenticated | Refused | Reached
    | Unreachable | Answered | Unanswered | Ticked | Drained
)  # fmt: skip


# ---- effects ----


class Send(NamedTuple):
    """Send these bytes to the client."""

    data: bytes


class Prove(NamedTuple):
    """Check the credentials in CONNECT; Authenticated or Refused follows."""

    hello: CommandConnect


class Respond(NamedTuple):
    """Check these credentials from AUTH_RESPONSE."""

    method: str
    data: bytes


class ServeLookups(NamedTuple):
    """The client is authenticated: read its commands, and send PINGs."""


class OpenTunnel(NamedTuple):
    """Connect to the broker; Reached or Unreachable follows. The client isn't read meanwhile."""

    target: Address


class Ask(NamedTuple):
    """Send the request to `broker`, or to any; Answered or Unanswered follows."""

    request: ClientRequest
    broker: Address | None = None


class Learn(NamedTuple):
    """A broker named this one: tunnels may lead there."""

    broker: Address


class Warn(NamedTuple):
    """Log a warning."""

    text: str


class End(NamedTuple):
    """Stop reading, and close when pending requests are answered. `text` is for the log."""

    text: str = ""
    level: int = logging.WARNING


Effect = Send | Prove | Respond | ServeLookups | OpenTunnel | Ask | Learn | Warn | End
Effects = Iterator[Effect]
