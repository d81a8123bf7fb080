"""A client's tunnel to one broker, from CONNECTED on (spec PX-02, PX-04), and the log of its
commands (proxyLogLevel, Apache's ParserProxyHandler).

Level 1 logs tunnels and commands, level 2 messages' bytes as well. Credentials are never logged.
"""

from __future__ import annotations

import logging
from typing import Protocol

import trio
from google.protobuf.text_format import MessageToString

from geminga_protocol.frames import BROKEN, SUBMESSAGE, Frame, FrameReader, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand
from geminga_proxy.addresses import Address
from geminga_proxy.binary.connecting import BrokerConnection
from geminga_proxy.binary.machine import ClientMachine
from geminga_proxy.binary.renewal import Renewal, sleep_until
from geminga_proxy.relay import Tunnel, relay
from geminga_proxy.service import ProxyService
from geminga_proxy.traffic import TunnelTopics
from geminga_runtime.auth.api import Peer
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.logs import shown
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls_stream import TlsStream

_log = logging.getLogger(__name__)
access = logging.getLogger("geminga_proxy.access")

COMMAND_CHARACTERS_MAX = 500
PAYLOAD_BYTES_MAX = 1000
SECRET = frozenset({BaseCommand.CONNECT, BaseCommand.AUTH_CHALLENGE, BaseCommand.AUTH_RESPONSE})
"""Commands with credentials: only their names are logged."""


async def run_tunnel(
    service: ProxyService,
    machine: ClientMachine,
    stream: FramedStream,
    broker: BrokerConnection,
    peer: Peer,
    nursery: trio.Nursery,
) -> None:
    """Relay bytes until both sides have ended, one breaks, or the client's credentials expire. The
    streams are closed by their owners.
    """
    name, target = stream.name, machine.target
    metrics, tunnels = service.metrics, service.tunnels
    role = machine.identity.role if machine.identity else None
    tunnel = logged_tunnel(service, name, target, role)
    rest = broker.reader.take_rest()
    stream.write(rest)
    if tunnel.down.on_data is not None:
        tunnel.down.on_data(rest)
    metrics.tunnels += 1
    tunnels.add(tunnel)
    try:
        theirs, ours = await broker.stream.detach(), await stream.detach()
        service.traffic.open(tunnel, f"/{name}", _place(target, theirs))
        nursery.start_soon(_end_with_proof, service, machine, tunnel, peer)
        await relay(ours, theirs, metrics, tunnel)
    except ConnectionLost as error:
        _log.debug("address=%s: %s", name, error)
    finally:
        metrics.tunnels -= 1
        tunnels.remove(tunnel)
        service.traffic.close(tunnel)
        if tunnel.up.on_data is not None and service.log_level:
            access.info("%s -> %s ended", name, target)


def _place(target: Address | None, stream: trio.abc.Stream) -> str:
    """Where a broker is, as Java writes it: `host/address:port`."""
    transport = stream.transport_stream if isinstance(stream, TlsStream) else stream
    assert isinstance(transport, trio.SocketStream)
    try:
        host, port = transport.socket.getpeername()[:2]
    except OSError:  # reset
        return str(target)
    return f"{target.host if target else ''}/{Address(host, port)}"


async def _end_with_proof(
    service: ProxyService, machine: ClientMachine, tunnel: Tunnel, peer: Peer
) -> None:
    """End the tunnel when the client's credentials expire. A broker that got these credentials
    may have asked it for fresh ones.
    """
    identity, authenticator, hello = machine.identity, service.authenticator, machine.hello
    if identity is None or identity.expires_at_s is None or authenticator is None:
        return
    if service.brokers.credentials.forwards and hello.feature_flags.supports_auth_refresh:
        refresh_s = service.config.auth.refresh_check_s
        method = hello.auth_method_name
        renewal = Renewal(authenticator, peer, method, identity, refresh_s)
        await renewal.wait_expired(tunnel.up)
    else:
        await sleep_until(identity.expires_at_s)
    _log.warning("address=%s closed: credentials expired", peer.address)
    tunnel.scope.cancel()


class Look(Protocol):
    """Sees each command of one direction."""

    def __call__(self, frame: Frame, *, counts: bool) -> None: ...


class FrameLog:
    """Logs one direction of a tunnel as the proxy's level is then, and counts its messages at
    level 2. Holds at most one unfinished frame.
    """

    def __init__(self, name: str, service: ProxyService, look: Look) -> None:
        self._name = name
        self._service = service
        self._look = look
        self._reader = FrameReader()
        self._is_broken = False

    def feed(self, data: bytes) -> None:
        """Log the commands that are complete."""
        if self._is_broken:
            return
        try:
            frames = self._reader.feed(data)
        except FramingError as error:
            self._is_broken = True
            frames = error.frames
        level = self._service.log_level
        for frame in frames:
            self._look(frame, counts=level > 1)
            if level:
                access.info("%s %s", self._name, described(frame, with_payload=level > 1))
        if self._is_broken and level:
            access.info("%s framing lost, no more commands are logged", self._name)


def logged_tunnel(
    service: ProxyService, name: str, target: Address | None, role: str | None
) -> Tunnel:
    """A tunnel of the client at `name`; commands are logged from level 1 on. One that was opened at
    level 0 stays without: commands can't be found in the middle of its bytes.
    """
    if not service.log_level:
        return Tunnel()
    topics = TunnelTopics(service.traffic)
    access.info("%s -> %s role=%s", name, target, shown(role or "none"))
    up = FrameLog(f"{name} -> {target}", service, topics.up)
    down = FrameLog(f"{name} <- {target}", service, topics.down)
    return Tunnel(up.feed, down.feed)


def described(frame: Frame, *, with_payload: bool) -> str:
    """A command in one line, without credentials."""
    kind = frame.type
    if kind == BROKEN or kind not in SUBMESSAGE:
        return f"unreadable command ({kind})"
    name = BaseCommand.Type.Name(BaseCommand.Type.ValueType(kind))
    if kind in SECRET:
        return name
    body = getattr(frame.command, SUBMESSAGE[kind])
    text = MessageToString(body, as_one_line=True)[:COMMAND_CHARACTERS_MAX]
    told = f"{name} {{{text}}}"
    if frame.payload is not None:
        told += f" {frame.payload.nbytes} bytes"
        if with_payload:
            told += f" {bytes(frame.payload[:PAYLOAD_BYTES_MAX])!r}"
    return told
