"""A client's tunnel to one broker, from CONNECTED on (spec PX-02, PX-04)."""

from __future__ import annotations

import logging

import trio

from geminga_proxy.binary.access_log import access, logged_tunnel
from geminga_proxy.binary.connecting import BrokerConnection
from geminga_proxy.binary.machine import ClientMachine
from geminga_proxy.binary.renewal import Renewal, sleep_until
from geminga_proxy.relay import Tunnel, relay
from geminga_proxy.service import ProxyService
from geminga_runtime.auth.api import Peer
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.stream import FramedStream

_log = logging.getLogger(__name__)


async def run_tunnel(
    service: ProxyService,
    machine: ClientMachine,
    stream: FramedStream,
    broker: BrokerConnection,
    peer: Peer,
    nursery: trio.Nursery,
) -> None:
    """Relay bytes until both sides have ended, one breaks, or the client's proof expires. The
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
    """End the tunnel when the client's proof expires. A broker that got the client's credentials
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
    _log.warning("address=%s closed: its proof expired", peer.address)
    tunnel.scope.cancel()
