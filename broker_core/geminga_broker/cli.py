"""`geminga standalone` and `geminga broker` (spec OP-01, OP-02). Heavy imports come after the
arguments are checked.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga_runtime.command_line import (
    PORT,
    config_option,
    loaded,
    log_level_option,
    serve_command,
)

if TYPE_CHECKING:
    from geminga_broker.process import Running
    from geminga_broker.standalone import StandaloneOptions


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data"),
    show_default=True,
    help="Directory that holds everything; made if absent.",
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--broker-port", type=PORT, help="0 takes a free one.  [default: 6650]")
@click.option("--web-port", type=PORT, help="0 takes a free one.  [default: 8080]")
@click.option("--advertised-address", help="Host name that clients are told.")
@config_option("broker.conf")
@click.option("--in-memory", is_flag=True, help="Keep everything in memory and lose it at the end.")
@log_level_option
def standalone(
    data_dir: Path,
    host: str | None,
    broker_port: int | None,
    web_port: int | None,
    advertised_address: str | None,
    config_file: Path | None,
    in_memory: bool,
    log_level: str,
) -> None:
    """Run broker, bookie and metadata store in one process."""
    from geminga_broker.config import load_config
    from geminga_broker.standalone import StandaloneOptions
    from geminga_runtime.logs import set_up_logging

    set_up_logging(log_level.upper())
    given = {
        "bindAddress": host,
        "brokerServicePort": broker_port,
        "webServicePort": web_port,
        "advertisedAddress": advertised_address,
    }
    defaults = {
        "bindAddress": "127.0.0.1",
        "webSocketServiceEnabled": "true",
        "loadBalancerEnabled": "false",  # as in Apache's standalone.conf
    }
    config = loaded(partial(load_config, defaults=defaults), config_file, given)
    run(StandaloneOptions(config, None if in_memory else data_dir.resolve()))


def run(options: StandaloneOptions) -> None:
    """Serve until SIGINT or SIGTERM. Raises StartFailed."""
    from geminga_bookie.errors import DataDirError
    from geminga_broker.data_dir import DataDirUnusable
    from geminga_broker.standalone import run_standalone
    from geminga_runtime.metadata.sqlite_file import StoreOpenError

    def described(running: Running) -> str:
        data = "memory" if options.data_dir is None else str(options.data_dir)
        return f"{' '.join(running.urls)} data={data}"

    refusals = DataDirUnusable, DataDirError, StoreOpenError
    serve_command(partial(run_standalone, options), described, *refusals)


@click.command()
@config_option("broker.conf")
@click.option("--metadata-store", "metadata_store", help="zk:HOSTS/PATH (metadataStoreUrl).")
@click.option("--cluster", "cluster_name", help="The cluster's name (clusterName).")
@click.option("--broker-port", type=PORT, help="0 takes a free one.  [default: 6650]")
@click.option("--web-port", type=PORT, help="0 takes a free one.  [default: 8080]")
@click.option("--advertised-address", help="Host name that clients are told.")
@log_level_option
def broker(
    config_file: Path | None,
    metadata_store: str | None,
    cluster_name: str | None,
    broker_port: int | None,
    web_port: int | None,
    advertised_address: str | None,
    log_level: str,
) -> None:
    """Run a broker on ZooKeeper and the bookies that are registered there."""
    from geminga_broker.broker import run_broker
    from geminga_broker.config import load_cluster_config
    from geminga_runtime.logs import set_up_logging
    from geminga_runtime.metadata.api import MetadataError

    set_up_logging(log_level.upper())
    given = {
        "metadataStoreUrl": metadata_store,
        "clusterName": cluster_name,
        "brokerServicePort": broker_port,
        "webServicePort": web_port,
        "advertisedAddress": advertised_address,
    }
    config = loaded(load_cluster_config, config_file, given)

    def described(running: Running) -> str:
        return " ".join(running.urls)

    serve_command(partial(run_broker, config), described, MetadataError)
