"""A proxy process: listeners, discovery, the web side (spec PX-03, PX-05, PX-06)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import trio

from geminga_proxy.config import ProxyConfig
from geminga_proxy.service import ProxyService
from geminga_runtime.server import Bound, ConnectionCount, serve
from geminga_runtime.tls_settings import NO_PORT


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy that serves."""

    urls: list[str]
    service: ProxyService


async def run_proxy(
    config: ProxyConfig, *, task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; then clients have `proxyDrainSeconds` to leave.

    Raises BindFailed, ConfigError.
    """
    service = ProxyService(config)
    listen = config.listen
    count = ConnectionCount(listen.connections_max)
    start = partial(
        serve,
        service.handle,
        host=listen.bind_address,
        connections_max=count,
        drain_s=listen.drain_s,
    )
    async with trio.open_nursery() as nursery:
        urls = []
        if listen.service_port != NO_PORT:
            bound = await nursery.start(partial(start, port=listen.service_port))
            urls.append(_url("pulsar", bound, listen.advertised_address))
        if listen.service_port_tls != NO_PORT:
            tls = config.tls.contexts()
            bound = await nursery.start(partial(start, port=listen.service_port_tls, tls=tls))
            urls.append(_url("pulsar+ssl", bound, listen.advertised_address))
        task_status.started(Running(urls, service))


def _url(scheme: str, bound: list[Bound], advertised: str) -> str:
    host = advertised or bound[0].host
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{bound[0].port}"
