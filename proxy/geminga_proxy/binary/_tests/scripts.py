"""Scripts for the machine of one client: an event, then the effects it must have."""

from __future__ import annotations

from geminga_protocol.commands import answers, connection, lookup
from geminga_protocol.frames import Frame, FrameReader
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, Schema, ServerError
from geminga_proxy.addresses import Address
from geminga_proxy.binary.events import (
    Ask,
    Effect,
    End,
    Event,
    Received,
    Send,
)
from geminga_proxy.binary.machine import NO_REQUEST, ClientMachine, Options
from geminga_proxy.binary.requests import ClientRequest
from geminga_proxy.bounds import HeldBytes, RequestBudget
from geminga_proxy.trust import Targets
from geminga_runtime.auth.api import Identity

TOPIC = "persistent://public/default/t"
BROKER, OTHER, STRANGER = Address("a", 6650), Address("b", 6650), Address("evil", 6650)
JOE = Identity("joe", "token")
HELLO = connection.connect("c", auth_method_name="token", auth_data=b"jwt")
TUNNEL = connection.connect("c", proxy_to_broker_url="a:6650")
PROOF = connection.auth_response("c", "token", b"fresh")
NOT_AUTHENTICATED = Send(
    answers.error(NO_REQUEST, ServerError.AuthenticationError, "Failed to authenticate")
)
EARLY = End("closed: a command before authentication")


class Script:
    """A machine, and the events that it was given."""

    def __init__(
        self,
        *first: bytes,
        authenticates: bool = False,
        by_tls: bool = False,
        requests_max: int = 10,
        held_bytes_max: int = 1 << 20,
    ) -> None:
        self.targets = Targets([BROKER, OTHER], "", "", "6650")
        self.budget = RequestBudget(requests_max, HeldBytes(held_bytes_max))
        options = Options("proxy", authenticates, by_tls, 5 << 20)
        self.machine = ClientMachine(options, self.targets, self.budget)
        for data in first:
            self.sent(data)

    def __call__(self, event: Event) -> list[Effect]:
        return list(self.machine.handle(event))

    def sent(self, *data: bytes, at_s: float = 0.0) -> list[Effect]:
        return self(Received(b"".join(data), at_s))

    def asked(self, *data: bytes) -> list[ClientRequest]:
        """The requests that these bytes make the machine pass on."""
        found = []
        for effect in self.sent(*data):
            assert isinstance(effect, Ask)
            assert effect.broker is None
            found.append(effect.request)
        return found


def frame(data: bytes) -> Frame:
    (found,) = FrameReader().feed(data)
    return found


def schema(size: int) -> Schema:
    return Schema(name="s", type=Schema.Type.Value("String"), schema_data=bytes(size))


def kinds(effects: list[Effect]) -> list[str]:
    """The commands that are sent, and the names of all other effects."""
    return [
        BaseCommand.Type.Name(frame(effect.data).command.type)
        if isinstance(effect, Send)
        else type(effect).__name__
        for effect in effects
    ]


def named(request_id: int, broker: Address, *, redirect: bool = False) -> Frame:
    url = f"pulsar://{broker}"
    return frame(lookup.lookup_response(request_id, broker_url=url, redirect=redirect))
