"""States of a client's connection, and their transitions (pure; spec PX-01, PX-02)."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """State of a connection."""

    HELLO = "waits for CONNECT"
    PROVING = "authenticates the client"
    CONNECTING = "connects to the broker of a tunnel"
    LOOKUPS = "serves lookups"
    TUNNEL = "relays bytes"
    ENDING = "answers pending requests, then closes"


class Cause(Enum):
    """Cause of a state's change."""

    HELLO = "CONNECT came"
    FOR_LOOKUPS = "the client is authenticated and names no broker"
    FOR_TUNNEL = "the client is authenticated and names a broker"
    REACHED = "the broker sent CONNECTED"
    OVER = "the connection ends, from either side, or the proxy stops"


TRANSITIONS: dict[State, dict[Cause, State]] = {
    State.HELLO: {Cause.HELLO: State.PROVING, Cause.OVER: State.ENDING},
    State.PROVING: {
        Cause.FOR_LOOKUPS: State.LOOKUPS,
        Cause.FOR_TUNNEL: State.CONNECTING,
        Cause.OVER: State.ENDING,
    },
    State.CONNECTING: {Cause.REACHED: State.TUNNEL, Cause.OVER: State.ENDING},
    State.LOOKUPS: {Cause.OVER: State.ENDING},
    State.TUNNEL: {},
    State.ENDING: {},
}
"""The next state by cause. A cause without an entry is a defect: KeyError."""
