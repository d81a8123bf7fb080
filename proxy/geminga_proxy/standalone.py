"""A proxy process: listeners, discovery, the web side (spec PX-03, PX-05, PX-06)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import trio

from geminga_proxy.binary.session import serve_client
from geminga_proxy.config import ProxyConfig
from geminga_proxy.discovery import Finder
from geminga_proxy.http.server import serve_http
from geminga_proxy.service import ProxyService
from geminga_runtime.host_port import host_port
from geminga_runtime.server import Bound, serve
from geminga_runtime.tls_settings import NO_PORT


@dataclass(frozen=True, slots=True)
class Running:
    """A running proxy."""

    urls: list[str]
    service: ProxyService


async def run_proxy(
    config: ProxyConfig, *, task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; after that clients have `proxyDrainSeconds` to leave.

    Raises BindFailed, ConfigError.
    """
    service = ProxyService(config)
    listen = config.listen
    start = partial(
        serve,
        partial(serve_client, service),
        host=listen.bind_address,
        connections_max=service.connections,
        drain_s=listen.drain_s,
        proxy_header=listen.haproxy_protocol,
    )
    async with trio.open_nursery() as nursery:
        urls = []
        if listen.service_port != NO_PORT:
            bound = await nursery.start(partial(start, port=listen.service_port, key="servicePort"))
            urls.append(_url("pulsar", bound, listen.advertised_address))
        if listen.service_port_tls != NO_PORT:
            tls = config.tls.contexts()
            secure = partial(start, port=listen.service_port_tls, key="servicePortTls", tls=tls)
            bound = await nursery.start(secure)
            urls.append(_url("pulsar+ssl", bound, listen.advertised_address))
        for scheme, web_bound in await serve_http(service, nursery):
            urls.append(_url(scheme, [web_bound], listen.advertised_address))
        if config.brokers.metadata_store_url:
            finder = Finder(config.brokers.metadata_store_url, service.brokers.found)
            nursery.start_soon(finder.run, config.brokers.session_timeout_ms / 1000)
            await finder.looked.wait()
        nursery.start_soon(service.tunnels.watch)
        nursery.start_soon(service.traffic.watch)
        task_status.started(Running(urls, service))
        try:
            await trio.sleep_forever()
        finally:
            # Accepting has stopped with the cancellation.
            service.drain()


def _url(scheme: str, bound: list[Bound], advertised: str) -> str:
    return f"{scheme}://{host_port(advertised or bound[0].host, bound[0].port)}"
