"""Clients inside the broker: at this broker over pairs of sockets, at others over their own
connections.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

import geminga
from geminga._connection.pool import connect_tcp
from geminga._connection.service_url import parse
from geminga.auth import from_config
from geminga.client import open_client
from geminga.options import ClientOptions
from geminga_broker.authz.authorizer import THIS_BROKER, Caller
from geminga_broker.config import BrokerConfig
from geminga_broker.service import BrokerService
from geminga_broker.session.serving import handle_connection
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import TlsContexts

_log = logging.getLogger(__name__)

HOST = "in-process"
OPERATION_TIMEOUT_S = 30.0

Connector = Callable[[str, int, float, TlsContexts | None], Awaitable[FramedStream]]
"""(host, port, deadline, TLS) -> a connection to another broker."""


@asynccontextmanager
async def client_of(
    service: BrokerService, caller: Caller, address: str, elsewhere: Connector
) -> AsyncIterator[geminga.Client]:
    """A client that is closed at the block's end; at this broker it is `caller`, and statistics
    show `address`. Connections to other brokers are made by `elsewhere`.
    """
    async with trio.open_nursery() as nursery:

        async def connector(
            host: str, port: int, deadline: float, tls: TlsContexts | None = None
        ) -> FramedStream:
            if not _is_own(service, host, port):
                return await elsewhere(host, port, deadline, tls)
            ours, theirs = trio.socket.socketpair()
            served = FramedStream(trio.SocketStream(theirs), name=address)
            nursery.start_soon(_serve, served, service, caller)
            return FramedStream(trio.SocketStream(ours), name=address)

        scheme = "pulsar+ssl" if service.config.peers.tls else "pulsar"
        addresses = parse(f"{scheme}://{HOST}:6650")
        async with open_client(addresses, _options(service.config), connector) as client:
            yield client
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def client_of_broker(
    service: BrokerService, elsewhere: Connector = connect_tcp
) -> AsyncIterator[geminga.Client]:
    """The broker's own client, which may do everything here; at others it has the broker's
    credentials (`brokerClientAuthenticationPlugin`).
    """
    async with client_of(service, THIS_BROKER, HOST, elsewhere) as client:
        yield client


def _is_own(service: BrokerService, host: str, port: int) -> bool:
    name = f"://{host}:{port}"
    own = service.addresses
    return host == HOST or own.broker_url.endswith(name) or own.broker_url_tls.endswith(name)


def _options(config: BrokerConfig) -> ClientOptions:
    """This broker's own credentials, and its TLS to other brokers."""
    peers = config.peers
    plugin = peers.auth_plugin
    return ClientOptions(
        operation_timeout_s=OPERATION_TIMEOUT_S,
        stats_interval_s=0,  # nobody asked for lines about the broker's own clients
        authentication=from_config(plugin, peers.auth_parameters) if plugin else None,
        tls_trust_certs_file_path=peers.trust_certs_file or None,
        tls_certificate_file_path=peers.certificate_file or None,
        tls_private_key_file_path=peers.key_file or None,
        tls_validate_hostname=peers.verify_hostname,
    )


async def _serve(stream: FramedStream, service: BrokerService, caller: Caller) -> None:
    try:
        await handle_connection(stream, service, caller)
    except* ConnectionLost as lost:
        _log.debug("%s", lost.exceptions[0])
    except* Exception:  # as of a connection over TCP: it ends alone
        _log.exception("%s: defect", stream.name)
    finally:
        await stream.aclose()
