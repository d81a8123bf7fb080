"""The machine of one client as scripts: handshake and tunnels (spec PX-01, PX-02, PX-04). No
sockets, no tasks, no clock.
"""

from __future__ import annotations

import itertools
import logging

import pytest

from geminga_protocol.commands import answers, connection, lookup, producing
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_proxy.binary._tests.scripts import (
    BROKER,
    EARLY,
    HELLO,
    JOE,
    NOT_AUTHENTICATED,
    PROOF,
    TOPIC,
    TUNNEL,
    Script,
    frame,
    kinds,
)
from geminga_proxy.binary.events import (
    Authenticated,
    Drained,
    Effect,
    End,
    Event,
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
    Unreachable,
)
from geminga_proxy.binary.machine import NO_REQUEST
from geminga_proxy.binary.state import TRANSITIONS, Cause, State

# ---- handshake ----


def test_a_client_is_let_in_for_lookups() -> None:
    script = Script()
    effects = script.sent(connection.connect("c", protocol_version=12))
    assert kinds(effects) == ["CONNECTED", "ServeLookups"]
    assert isinstance(effects[0], Send)
    connected = frame(effects[0].data).command.connected
    assert (connected.server_version, connected.protocol_version) == ("proxy", 12)
    assert connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation
    assert script.machine.state is State.LOOKUPS


def test_any_chunking_of_the_bytes() -> None:
    whole = [HELLO, connection.PING, connection.PING]
    script = Script()
    effects = list(
        itertools.chain.from_iterable(script.sent(bytes([byte])) for byte in b"".join(whole))
    )
    assert effects == Script().sent(*whole)
    assert kinds(effects) == ["CONNECTED", "ServeLookups", "PONG", "PONG"]


def test_authentication_comes_first() -> None:
    script = Script(authenticates=True)
    assert script.sent(HELLO) == [Prove(frame(HELLO).command.connect)]
    assert script.machine.state is State.PROVING
    assert script.sent(PROOF) == [Respond("token", b"fresh")]
    assert kinds(script(Authenticated(JOE))) == ["CONNECTED", "ServeLookups"]
    assert script.machine.identity == JOE
    # A fresh proof, when the first one expires.
    assert script.sent(PROOF) == [Respond("token", b"fresh")]
    assert script(Refused("expired")) == [
        NOT_AUTHENTICATED,
        End("closed: authentication failed: expired"),
    ]
    assert script(Refused("expired")) == []


@pytest.mark.parametrize("request_", [connection.PING, lookup.lookup(TOPIC, 1), HELLO])
def test_nothing_is_taken_before_authentication(request_: bytes) -> None:
    script = Script(authenticates=True)
    assert script.sent(HELLO, request_) == [Prove(frame(HELLO).command.connect), EARLY]
    assert script(Authenticated(JOE)) == []
    assert script.budget.waiting == 0


def test_no_command_is_taken_after_a_refusal_in_the_same_read() -> None:
    """The driver carries out each effect before it takes the next."""
    script = Script(authenticates=True)
    effects: list[Effect] = []
    for effect in script.machine.handle(Received(HELLO + PROOF * 3, 0.0)):
        effects.append(effect)
        if isinstance(effect, Respond):
            effects += script(Refused("out of turn"))
    assert effects == [
        Prove(frame(HELLO).command.connect),
        Respond("token", b"fresh"),
        NOT_AUTHENTICATED,
        End("closed: authentication failed: out of turn"),
    ]


@pytest.mark.parametrize(
    ("data", "effects"),
    [
        (connection.PING, [End("closed: the first command is not CONNECT")]),
        (b"\x16\x03\x01\x02", [End("closed: the peer speaks TLS on the plaintext port")]),
        (
            b"GET /admin HTTP/1.1\r\n",
            [
                NOT_AUTHENTICATED,
                End("closed: the peer speaks HTTP on the port for Pulsar's binary protocol"),
            ],
        ),
        (
            (1 << 20).to_bytes(4, "big") + bytes(8),
            [NOT_AUTHENTICATED, End("closed: frame of 1048580 bytes is above the limit")],
        ),
    ],
)
def test_bad_beginnings(data: bytes, effects: list[Effect]) -> None:
    script = Script()
    found = script.sent(data)
    *said, end = found
    *expected, expected_end = effects
    assert said == expected
    assert isinstance(end, End)
    assert isinstance(expected_end, End)
    assert end.text.startswith(expected_end.text)
    assert script.machine.state is State.ENDING
    assert script.sent(HELLO) == []


def test_a_slow_handshake_ends() -> None:
    script = Script(HELLO, authenticates=True)
    assert script(TooLate()) == [End("closed: not authenticated within 30 s")]
    assert script(Authenticated(JOE)) == []


@pytest.mark.parametrize("first", [(), (HELLO,), (TUNNEL,)])
def test_drained_and_left(first: tuple[bytes, ...]) -> None:
    assert Script(*first)(Drained()) == [End()]
    assert Script(*first)(Left("reset")) == [End("reset", logging.DEBUG)]


# ---- tunnels ----


def test_a_tunnel_to_a_known_broker() -> None:
    script = Script()
    assert script.sent(TUNNEL) == [OpenTunnel(BROKER)]
    assert script.machine.target == BROKER
    connected = connection.connected("broker", protocol_version=19)
    assert script(Reached(connected)) == [Send(connected)]
    assert script.machine.state is State.TUNNEL
    for event in (Drained(), Refused("late"), TooLate(), Left("gone"), Ticked(99.0)):
        assert script(event) == []
    assert script.machine.state is State.TUNNEL


def test_a_tunnel_of_an_authenticated_client() -> None:
    script = Script(authenticates=True)
    assert kinds(script.sent(TUNNEL)) == ["Prove"]
    assert script(Authenticated(JOE)) == [OpenTunnel(BROKER)]


@pytest.mark.parametrize("target", ["evil:6650", "a:22", "nonsense", "a:b:c", "/etc"])
def test_tunnels_lead_to_brokers_only(target: str) -> None:
    script = Script()
    effects = script.sent(connection.connect("c", proxy_to_broker_url=target))
    assert kinds(effects) == ["ERROR", "End"]
    assert isinstance(effects[0], Send)
    error = frame(effects[0].data).command.error
    assert (error.request_id, error.error, error.message) == (
        NO_REQUEST,
        ServerError.ServiceNotReady,
        "Target broker cannot be validated.",
    )


def test_a_client_waits_for_its_tunnel() -> None:
    producer = producing.producer(TOPIC, 1, 2)
    assert Script().sent(TUNNEL, producer) == [EARLY]
    assert Script().sent(TUNNEL, producer[:7]) == [EARLY]
    script = Script(TUNNEL)
    assert script.sent(producer) == [EARLY]
    # The broker is reached in the same moment: too late.
    assert script(Reached(b"connected")) == []


def test_a_broker_that_cannot_be_reached() -> None:
    script = Script(TUNNEL)
    error = answers.error(
        NO_REQUEST, ServerError.AuthorizationError, "Target broker isn't available."
    )
    unreachable = Unreachable(ServerError.AuthorizationError, "a:6650 refused")
    assert script(unreachable) == [Send(error), End("closed: a:6650 refused")]
    assert script(unreachable) == []


# ---- the table ----


def test_states() -> None:
    """Every state but the last two can end, and each can be reached."""
    assert set(TRANSITIONS) == set(State)
    assert {s for s, to in TRANSITIONS.items() if Cause.OVER not in to} == {
        State.TUNNEL,
        State.ENDING,
    }
    reached = {state for to in TRANSITIONS.values() for state in to.values()}
    assert reached == set(State) - {State.HELLO}


EVENTS: list[Event] = [
    Received(HELLO, 1.0),
    Received(TUNNEL, 2.0),
    Received(PROOF + connection.PING, 3.0),
    Received(lookup.lookup(TOPIC, 1), 4.0),
    Left("gone"),
    TooLate(),
    Authenticated(JOE),
    Refused("why"),
    Reached(connection.PING),
    Unreachable(ServerError.ServiceNotReady, "gone"),
    Ticked(5.0),
    Drained(),
]


@pytest.mark.parametrize("authenticates", [False, True])
def test_no_order_of_events_breaks_the_machine(authenticates: bool) -> None:
    """Events in any order: one End at most, nothing after it, no service before authentication."""
    for order in itertools.permutations(EVENTS, 3):
        script = Script(authenticates=authenticates)
        effects = [effect for event in order for effect in script(event)]
        ends = [at for at, effect in enumerate(effects) if isinstance(effect, End)]
        assert ends in ([], [len(effects) - 1])
        opens = any(isinstance(effect, OpenTunnel | ServeLookups) for effect in effects)
        assert not opens or not authenticates or script.machine.identity == JOE
        script.machine.release()
        assert script.budget.waiting == 0
