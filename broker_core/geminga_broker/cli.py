"""`geminga standalone` and `geminga broker` (spec OP-01, OP-02). Heavy imports come after the
arguments are checked.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga_runtime.command_line import (
    PORT,
    PRIVATE_UMASK,
    StartFailed,
    config_option,
    loaded,
    log_options,
    serve_command,
)

if TYPE_CHECKING:
    from geminga_broker.process import Running
    from geminga_broker.processes.parent import RunningBrokers
    from geminga_broker.standalone_parts import StandaloneOptions

BROKERS_MAX = 64


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
@click.option(
    "--brokers",
    type=click.IntRange(0, BROKERS_MAX),
    default=1,
    show_default=True,
    help="Broker processes behind the one address, which share the topics; 0: one for each core.",
)
@click.option(
    "--first-own-port",
    type=PORT,
    default=0,
    help="Several brokers have ports of their own, one after the other from this one on, to which "
    "lookups send clients.  [default: free ones]",
)
@config_option("broker.conf")
@click.option("--in-memory", is_flag=True, help="Keep everything in memory and lose it at the end.")
@click.option(
    "--accept-metadata-loss",
    is_flag=True,
    help="Serve nothing: let a data directory whose newest metadata are lost be started again, say "
    "what is given up, and end.",
)
@log_options
def standalone(
    data_dir: Path,
    host: str | None,
    broker_port: int | None,
    web_port: int | None,
    advertised_address: str | None,
    brokers: int,
    first_own_port: int,
    config_file: Path | None,
    in_memory: bool,
    accept_metadata_loss: bool,
) -> None:
    """Run broker, bookie and metadata store in one process, or several brokers in theirs."""
    from geminga_broker.config import load_config
    from geminga_broker.standalone_parts import StandaloneOptions, cores, defaults_of

    given = {
        "bindAddress": host,
        "brokerServicePort": broker_port,
        "webServicePort": web_port,
        "advertisedAddress": advertised_address,
    }
    brokers = brokers or cores()
    if first_own_port and brokers == 1:
        raise StartFailed("--first-own-port: only several brokers have ports of their own")
    defaults = {
        "bindAddress": "127.0.0.1",
        "webSocketServiceEnabled": "true",
        **defaults_of(brokers),
    }
    config = loaded(partial(load_config, defaults=defaults), config_file, given)
    where = None if in_memory else data_dir.resolve()
    options = StandaloneOptions(config, where, brokers, first_own_port)
    if accept_metadata_loss:
        accept(options)
    else:
        run(options)


def accept(options: StandaloneOptions) -> None:
    """`--accept-metadata-loss`. Raises StartFailed."""
    import trio

    from geminga_bookie.errors import DataDirError
    from geminga_broker.data_dir import DataDirUnusable
    from geminga_broker.standalone import accept_metadata_loss
    from geminga_runtime.metadata.api import MetadataError

    if options.data_dir is None:
        raise StartFailed("--accept-metadata-loss: there are no metadata with --in-memory")
    os.umask(PRIVATE_UMASK)
    try:
        said = trio.run(accept_metadata_loss, options)
    except* (DataDirUnusable, DataDirError, MetadataError) as group:
        refused: BaseException = group
        while isinstance(refused, BaseExceptionGroup):
            refused = refused.exceptions[0]
        raise StartFailed(str(refused)) from None
    for sentence in said or ["nothing is lost: the metadata know all that the bookie has"]:
        click.echo(sentence)


def run(options: StandaloneOptions) -> None:
    """Serve until SIGINT or SIGTERM. Raises StartFailed."""
    from geminga_bookie.errors import DataDirError
    from geminga_broker.data_dir import DataDirUnusable
    from geminga_runtime.metadata.integrity.check import StoreOpenError

    data = "memory" if options.data_dir is None else str(options.data_dir)
    refusals = DataDirUnusable, DataDirError, StoreOpenError
    if options.brokers == 1:
        from geminga_broker.standalone import run_standalone

        def described(running: Running) -> str:
            return f"{' '.join(running.urls)} data={data}"

        serve_command(partial(run_standalone, options), described, *refusals)
    else:
        from geminga_broker.processes.parent import run_brokers
        from geminga_broker.processes.supervisor import BrokerRefused

        def all_described(running: RunningBrokers) -> str:
            return f"{' '.join(running.urls)} brokers={options.brokers} data={data}"

        serve_command(partial(run_brokers, options), all_described, *refusals, BrokerRefused)


@click.command()
@config_option("broker.conf")
@click.option("--metadata-store", "metadata_store", help="zk:HOSTS/PATH (metadataStoreUrl).")
@click.option("--cluster", "cluster_name", help="The cluster's name (clusterName).")
@click.option("--broker-port", type=PORT, help="0 takes a free one.  [default: 6650]")
@click.option("--web-port", type=PORT, help="0 takes a free one.  [default: 8080]")
@click.option("--advertised-address", help="Host name that clients are told.")
@log_options
def broker(
    config_file: Path | None,
    metadata_store: str | None,
    cluster_name: str | None,
    broker_port: int | None,
    web_port: int | None,
    advertised_address: str | None,
) -> None:
    """Run a broker on ZooKeeper and the bookies that are registered there."""
    from geminga_broker.broker import run_broker
    from geminga_broker.config import load_cluster_config
    from geminga_runtime.metadata.api import MetadataError

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
