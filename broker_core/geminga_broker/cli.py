"""`geminga standalone` (spec OP-01, OP-02). Heavy imports come after the arguments are checked."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from geminga_broker.standalone import Running, StandaloneOptions

PORT = click.IntRange(0, 65535)


class StartFailed(click.ClickException):
    """The server can't start: one sentence on standard error, exit code 2."""

    exit_code = 2


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
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Properties file with keys of Apache's broker.conf.",
)
@click.option("--in-memory", is_flag=True, help="Keep everything in memory and lose it at the end.")
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
)
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
    from geminga_runtime.logs import set_up_logging
    from geminga_runtime.settings import ConfigError

    set_up_logging(log_level.upper())
    given = {
        "bindAddress": host,
        "brokerServicePort": broker_port,
        "webServicePort": web_port,
        "advertisedAddress": advertised_address,
    }
    overrides = {key: str(value) for key, value in given.items() if value is not None}
    defaults = {"bindAddress": "127.0.0.1", "webSocketServiceEnabled": "true"}
    try:
        config = load_config(config_file, os.environ, overrides, defaults=defaults)
    except ConfigError as error:
        raise StartFailed(str(error)) from error
    from geminga_broker.standalone import StandaloneOptions

    run(StandaloneOptions(config, None if in_memory else data_dir.resolve()))


def run(options: StandaloneOptions) -> None:
    """Serve until SIGINT or SIGTERM. Raises StartFailed."""
    from geminga_bookie.errors import DataDirError
    from geminga_broker.data_dir import PRIVATE_UMASK, DataDirUnusable
    from geminga_broker.standalone import run_standalone
    from geminga_runtime.errors import BindFailed
    from geminga_runtime.metadata.sqlite_file import StoreOpenError
    from geminga_runtime.process import run_server
    from geminga_runtime.settings import ConfigError

    def described(running: Running) -> str:
        data = "memory" if options.data_dir is None else str(options.data_dir)
        return f"{' '.join(running.urls)} data={data}"

    os.umask(PRIVATE_UMASK)
    refusals = BindFailed, ConfigError, DataDirUnusable, DataDirError, StoreOpenError
    refused = run_server(partial(run_standalone, options), described, *refusals)
    if refused is not None:
        raise StartFailed(str(refused))
