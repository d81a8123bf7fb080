"""A client's tunnel to one broker, from CONNECTED on (spec PX-02, PX-04), and the log of its
commands (proxyLogLevel, Apache's ParserProxyHandler).

Level 1 logs tunnels and commands, level 2 messages' bytes as well. Credentials are never logged.
"""

from __future__ import annotations

import logging

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
from geminga_runtime.auth.api import Peer
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.logs import shown
from geminga_runtime.stream import FramedStream

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
    tunnel = logged_tunnel(name, target, role, service.config.listen.log_level)
    rest = broker.reader.take_rest()
    stream.write(rest)
    if tunnel.down.on_data is not None:
        tunnel.down.on_data(rest)
    metrics.tunnels += 1
    tunnels.add(tunnel)
    try:
        theirs, ours = await broker.stream.detach(), await stream.detach()
        nursery.start_soon(_end_with_proof, service, machine, tunnel, peer)
        await relay(ours, theirs, metrics, tunnel)
    except ConnectionLost as error:
        _log.debug("address=%s: %s", name, error)
    finally:
        metrics.tunnels -= 1
        tunnels.remove(tunnel)
        if tunnel.up.on_data is not None:
            access.info("%s -> %s ended", name, target)


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


class FrameLog:
    """Logs one direction of a tunnel. Holds at most one unfinished frame."""

    def __init__(self, name: str, level: int) -> None:
        self._name = name
        self._with_payload = level > 1
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
        for frame in frames:
            access.info("%s %s", self._name, described(frame, with_payload=self._with_payload))
        if self._is_broken:
            access.info("%s framing lost, no more commands are logged", self._name)


def logged_tunnel(name: str, target: Address | None, role: str | None, level: int) -> Tunnel:
    """A tunnel of the client at `name`; commands are logged from level 1 on."""
    if not level:
        return Tunnel()
    access.info("%s -> %s role=%s", name, target, shown(role or "none"))
    up, down = FrameLog(f"{name} -> {target}", level), FrameLog(f"{name} <- {target}", level)
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
