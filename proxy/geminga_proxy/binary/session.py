"""One client of the proxy: hand-shake, then either lookups or a tunnel to one broker (spec PX-01,
PX-02, PX-04).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from geminga_protocol.commands import answers, connection
from geminga_protocol.encode import frame as encode
from geminga_protocol.frames import BROKEN, Frame, FrameReader, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandConnect,
    FeatureFlags,
    ServerError,
)
from geminga_proxy.addresses import Address, BadAddress, parse_target
from geminga_proxy.binary.access_log import access, logged_tunnel
from geminga_proxy.binary.links import PASSED_ON, Kind, Lookups
from geminga_proxy.binary.renewal import Renewal, sleep_until
from geminga_proxy.bounds import REQUEST_BYTES_MAX, SMALL_BYTES, Unfinished
from geminga_proxy.brokers import BrokerConnection, BrokerUnavailable, Client
from geminga_proxy.relay import Tunnel, relay
from geminga_runtime.auth.api import Identity, Peer
from geminga_runtime.auth.proof import Proof
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.logs import shown
from geminga_runtime.stream import FramedStream

if TYPE_CHECKING:
    from geminga_proxy.service import ProxyService

_log = logging.getLogger(__name__)

NO_REQUEST = (1 << 64) - 1
HANDSHAKE_S = 30.0
"""How long a client may take until it is let in."""
HELLO_BYTES_MAX = 64 * 1024
"""Of a command before that: many clients may be in their hand-shake at once."""
KEEP_ALIVE_S = 30.0
"""Who looks things up is asked so often whether it is there (PR-12); in tunnels brokers ask."""
LAST_ANSWERS_S = 1.0
REQUESTS_MAX = 5000
"""Of one client that wait for a broker; no more are read."""

_C = BaseCommand.Type
_FLAGS = FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)
_TLS_HELLO = b"\x16\x03"
"""How a TLS handshake begins (RFC 8446, 5.1)."""


class _Left(Exception):
    """The client has gone by itself."""


class _Ended(Exception):
    """The client must go; the text goes to the log."""


class ProxySession:
    """A client's connection until it is a tunnel, and the owner of the tunnel then."""

    def __init__(self, stream: FramedStream, service: ProxyService) -> None:
        self.stream = stream
        self.service = service
        self.server_version = service.version
        self.protocol_version = 0
        self.supports_refresh = False
        self.write = stream.write
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._hello: CommandConnect | None = None
        self._frames: list[Frame] = []
        self._proof: Proof | None = None
        self._identity: Identity | None = None
        self._asking = trio.CancelScope()
        self._serving = trio.CancelScope()
        self._client: Client | None = None
        self._lookups: Lookups | None = None
        self._nursery: trio.Nursery | None = None
        self._broker: BrokerConnection | None = None
        self._requests = 0
        self._room: trio.Event | None = None
        self._heard_s = 0.0
        self._unfinished = Unfinished(service.held)

    # ---- what proofs ask of a connection ----

    @property
    def nursery(self) -> trio.Nursery:
        """Of this session's tasks."""
        assert self._nursery is not None
        return self._nursery

    def refuse(self, why: str) -> None:
        """The client hears little and is closed; once."""
        if not self._serving.cancel_called:
            _log.warning("address=%s is not let in: %s", self.stream.name, shown(why))
            self._say_failed()
            self._serving.cancel()

    def _say_failed(self) -> None:
        text = "Failed to authenticate"
        self.write(answers.error(NO_REQUEST, ServerError.AuthenticationError, text))

    def release(self) -> None:
        """The session is over: nothing is held for it any more."""
        self._unfinished.becomes(0, 0.0)

    def drain(self) -> None:
        """The proxy stops: what was asked is still answered; a tunnel goes on."""
        self._serving.cancel()

    # ---- the course of it ----

    async def run(self) -> None:
        """Until the client leaves. The stream is the caller's to close."""
        name, target = self.stream.name, None
        async with trio.open_nursery() as self._nursery:
            self.nursery.start_soon(self.stream.run_writer)
            try:
                with self._serving:
                    with trio.fail_after(HANDSHAKE_S):
                        await self._shake_hands()
                    target = self._target()
                    if target is None:
                        await self._serve_lookups()
                    else:
                        await self._reach(target)
            except trio.TooSlowError:
                _log.warning("address=%s not let in within %g s", name, HANDSHAKE_S)
            except (_Ended, FramingError) as error:
                _log.warning("address=%s closed: %s", name, shown(str(error)))
            except (_Left, ConnectionLost) as error:
                _log.debug("address=%s %s", name, error)
            if self._broker is None:
                await self._end()
            else:
                await self._tunnel(self._broker, target)
            self.nursery.cancel_scope.cancel()

    async def _end(self) -> None:
        """What was asked is answered, what was answered is sent, if that doesn't take long."""
        with trio.move_on_after(LAST_ANSWERS_S):
            while self._requests and not self.stream.lost:
                await self._wait_room()
            try:
                await self.stream.flush()
            except ConnectionLost:
                pass

    async def _next(self) -> Frame:
        """Raises _Left, ConnectionLost, FramingError."""
        while not self._frames:
            data = await self.stream.receive()
            if not data:
                raise _Left("the client left")
            self._heard_s = trio.current_time()
            if self._hello is None and data.startswith(_TLS_HELLO):
                raise _Ended("the peer speaks TLS on the plaintext port")
            self._frames = self._reader.feed(data)
            if not self._unfinished.becomes(self._reader.buffered, self._heard_s):
                raise _Ended("too many large requests of all clients are under way")
        return self._frames.pop(0)

    async def _shake_hands(self) -> None:
        try:
            frame = await self._next()
        except FramingError:
            self._say_failed()
            raise
        if frame.type != _C.CONNECT:
            raise _Ended("the first command is not CONNECT")
        hello = self._hello = frame.command.connect
        self.protocol_version = min(hello.protocol_version, connection.PROTOCOL_VERSION)
        self.supports_refresh = hello.feature_flags.supports_auth_refresh
        authenticator = self.service.authenticator
        if authenticator is not None:
            refresh_s = self.service.config.auth.refresh_check_s
            self._proof = Proof(self, authenticator, refresh_s, self._accept)
            self._proof.begin(hello, self._peer)
            # A provider that asks for more is answered here, until it lets the client in.
            with self._asking:
                await self._hear_answers(self._proof)
        self._client = Client(hello, self.stream.name, identity=self._identity)

    async def _hear_answers(self, proof: Proof) -> None:
        while True:
            frame = await self._next()
            if frame.type != _C.AUTH_RESPONSE:
                raise _Ended("a command before the client was let in")
            response = frame.command.authResponse.response
            proof.respond(response.auth_method_name, response.auth_data)
            await trio.lowlevel.checkpoint()

    async def _accept(self, identity: Identity) -> Identity:
        self._identity = identity
        self._asking.cancel()
        assert self._hello is not None
        # In the middle of a tunnel's bytes the client can't be asked for another proof.
        return replace(identity, expires_at_s=None) if self._hello.proxy_to_broker_url else identity

    def _target(self) -> Address | None:
        """Where a tunnel is to lead; None for a client that wants lookups. Raises _Ended."""
        assert self._hello is not None
        text = self._hello.proxy_to_broker_url
        if not text:
            return None
        if self._frames or self._reader.buffered:
            raise _Ended("a command before the client was let in")
        try:
            address = parse_target(text)
        except BadAddress as error:
            raise self._refused_target(str(error)) from None
        if not self.service.brokers.targets.allows(address):
            why = f"{address} is no known broker, nor allowed by the configuration"
            raise self._refused_target(why)
        return address

    def _refused_target(self, why: str) -> _Ended:
        text = "Target broker cannot be validated."
        self.write(answers.error(NO_REQUEST, ServerError.ServiceNotReady, text))
        return _Ended(f"it wants a tunnel: {why}")

    @property
    def _peer(self) -> Peer:
        certificate = self.stream.peer_certificate
        return Peer(self.stream.name, certificate.der if certificate else None)

    # ---- lookups ----

    async def _serve_lookups(self) -> None:
        assert self._client is not None
        self.write(
            connection.connected(
                self.server_version, protocol_version=self.protocol_version, feature_flags=_FLAGS
            )
        )
        timeout_s = self.service.config.brokers.read_timeout_ms / 1000
        brokers = self.service.brokers
        self._reader.max_message_size = self.service.config.listen.max_message_size_bytes
        self._lookups = Lookups(brokers, self._client, self.nursery, timeout_s, self._wait_writable)
        if self._proof is not None:
            self._proof.on_renewed = self._client.renewed
        self.nursery.start_soon(self._keep_alive)
        while True:
            self._take(await self._next())
            while self._requests >= REQUESTS_MAX or not self.stream.writable:
                await self._wait_room()

    def _take(self, frame: Frame) -> None:
        kind = frame.type
        if kind in PASSED_ON:
            self._pass_on(frame)
        elif kind == _C.PING:
            self.write(connection.PONG)
        elif kind == _C.AUTH_RESPONSE and self._proof is not None:
            response = frame.command.authResponse.response
            self._proof.respond(response.auth_method_name, response.auth_data)
        elif kind == BROKEN:
            raise _Ended(str(frame.error))
        elif kind != _C.PONG:
            name = _C.Name(kind) if kind in _C.values() else kind
            raise _Ended(f"{name} needs a tunnel to a broker")

    def _pass_on(self, frame: Frame) -> None:
        kind = PASSED_ON[frame.type]
        metrics = self.service.metrics
        if self.service.lookups >= self.service.config.listen.lookups_max:
            self._refuse_full(frame, kind)
            return
        held = frame.command.ByteSize()
        held = 0 if held <= SMALL_BYTES else held
        if held > REQUEST_BYTES_MAX and frame.type != _C.GET_OR_CREATE_SCHEMA:
            request_id = getattr(frame.command, kind.field).request_id
            text = f"The request is larger than {REQUEST_BYTES_MAX} bytes"
            self.write(kind.refuse(request_id, ServerError.NotAllowedError, text))
            return
        if held and not self.service.held.take(held):
            self._refuse_full(frame, kind)
            return
        metrics.lookups[kind.counted_as] += 1
        self.service.lookups += 1
        self._requests += 1
        self.nursery.start_soon(self._answer, frame, held)

    def _refuse_full(self, frame: Frame, kind: Kind) -> None:
        self.service.metrics.rejected[kind.counted_as] += 1
        request_id = getattr(frame.command, kind.field).request_id
        text = "Too many lookups run at once in the proxy"
        self.write(kind.refuse(request_id, ServerError.ServiceNotReady, text))

    async def _answer(self, frame: Frame, held: int) -> None:
        assert self._lookups is not None
        try:
            self.write(await self._lookups.answer(frame))
        finally:
            self.service.held.give(held)
            self.service.lookups -= 1
            self._requests -= 1
            self._look_for_room()

    async def _wait_room(self) -> None:
        """Until a request was answered, or the client has read its answers."""
        self._room = trio.Event()
        if not self.stream.writable:
            self.stream.on_writable(self._look_for_room)
        await self._room.wait()

    async def _wait_writable(self) -> None:
        while not self.stream.writable:
            drained = trio.Event()
            self.stream.on_writable(drained.set)
            await drained.wait()

    def _look_for_room(self) -> None:
        if self._room is not None:
            self._room.set()

    async def _keep_alive(self) -> None:
        """End a client that has been silent for two intervals. One that isn't read can't be heard;
        its answers are late by no more than brokers' time for them.
        """
        while True:
            await trio.sleep(KEEP_ALIVE_S)
            silent_s = trio.current_time() - self._heard_s
            if silent_s >= 2 * KEEP_ALIVE_S and not self._requests:
                _log.info("address=%s silent for %g s, dropped", self.stream.name, silent_s)
                self._serving.cancel()
                return
            since_s = self._unfinished.since_s
            if since_s is not None and trio.current_time() - since_s >= KEEP_ALIVE_S:
                _log.warning("address=%s closed: a request did not come in time", self.stream.name)
                self._serving.cancel()
                return
            self.write(connection.PING)

    # ---- tunnel ----

    async def _reach(self, target: Address) -> None:
        assert self._client is not None
        try:
            self._broker = await self.service.brokers.connect(target, self._client, self.nursery)
        except BrokerUnavailable as error:
            text = "Target broker isn't available."
            self.write(answers.error(NO_REQUEST, error.code, text))
            raise _Ended(str(error)) from None

    async def _tunnel(self, broker: BrokerConnection, target: Address | None) -> None:
        """From here on bytes only. What either side had sent already goes first."""
        name = self.stream.name
        role = self._identity.role if self._identity else None
        tunnel = logged_tunnel(name, target, role, self.service.config.listen.log_level)
        rest = broker.reader.take_rest()
        self.write(encode(broker.connected.command), *map(_whole, broker.then), rest)
        if tunnel.down.see is not None:
            tunnel.down.see(rest)
        metrics, tunnels = self.service.metrics, self.service.tunnels
        metrics.tunnels += 1
        tunnels.add(tunnel)
        try:
            theirs, ours = await broker.stream.detach(), await self.stream.detach()
            self.nursery.start_soon(self._end_with_proof, tunnel)
            await relay(ours, theirs, metrics, tunnel)
        except ConnectionLost as error:
            _log.debug("address=%s: %s", name, error)
        finally:
            metrics.tunnels -= 1
            tunnels.remove(tunnel)
            await broker.stream.aclose()
            if tunnel.up.see is not None:
                access.info("%s -> %s ended", name, target)

    async def _end_with_proof(self, tunnel: Tunnel) -> None:
        """End the tunnel when the client's proof is over. Brokers that were given the client's
        credentials may have asked it for a fresh one.
        """
        identity, authenticator = self._identity, self.service.authenticator
        if identity is None or identity.expires_at_s is None or authenticator is None:
            return
        assert self._hello is not None
        if self.service.config.client.forward_credentials and self.supports_refresh:
            refresh_s = self.service.config.auth.refresh_check_s
            method = self._hello.auth_method_name
            renewal = Renewal(authenticator, self._peer, method, identity, refresh_s)
            await renewal.wait_expired(tunnel.up)
        else:
            await sleep_until(identity.expires_at_s)
        _log.warning("address=%s closed: its proof expired", self.stream.name)
        tunnel.scope.cancel()


def _whole(frame: Frame) -> bytes:
    """A broker's command as it came; before a client's first one, none has a payload."""
    return encode(frame.command)
