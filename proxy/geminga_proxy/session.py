"""One client of the proxy: hand-shake, then either lookups or a tunnel to one broker (spec PX-01,
PX-02, PX-04).
"""

from __future__ import annotations

import logging
import time
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
from geminga_proxy.brokers import BrokerUnavailable, Client, Greeted
from geminga_proxy.lookups import PASSED_ON, Lookups
from geminga_proxy.relay import relay
from geminga_runtime.auth.api import Identity, Peer
from geminga_runtime.auth.proof import Proof
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.stream import FramedStream

if TYPE_CHECKING:
    from geminga_proxy.service import ProxyService

_log = logging.getLogger(__name__)
_access = logging.getLogger("geminga.proxy.access")

NO_REQUEST = (1 << 64) - 1
HANDSHAKE_S = 30.0
"""How long a client may take until it is let in."""
LAST_ANSWERS_S = 1.0
PROXY_PROTOCOL_VERSION = 10
"""The first version whose clients can be told to come through a proxy."""

_C = BaseCommand.Type
_FLAGS = FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)


class _Ended(Exception):
    """The client left, or must go; the text goes to the log."""


class ProxySession:
    """A client's connection until it is a tunnel, and the owner of the tunnel then."""

    def __init__(self, stream: FramedStream, service: ProxyService) -> None:
        self.stream = stream
        self.service = service
        self.server_version = service.version
        self.protocol_version = 0
        self.supports_refresh = False
        self.write = stream.write
        self._reader = FrameReader()
        self._hello: CommandConnect | None = None
        self._frames: list[Frame] = []
        self._proof: Proof | None = None
        self._identity: Identity | None = None
        self._asking = trio.CancelScope()
        self._lookups: Lookups | None = None
        self._nursery: trio.Nursery | None = None
        self._broker: Greeted | None = None

    # ---- what proofs ask of a connection ----

    @property
    def nursery(self) -> trio.Nursery:
        """Of this session's tasks."""
        assert self._nursery is not None
        return self._nursery

    def refuse(self, why: str) -> None:
        """The client hears little and is closed."""
        self._close(why, ServerError.AuthenticationError, "Failed to authenticate")

    def _close(self, why: str, code: ServerError, text: str) -> None:
        _log.warning("address=%s closed: %s", self.stream.name, why)
        self.write(answers.error(NO_REQUEST, code, text))
        self.nursery.start_soon(self._end)

    async def _end(self) -> None:
        with trio.move_on_after(LAST_ANSWERS_S):
            try:
                await self.stream.flush()
            except ConnectionLost:
                pass
        self.nursery.cancel_scope.cancel()

    # ---- the course of it ----

    async def run(self) -> None:
        """Until the client leaves. The stream is the caller's to close."""
        target = None
        async with trio.open_nursery() as self._nursery:
            self.nursery.start_soon(self.stream.run_writer)
            try:
                with trio.fail_after(HANDSHAKE_S):
                    await self._shake_hands()
                target = self._target()
                if target is None:
                    await self._serve_lookups()
                else:
                    await self._reach(target)
            except trio.TooSlowError:
                _log.warning("address=%s not done with its hand-shake", self.stream.name)
            except (_Ended, ConnectionLost, FramingError) as error:
                _log.debug("address=%s ended: %s", self.stream.name, error)
            if self._broker is None:
                with trio.move_on_after(LAST_ANSWERS_S):
                    await self._flush()
                self.nursery.cancel_scope.cancel()
            else:
                await self._tunnel(self._broker, target)

    async def _flush(self) -> None:
        try:
            await self.stream.flush()
        except ConnectionLost:
            pass

    async def _next(self) -> Frame:
        """Raises _Ended, ConnectionLost, FramingError."""
        while not self._frames:
            data = await self.stream.receive()
            if not data:
                raise _Ended("the client left")
            self._frames = self._reader.feed(data)
        return self._frames.pop(0)

    async def _shake_hands(self) -> None:
        frame = await self._next()
        if frame.type != _C.CONNECT:
            raise _Ended("the first command is not CONNECT")
        hello = self._hello = frame.command.connect
        self.protocol_version = min(hello.protocol_version, connection.PROTOCOL_VERSION)
        self.supports_refresh = hello.feature_flags.supports_auth_refresh
        authenticator = self.service.authenticator
        if authenticator is None:
            return
        refresh_s = self.service.config.auth.refresh_check_s
        certificate = self.stream.peer_certificate
        peer = Peer(self.stream.name, certificate.der if certificate else None)
        self._proof = Proof(self, authenticator, refresh_s, self._accept)
        self._proof.begin(hello, peer)
        # A provider that asks for more is answered here, until it lets the client in.
        with self._asking:
            await self._hear_answers()

    async def _hear_answers(self) -> None:
        while True:
            frame = await self._next()
            if frame.type != _C.AUTH_RESPONSE or self._proof is None:
                raise _Ended("a command before the client was let in")
            response = frame.command.authResponse.response
            self._proof.respond(response.auth_method_name, response.auth_data)

    async def _accept(self, identity: Identity) -> Identity | None:
        self._identity = identity
        self._asking.cancel()
        return identity

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
            self._refuse_target(str(error))
            raise _Ended("a bad target") from None
        if not self.service.brokers.targets.allows(address):
            self._refuse_target(f"{address} is no known broker, nor allowed by the configuration")
            raise _Ended("a target that isn't allowed")
        return address

    def _refuse_target(self, why: str) -> None:
        _log.warning("address=%s wants a tunnel: %s", self.stream.name, why)
        text = "Target broker cannot be validated."
        self.write(answers.error(NO_REQUEST, ServerError.ServiceNotReady, text))

    def _client(self) -> Client:
        assert self._hello is not None
        identity, hello = self._identity, self._hello
        if identity is None:
            return Client(hello)
        return Client(hello, identity.role, hello.auth_method_name, hello.auth_data)

    # ---- lookups ----

    async def _serve_lookups(self) -> None:
        self.write(
            connection.connected(
                self.server_version, protocol_version=self.protocol_version, feature_flags=_FLAGS
            )
        )
        timeout_s = self.service.config.brokers.read_timeout_ms / 1000
        brokers = self.service.brokers
        self._lookups = Lookups(brokers, self._client(), self.nursery, timeout_s)
        while True:
            self._take(await self._next())

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
            metrics.rejected_lookups += 1
            request_id = getattr(frame.command, kind.field).request_id
            text = "Too many lookups run at once in the proxy"
            self.write(kind.refuse(request_id, ServerError.ServiceNotReady, text))
            return
        metrics.lookups[kind.counted_as] += 1
        self.service.lookups += 1
        self.nursery.start_soon(self._answer, frame)

    async def _answer(self, frame: Frame) -> None:
        assert self._lookups is not None
        try:
            self.write(await self._lookups.answer(frame))
        finally:
            self.service.lookups -= 1

    # ---- tunnel ----

    async def _reach(self, target: Address) -> None:
        try:
            self._broker = await self.service.brokers.greet(target, self._client(), self.nursery)
        except BrokerUnavailable as error:
            _log.warning("address=%s: %s", self.stream.name, error)
            text = "Target broker isn't available."
            self.write(answers.error(NO_REQUEST, ServerError.ServiceNotReady, text))
            raise _Ended("the broker can't be reached") from None

    async def _tunnel(self, broker: Greeted, target: Address | None) -> None:
        """From here on bytes only. What either side had sent already goes first."""
        self.write(encode(broker.connected.command), *map(_whole, broker.then))
        self.write(broker.reader.take_rest())
        if self.service.config.listen.log_level > 0:
            _access.info("%s -> %s as %s", self.stream.name, target, self._role)
        self.service.metrics.tunnels += 1
        try:
            theirs, ours = await broker.stream.detach(), await self.stream.detach()
            with trio.move_on_at(self._ends_at()) as life:
                await relay(ours, theirs, self.service.metrics)
            if life.cancelled_caught:
                _log.warning("address=%s: its proof expired", self.stream.name)
        except ConnectionLost as error:
            _log.debug("address=%s: %s", self.stream.name, error)
        finally:
            self.service.metrics.tunnels -= 1
            await broker.stream.aclose()
        self.nursery.cancel_scope.cancel()

    @property
    def _role(self) -> str | None:
        return self._identity.role if self._identity else None

    def _ends_at(self) -> float:
        """When a tunnel must end because the client's proof does: the proxy can't ask for another
        in the middle of its bytes. Brokers that were given the client's credentials ask themselves.
        """
        identity = self._identity
        if (
            identity is None
            or identity.expires_at_s is None
            or self.service.config.client.forward_credentials
        ):
            return float("inf")
        return trio.current_time() + max(0.0, identity.expires_at_s - time.time())


def _whole(frame: Frame) -> bytes:
    """A broker's command as it came; before a client's first one, none has a payload."""
    return encode(frame.command)
