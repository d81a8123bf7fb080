"""What a process that runs a broker has in common, wherever its metadata and ledgers are: sockets,
servers, and the managed ledgers' options (spec OP-02).
"""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import trio

from geminga_bookie.client.api import DigestType
from geminga_broker.change_events.reaching import reach_system_topics
from geminga_broker.cluster.addresses import Addresses, advertised_host
from geminga_broker.config import MIB, BrokerConfig
from geminga_broker.log.options import (
    CursorOptions,
    LedgerDurability,
    LogOptions,
    Retention,
    Rollover,
)
from geminga_broker.service import BrokerService
from geminga_broker.session.serving import handle_connection
from geminga_broker.web.server import bind_web, serve_web
from geminga_runtime.server import CONNECTIONS_MAX, Bound, ConnectionCount, serve
from geminga_runtime.tls_settings import NO_PORT

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    """A running broker."""

    broker_url: str
    web_url: str
    service: BrokerService
    broker_url_tls: str = ""
    web_url_tls: str = ""

    @property
    def addresses(self) -> Addresses:
        """The addresses for lookups."""
        return Addresses(self.broker_url, self.web_url, self.broker_url_tls, self.web_url_tls)

    @property
    def urls(self) -> list[str]:
        """All configured addresses."""
        every = (self.broker_url, self.broker_url_tls, self.web_url, self.web_url_tls)
        return [url for url in every if url]


class WebSockets(NamedTuple):
    """The web server's sockets, without TLS and with it."""

    plain: socket.socket | None
    secure: socket.socket | None


class GivenSockets(NamedTuple):
    """Sockets that listen already: those of the binary protocol, the broker's own one first, and
    those beside the web server's own ones.
    """

    broker: Sequence[socket.socket] = ()
    broker_tls: Sequence[socket.socket] = ()
    web_beside: Sequence[socket.socket] = ()
    web_tls_beside: Sequence[socket.socket] = ()


def web_sockets(config: BrokerConfig, stack: AsyncExitStack) -> WebSockets:
    """Bind the web server's ports; the stack closes them. Raises BindFailed."""
    sockets = [
        None
        if port == NO_PORT
        else stack.enter_context(bind_web(config.network.bind_address, port, key))
        for port, key in (
            (config.network.web_service_port, "webServicePort"),
            (config.tls.web_service_port, "webServicePortTls"),
        )
    ]
    return WebSockets(*sockets)


@asynccontextmanager
async def serving(
    config: BrokerConfig,
    service: BrokerService,
    web: WebSockets,
    *,
    is_whole_cluster: bool = True,
    given: GivenSockets = GivenSockets(),
) -> AsyncIterator[Running]:
    """Serve all ports while the context is open. See `BrokerService.start`. Ports whose sockets are
    given are not bound.
    """
    from geminga_broker.admin.app import create_app
    from geminga_broker.admin.calls import Calls
    from geminga_broker.admin.namespaces.finishing import DeletionFinisher
    from geminga_broker.console.entry import with_console

    web_tls = None if web.secure is None else config.tls.web_contexts()
    async with trio.open_nursery() as nursery:
        plain, secure = await _listen(config, service, nursery, given)
        network = config.network
        ports = plain.port if plain else NO_PORT, secure.port if secure else NO_PORT
        addresses = addresses_of(config, web, *ports)
        await service.start(addresses, is_whole_cluster=is_whole_cluster)
        reach_system_topics(service)
        calls = Calls(service)
        app = with_console(create_app(service, calls), service)
        count = ConnectionCount(
            network.web_connections_max or CONNECTIONS_MAX, network.web_connections_per_ip_max
        )
        web_server = partial(serve_web, app, web.plain, web.secure, web_tls, config.websockets)
        beside = partial(web_server, beside=given.web_beside, secure_beside=given.web_tls_beside)
        proxied = partial(beside, proxy_header=network.web_haproxy_protocol)
        await nursery.start(partial(proxied, connections=count))
        nursery.start_soon(DeletionFinisher(service, calls).run)
        try:
            yield Running(
                addresses.broker_url,
                addresses.web_url,
                service,
                addresses.broker_url_tls,
                addresses.web_url_tls,
            )
        finally:
            # The cancellation has stopped accepting; now close the connected clients.
            with trio.move_on_after(service.shutdown_s, shield=True):
                await service.shutdown()


async def until_told_to_stop(service: BrokerService, scope: trio.CancelScope) -> None:
    """Wait until an administrator stops the broker, then end all that the scope has, as a signal
    does; the request is answered meanwhile.
    """
    await service.stop_requested.wait()
    _log.info("stopping: an administrator says so")
    scope.cancel()
    await trio.lowlevel.checkpoint()


def addresses_of(config: BrokerConfig, web: WebSockets, port: int, port_tls: int) -> Addresses:
    """What clients are told, by the ports of the binary protocol and the bound web sockets."""
    host = advertised_host(config.network.bind_address, config.network.advertised_address)
    bound = Addresses(
        f"pulsar://{host}:{port}" if port != NO_PORT else "",
        f"http://{host}:{web.plain.getsockname()[1]}" if web.plain else "",
        f"pulsar+ssl://{host}:{port_tls}" if port_tls != NO_PORT else "",
        f"https://{host}:{web.secure.getsockname()[1]}" if web.secure else "",
    )
    return config.network.listeners().advertised(bound)


async def _listen(
    config: BrokerConfig, service: BrokerService, nursery: trio.Nursery, given: GivenSockets
) -> tuple[Bound | None, Bound | None]:
    """Listen for the binary protocol, without TLS and with it."""
    network = config.network
    count = ConnectionCount(
        network.connections_max or CONNECTIONS_MAX, network.connections_per_ip_max
    )
    found: list[Bound | None] = []
    for port, sockets, with_tls in (
        (config.network.broker_service_port, given.broker, False),
        (config.tls.broker_service_port, given.broker_tls, True),
    ):
        if port == NO_PORT:
            found.append(None)
            continue
        listening = partial(
            serve,
            partial(handle_connection, service=service),
            host=config.network.bind_address,
            port=port,
            sockets=sockets,
            key="brokerServicePortTls" if with_tls else "brokerServicePort",
            connections_max=count,
            drain_s=service.shutdown_s,
            tls=config.tls.contexts() if with_tls else None,
            proxy_header=network.haproxy_protocol,
        )
        bound: list[Bound] = await nursery.start(listening)
        found.append(bound[0])
    return found[0], found[1]


def log_options(config: BrokerConfig) -> LogOptions:
    """The managed ledgers' part of the configuration."""
    log = config.log
    digest = {"MAC": "HMAC"}.get(log.digest_type, log.digest_type)
    return LogOptions(
        durability=LedgerDurability(
            log.ensemble_size,
            log.write_quorum,
            log.ack_quorum,
            DigestType[digest],
            log.password.encode(),
        ),
        rollover=Rollover(
            log.ledger_entries_max,
            log.ledger_mb_max * MIB,
            log.rollover_min_minutes * 60,
            log.rollover_max_minutes * 60,
        ),
        retention=Retention(log.retention_minutes * 60, log.retention_mb * MIB),
        retention_check_interval_s=log.retention_check_s or math.inf,
        cursors=CursorOptions(
            flush_interval_s=1 / log.mark_delete_rate_per_s if log.mark_delete_rate_per_s else 0.0,
            ledger_entries_max=log.cursor_ledger_entries_max,
            ledger_max_s=log.cursor_rollover_s,
            ranges_to_store_max=log.ack_ranges_to_store_max,
            batches_max=log.batch_indexes_max,
        ),
        cache_bytes_max=log.cache_mb * MIB,
        skips_damaged=lambda: log.skips_damaged,
        broker_entry_metadata=bool(log.entry_metadata_interceptors.strip()),
    )
