"""`geminga initialize-cluster-metadata` (spec CL-02; Apache's PulsarClusterMetadataSetup)."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from geminga_broker.cluster.setup import ClusterSetup
    from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

_COUNT = click.IntRange(1, 100_000)


class SetupFailed(click.ClickException):
    """The metadata can't be written: one sentence on standard error, exit code 2."""

    exit_code = 2


def _store(_context: click.Context, _option: click.Parameter, text: str) -> str:
    from geminga_runtime.metadata.zookeeper_url import with_scheme

    return with_scheme(text)


def _url(_context: click.Context, option: click.Parameter, text: str) -> str:
    """Raises BadParameter, unless the URL has a host, and its option's scheme."""
    scheme = _SCHEMES[str(option.name)]
    if text and not re.fullmatch(rf"{re.escape(scheme)}[^\s/:]\S*", text, re.IGNORECASE):
        raise click.BadParameter(f"{text!r} is not {scheme}HOST:PORT")
    return text


_SCHEMES = {
    "web_url": "http://",
    "web_url_tls": "https://",
    "broker_url": "pulsar://",
    "broker_url_tls": "pulsar+ssl://",
}


@click.command(name="initialize-cluster-metadata")
@click.option("-c", "--cluster", required=True, help="Name of the cluster.")
@click.option(
    "-md",
    "--metadata-store",
    "-zk",
    "--zookeeper",
    "local_url",
    required=True,
    callback=_store,
    help="The cluster's own: zk:HOSTS/PATH",
)
@click.option(
    "-cms",
    "--configuration-metadata-store",
    "-cs",
    "--configuration-store",
    "configuration_url",
    required=True,
    callback=_store,
    help="The store that clusters share.",
)
@click.option(
    "-uw",
    "--web-service-url",
    "web_url",
    required=True,
    callback=_url,
    help="http:// URL of brokers.",
)
@click.option(
    "-tw",
    "--web-service-url-tls",
    "web_url_tls",
    default="",
    callback=_url,
    help="https:// URL.",
)
@click.option(
    "-ub",
    "--broker-service-url",
    "broker_url",
    default="",
    callback=_url,
    help="pulsar:// URL.",
)
@click.option(
    "-tb",
    "--broker-service-url-tls",
    "broker_url_tls",
    default="",
    callback=_url,
    help="pulsar+ssl:// URL.",
)
@click.option("-pu", "--proxy-url", default="", help="URL of a proxy before the brokers.")
@click.option("-pp", "--proxy-protocol", type=click.Choice(["SNI"]), help="How that proxy routes.")
@click.option("--auth-plugin", default="", help="How others authenticate with the cluster.")
@click.option("--auth-parameters", default="", help="With what they do.")
@click.option("-te", "--tls-enable", "tls_enabled", is_flag=True, help="Whether they use TLS.")
@click.option(
    "-bn",
    "--default-namespace-bundle-number",
    "bundles",
    type=_COUNT,
    default=16,
    show_default=True,
    help="Bundles of public/default.",
)
@click.option(
    "--initial-num-transaction-coordinators",
    "transaction_coordinators",
    type=_COUNT,
    default=16,
    show_default=True,
)
@click.option(
    "--initial-num-stream-storage-containers",
    "storage_containers",
    type=click.IntRange(0, 100_000),
    default=16,
    show_default=True,
    help="0: nothing is prepared for BookKeeper's stream storage.",
)
@click.option(
    "--existing-bk-metadata-service-uri",
    "--bookkeeper-metadata-service-uri",
    "bookkeeper_url",
    help="Where the bookies of another cluster are registered: none are prepared for.",
)
@click.option(
    "--zookeeper-session-timeout-ms",
    "session_timeout_ms",
    type=click.IntRange(1),
    default=30_000,
    show_default=True,
)
def initialize_cluster_metadata(
    cluster: str,
    local_url: str,
    configuration_url: str,
    web_url: str,
    web_url_tls: str,
    broker_url: str,
    broker_url_tls: str,
    proxy_url: str,
    proxy_protocol: str | None,
    auth_plugin: str,
    auth_parameters: str,
    tls_enabled: bool,
    bundles: int,
    transaction_coordinators: int,
    storage_containers: int,
    bookkeeper_url: str | None,
    session_timeout_ms: int,
) -> None:
    """Prepare metadata stores for a new cluster, once, before its bookies and brokers start."""
    import trio

    from geminga_broker.cluster.records import BadName
    from geminga_broker.cluster.setup import ClusterSetup
    from geminga_runtime.command_line import StartFailedForNow, may_pass
    from geminga_runtime.metadata.api import MetadataError
    from geminga_runtime.metadata.zookeeper_url import parse_url
    from geminga_runtime.settings import ConfigError

    try:
        local = parse_url(local_url)
        parse_url(configuration_url)
        setup = ClusterSetup(
            cluster,
            web_url=web_url,
            web_url_tls=web_url_tls,
            broker_url=broker_url,
            broker_url_tls=broker_url_tls,
            proxy_url=proxy_url,
            proxy_protocol=proxy_protocol or "",
            auth_plugin=auth_plugin,
            auth_parameters=auth_parameters,
            tls_enabled=tls_enabled,
            bundles=bundles,
            transaction_coordinators=transaction_coordinators,
            storage_containers=storage_containers,
            with_bookkeeper=bookkeeper_url is None,
            ledger_servers=local.connect_string,
            ledger_chroot=local.chroot,
        )
        handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
        logging.basicConfig(format="%(levelname)s %(message)s", handlers=[handler])
        kept = trio.run(_set_up, local_url, configuration_url, session_timeout_ms / 1000, setup)
    except BadName as error:
        raise SetupFailed(f"not a name of a cluster: {error}") from None
    except (ConfigError, MetadataError, ImportError) as error:
        raise (StartFailedForNow if may_pass(error) else SetupFailed)(str(error)) from None
    click.echo(f"cluster metadata of {cluster!r} is set up")
    if kept:
        click.echo(f"Warning: {cluster!r} exists and keeps its {', '.join(kept)}", err=True)


async def _set_up(
    local_url: str, configuration_url: str, session_timeout_s: float, setup: ClusterSetup
) -> list[str]:
    """The settings of the cluster that exist already and differ."""
    from contextlib import aclosing

    from geminga_broker.cluster.setup import set_up_cluster

    async with (
        aclosing(await _open(local_url, session_timeout_s)) as local,
        aclosing(await _open(configuration_url, session_timeout_s)) as configuration,
    ):
        return await set_up_cluster(local, configuration, setup)


async def _open(url: str, session_timeout_s: float) -> ZooKeeperMetadataStore:
    """Raises StoreUnavailable, which names the store; ConfigError."""
    from geminga_runtime.metadata.api import StoreUnavailable
    from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

    try:
        return await ZooKeeperMetadataStore.open(url, session_timeout_s=session_timeout_s)
    except StoreUnavailable as error:
        raise StoreUnavailable(f"metadata store {url!r}: {error}") from None
