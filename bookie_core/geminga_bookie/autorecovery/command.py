"""`geminga autorecovery` (spec BK-26, OP-01). Heavy imports follow checked arguments."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from geminga_runtime.command_line import (
    config_option,
    loaded,
    log_options,
    serve_command,
)
from geminga_runtime.metadata.zookeeper_url import uri_of_ledgers


@click.command()
@config_option("bookkeeper.conf")
@click.option(
    "--metadata-store",
    "store_uri",
    help="zk+hierarchical://HOSTS/ledgers, or zk:HOSTS/PATH (metadataServiceUri).",
)
@log_options
def autorecovery(config_file: Path | None, store_uri: str | None) -> None:
    """Replace lost bookies in ledgers, and complete their copies."""
    from geminga_bookie.autorecovery.config import load_config
    from geminga_bookie.autorecovery.process import Running, run_autorecovery
    from geminga_runtime.metadata.api import MetadataError

    given = {"metadataServiceUri": uri_of_ledgers(store_uri)}
    config = loaded(load_config, config_file, given)

    def described(running: Running) -> str:
        return f"autorecovery://{running.owner} metadata={running.store_url}"

    serve_command(partial(run_autorecovery, config), described, MetadataError)
