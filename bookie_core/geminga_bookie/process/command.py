"""`geminga bookie` (spec OP-01, BK-10). Heavy imports come after the arguments are checked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga_runtime.command_line import (
    config_option,
    loaded,
    log_options,
    serve_command,
)
from geminga_runtime.metadata.zookeeper_url import uri_of_ledgers

if TYPE_CHECKING:
    from geminga_bookie.process.config import BookieConfig
    from geminga_bookie.process.run import RunningBookie


@click.command()
@config_option("bookkeeper.conf")
@click.option(
    "--metadata-store",
    "service_uri",
    help="zk+hierarchical://HOSTS/ledgers, or zk:HOSTS/PATH (metadataServiceUri).",
)
@click.option(
    "--data",
    "data_dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for journal and entries, instead of journalDirectories, ledgerDirectories.",
)
@click.option("--port", type=click.IntRange(1, 65535), help="bookiePort.  [default: 3181]")
@click.option("--advertised-address", help="Host name that clients are told (advertisedAddress).")
@log_options
def bookie(
    config_file: Path | None,
    service_uri: str | None,
    data_dir: Path | None,
    port: int | None,
    advertised_address: str | None,
) -> None:
    """Run a bookie of a cluster."""
    from geminga_bookie.process.config import load_config

    given: dict[str, object] = {
        "metadataServiceUri": uri_of_ledgers(service_uri),
        "bookiePort": port,
        "advertisedAddress": advertised_address,
    }
    if data_dir is not None:
        given["journalDirectories"] = data_dir / "journal"
        given["ledgerDirectories"] = data_dir / "ledgers"

    def load(
        file: Path | None, environment: Mapping[str, str], overrides: Mapping[str, str]
    ) -> BookieConfig:
        config = load_config(file, environment, overrides)
        config.metadata.store_url()  # what a new user leaves out is named first
        return config

    run(loaded(load, config_file, given))


def run(config: BookieConfig) -> None:
    """Serve until SIGINT or SIGTERM. Raises StartFailed."""
    from geminga_bookie.errors import DataDirError
    from geminga_bookie.process.run import ReadOnlyRefused, run_bookie
    from geminga_runtime.metadata.api import MetadataError

    refusals = DataDirError, MetadataError, ReadOnlyRefused
    serve_command(partial(run_bookie, config), _described, *refusals)


def _described(running: RunningBookie) -> str:
    options = running.options
    directories = [*options.journal_dirs, *options.ledger_dirs, *options.index_dirs]
    return f"{running.url} data={','.join(map(str, dict.fromkeys(directories)))}"
