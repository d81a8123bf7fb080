"""The proxy's web ports (spec PX-05, PX-06)."""

from __future__ import annotations

import logging
from functools import partial

import trio

from geminga_proxy.http.session import HttpSession
from geminga_proxy.http.web import Web
from geminga_proxy.http.wire import Wire
from geminga_proxy.service import ProxyService
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.server import Bound, serve
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls_settings import NO_PORT

CLIENT_SEND_S = 60.0
"""Time for a client to read a part of a response, at most 64 KiB."""

_log = logging.getLogger(__name__)


async def _handle(web: Web, secure: bool, stream: FramedStream) -> None:
    """Serve one client until its connection ends."""
    try:
        wire = await Wire.over(stream)
        wire.send_s = CLIENT_SEND_S
        web.make_room()
        await HttpSession(stream, wire, web, secure=secure).run()
    except ConnectionLost as error:
        _log.debug("%s", error)


async def serve_http(service: ProxyService, nursery: trio.Nursery) -> list[tuple[str, Bound]]:
    """Listen on the configured web ports. Returns schemes and addresses.

    Raises BindFailed, ConfigError.
    """
    listen = service.config.listen
    if listen.web_port == listen.web_port_tls == NO_PORT:
        return []
    web = Web(service)
    found: list[tuple[str, Bound]] = []
    for scheme, port in (("http", listen.web_port), ("https", listen.web_port_tls)):
        if port == NO_PORT:
            continue
        secure = scheme == "https"
        listening = partial(
            serve,
            partial(_handle, web, secure),
            host=listen.bind_address,
            port=port,
            key="webServicePortTls" if secure else "webServicePort",
            connections_max=web.count,
            drain_s=listen.drain_s,
            tls=service.config.tls.web_contexts() if secure else None,
            proxy_header=listen.haproxy_protocol,
        )
        bound: list[Bound] = await nursery.start(listening)
        found.append((scheme, bound[0]))
    nursery.start_soon(web.keep)
    return found
