"""`geminga standalone` (spec OP-01, OP-02). Heavy imports wait until the arguments are right."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from geminga_broker.standalone import Running, StandaloneOptions

SWITCH_INTERVAL_S = 0.0005
"""How long the loop may keep the interpreter from the journal's thread, and the other way round."""

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
    import trio

    from geminga_bookie.errors import DataDirError
    from geminga_broker.data_dir import PRIVATE_UMASK, DataDirUnusable
    from geminga_runtime.errors import BindFailed
    from geminga_runtime.metadata.sqlite_file import StoreOpenError
    from geminga_runtime.settings import ConfigError
    from geminga_runtime.signals import run_until_signal

    os.umask(PRIVATE_UMASK)
    failed: BaseException | None = None
    try:
        trio.run(run_until_signal, partial(_serve, options))
    except* (BindFailed, ConfigError, DataDirUnusable, DataDirError, StoreOpenError) as group:
        failed = group
        while isinstance(failed, BaseExceptionGroup):
            failed = failed.exceptions[0]
    if failed is not None:
        raise StartFailed(str(failed))


async def _serve(options: StandaloneOptions) -> None:
    import trio

    from geminga_broker.standalone import run_standalone
    from geminga_runtime.gc_tuning import freeze_after_start
    from geminga_runtime.process import process_age_s
    from geminga_runtime.watchdog import watch_loop

    sys.setswitchinterval(SWITCH_INTERVAL_S)
    async with trio.open_nursery() as nursery:
        running: Running = await nursery.start(run_standalone, options)
        freeze_after_start()
        data = "memory" if options.data_dir is None else str(options.data_dir)
        with suppress(OSError):  # standard output may be a file on the same full disk
            click.echo(f"ready in {process_age_s():.2f} s: {' '.join(running.urls)} data={data}")
            sys.stdout.flush()
        with watch_loop():
            await trio.sleep_forever()
