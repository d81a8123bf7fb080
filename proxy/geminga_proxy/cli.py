"""`geminga proxy` (spec OP-01, PX-01). Heavy imports come after the arguments are checked."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga_runtime.command_line import (
    PORT,
    config_option,
    loaded,
    log_options,
    serve_command,
)

if TYPE_CHECKING:
    from geminga_proxy.config import ProxyConfig
    from geminga_proxy.standalone import Running


@click.command()
@click.option("--broker-service-url", help="pulsar://host:port, or several hosts with commas.")
@click.option("--broker-service-url-tls", help="pulsar+ssl://host:port: TLS to brokers.")
@click.option("--broker-web-service-url", help="http://host:port of the brokers' REST API.")
@click.option("--broker-web-service-url-tls", help="https://host:port of it: TLS to brokers.")
@click.option("--metadata-store", help="Find brokers in this metadata store instead.")
@click.option("--host", help="Address to listen on.  [default: 0.0.0.0]")
@click.option("--service-port", type=PORT, help="0 takes a free one.  [default: 6650]")
@click.option("--service-port-tls", type=PORT, help="For clients by TLS.")
@click.option("--web-port", type=PORT, help="0 takes a free one.  [default: 8080]")
@click.option("--web-port-tls", type=PORT, help="For HTTPS.")
@click.option("--advertised-address", help="Host name in the line that is printed.")
@config_option("proxy.conf")
@log_options
def proxy(config_file: Path | None, **given: object) -> None:
    """Run a proxy: one address for brokers, ours or Apache's."""
    from geminga_proxy.config import load_config

    overrides = {_KEYS[name]: value for name, value in given.items() if value is not None}
    if not _TLS_KEYS.isdisjoint(overrides):
        overrides["tlsEnabledWithBroker"] = "true"
    run(loaded(load_config, config_file, overrides))


_TLS_KEYS = frozenset(("brokerServiceURLTLS", "brokerWebServiceURLTLS"))
"""In a file they count with tlsEnabledWithBroker only; as options they imply it."""

_KEYS = {
    "broker_service_url": "brokerServiceURL",
    "broker_service_url_tls": "brokerServiceURLTLS",
    "broker_web_service_url": "brokerWebServiceURL",
    "broker_web_service_url_tls": "brokerWebServiceURLTLS",
    "metadata_store": "metadataStoreUrl",
    "host": "bindAddress",
    "service_port": "servicePort",
    "service_port_tls": "servicePortTls",
    "web_port": "webServicePort",
    "web_port_tls": "webServicePortTls",
    "advertised_address": "advertisedAddress",
}


def run(config: ProxyConfig) -> None:
    """Serve until SIGINT or SIGTERM. Raises StartFailed."""
    from geminga_proxy.standalone import run_proxy

    serve_command(partial(run_proxy, config), _described)


def _described(running: Running) -> str:
    return " ".join(running.urls)
