"""The Trio driver of one client's machine (spec PX-01, PX-02, PX-04)."""

from __future__ import annotations

import logging
from dataclasses import replace

import trio

from geminga_protocol.encode import frame as encode
from geminga_proxy.addresses import Address
from geminga_proxy.binary import machine as machine_module
from geminga_proxy.binary.connecting import BrokerConnection, BrokerUnavailable, Client
from geminga_proxy.binary.events import (
    Answered,
    Ask,
    Authenticated,
    Drained,
    Effect,
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
)
from geminga_proxy.binary.links import Links
from geminga_proxy.binary.machine import ClientMachine
from geminga_proxy.binary.requests import ClientRequest
from geminga_proxy.binary.state import State
from geminga_proxy.binary.tunnel import run_tunnel
from geminga_proxy.service import ProxyService
from geminga_runtime.auth.api import Identity, Peer
from geminga_runtime.auth.proof import Proof
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Wakeup

_log = logging.getLogger(__name__)

LAST_ANSWERS_S = 1.0
TURN_BYTES = 8 * 1024
"""Bytes of a client without a tunnel that are handled in one turn of the loop: some 600 of the
smallest commands take about 15 ms.
"""
_NOTHING = memoryview(b"")
"""Replaces the empty end of a read, which would keep the read alive."""


async def serve_client(service: ProxyService, stream: FramedStream) -> None:
    """Serve one client until it leaves. The caller closes the stream."""
    session = ProxySession(stream, service)
    with service.one_more(session):
        try:
            await session.run()
        finally:
            session.release()


class ProxySession:
    """A client's connection; `Proof` sees it as `Proved`."""

    def __init__(self, stream: FramedStream, service: ProxyService) -> None:
        self._stream = stream
        self._service = service
        self._machine = ClientMachine(service.options, service.brokers.targets, service.budget)
        self.server_version = service.version
        self.write = stream.write
        self._proof: Proof | None = None
        self._links: Links | None = None
        self._nursery: trio.Nursery | None = None
        self._handshake = trio.CancelScope()
        self._serving = trio.CancelScope()
        self._room = Wakeup()
        self._rest = _NOTHING
        """Bytes that were read and not handled yet."""

    # ---- for proofs ----

    @property
    def nursery(self) -> trio.Nursery:
        """The session's tasks."""
        assert self._nursery is not None
        return self._nursery

    @property
    def protocol_version(self) -> int:
        """The version to speak with the client."""
        return self._machine.protocol_version

    @property
    def supports_refresh(self) -> bool:
        """Whether the client can be asked for fresh credentials."""
        return self._machine.hello.feature_flags.supports_auth_refresh

    def refuse(self, why: str) -> None:
        """Authentication failed: send the client an error, and end the connection."""
        self._feed(Refused(why))

    async def _accept(self, identity: Identity) -> Identity:
        self._feed(Authenticated(identity))
        # The proxy can't put an AUTH_CHALLENGE of its own into a tunnel's bytes.
        is_tunnel = bool(self._machine.hello.proxy_to_broker_url)
        return replace(identity, expires_at_s=None) if is_tunnel else identity

    # ---- events and effects ----

    def _feed(self, event: Event) -> None:
        for effect in self._machine.handle(event):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(data):
                self.write(data)
            case Ask(request, broker):
                self.nursery.start_soon(self._ask, request, broker)
            case Learn(broker):
                self._service.brokers.targets.learn(broker)
            case Prove(hello):
                authenticator = self._service.authenticator
                assert authenticator is not None
                refresh_s = self._service.config.auth.refresh_check_s
                self._proof = Proof(self, authenticator, refresh_s, self._accept)
                self._proof.begin(hello, self._peer)
            case Respond(method, data):
                assert self._proof is not None
                self._proof.respond(method, data)
            case ServeLookups():
                self._handshake.cancel()
                self._serve_lookups()
            case OpenTunnel():
                self._handshake.cancel()
            case Warn(text):
                _log.warning("address=%s: %s", self._stream.name, text)
            case End(text, level):
                if text:
                    _log.log(level, "address=%s %s", self._stream.name, text)
                self._serving.cancel()

    def drain(self) -> None:
        """The proxy stops: answer pending requests, then close; a tunnel continues."""
        self._feed(Drained())

    def release(self) -> None:
        """Return the client's share of the proxy's budget. Call it last."""
        self._machine.release()

    # ---- the connection ----

    async def run(self) -> None:
        """Serve until the connection ends, from either side."""
        machine, broker = self._machine, None
        async with trio.open_nursery() as self._nursery:
            self.nursery.start_soon(self._stream.run_writer)
            try:
                with self._serving:
                    await self._shake_hands()
                    if self._rest and machine.state is State.CONNECTING:
                        await self._receive()  # refused: sent before the tunnel was open
                    if machine.state is State.CONNECTING:
                        broker = await self._reach()
                    while machine.state is State.LOOKUPS:
                        # The read that ended the handshake may already have filled the machine.
                        while machine.is_full or not self._stream.writable:
                            await self._wait_room()
                        await self._receive()
                if broker is not None and machine.state is State.TUNNEL:
                    await run_tunnel(
                        self._service, machine, self._stream, broker, self._peer, self.nursery
                    )
                else:
                    await self._answer_pending()
            finally:
                if broker is not None:
                    await broker.stream.aclose()
            self.nursery.cancel_scope.cancel()

    async def _shake_hands(self) -> None:
        self._handshake.deadline = trio.current_time() + machine_module.HANDSHAKE_S
        with self._handshake:
            while self._machine.state in (State.HELLO, State.PROVING):
                await self._receive()
        if self._machine.state in (State.HELLO, State.PROVING):
            self._feed(TooLate())

    async def _receive(self) -> None:
        """Handle the next bytes; large reads in several turns of the loop."""
        if self._rest:
            await trio.lowlevel.checkpoint()
        else:
            try:
                self._rest = memoryview(await self._stream.receive())
            except ConnectionLost as error:
                self._feed(Left(str(error)))
                return
            if not self._rest:
                self._feed(Left("closed by the client"))
                return
        data = bytes(self._rest[:TURN_BYTES])
        self._rest = self._rest[TURN_BYTES:] or _NOTHING
        self._feed(Received(data, trio.current_time()))

    async def _reach(self) -> BrokerConnection | None:
        """Connect to the broker of the tunnel; None if it can't be reached."""
        machine = self._machine
        assert machine.target is not None
        try:
            broker = await self._service.connector.connect(
                machine.target, self._client(), self.nursery
            )
        except BrokerUnavailable as error:
            self._feed(Unreachable(error.code, str(error)))
            return None
        # No frame before a client's first command has a payload.
        said = [broker.connected, *broker.then]
        self._feed(Reached(b"".join(encode(frame.command) for frame in said)))
        return broker

    async def _answer_pending(self) -> None:
        """Answer pending requests, within LAST_ANSWERS_S."""
        with trio.move_on_after(LAST_ANSWERS_S):
            while self._machine.pending and not self._stream.lost:
                await self._wait_room()
            try:
                await self._stream.flush()
            except ConnectionLost:
                pass

    # ---- lookups ----

    def _serve_lookups(self) -> None:
        client = self._client()
        if self._proof is not None:
            self._proof.on_renewed = client.renewed
        timeout_s = self._service.config.brokers.read_timeout_ms / 1000
        self._links = Links(
            self._service.connector, client, self.nursery, timeout_s, self._wait_writable
        )
        self.nursery.start_soon(self._keep_alive)

    async def _ask(self, request: ClientRequest, broker: Address | None) -> None:
        assert self._links is not None
        try:
            answered = await self._links.ask(request, broker)
        except BrokerUnavailable as error:
            self._feed(Unanswered(request, error.code, str(error)))
        else:
            self._feed(Answered(request, *answered))
        self._room.set()

    async def _keep_alive(self) -> None:
        while True:
            await trio.sleep(machine_module.KEEP_ALIVE_S)
            self._feed(Ticked(trio.current_time()))

    async def _wait_room(self) -> None:
        """Wait until a request is answered, or the send buffer has room."""
        if not self._stream.writable:
            self._stream.on_writable(self._room.set)
        await self._room.wait()

    async def _wait_writable(self) -> None:
        while not self._stream.writable:
            drained = trio.Event()
            self._stream.on_writable(drained.set)
            await drained.wait()

    # ---- the client ----

    def _client(self) -> Client:
        machine = self._machine
        return Client(machine.hello, self._stream.name, identity=machine.identity)

    @property
    def _peer(self) -> Peer:
        return Peer(self._stream.name, self._stream.peer_certificate)
