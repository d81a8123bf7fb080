"""What the commands that serve have in common: options, and a start that fails in one sentence with
exit code 2 (spec OP-01). Heavy imports come after the arguments are checked.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

PORT = click.IntRange(0, 65535)

PRIVATE_UMASK = 0o077
"""For servers: their files hold messages, roles and policies."""


class StartFailed(click.ClickException):
    """A server can't start: one sentence on standard error, exit code 2."""

    exit_code = 2


def log_level_option(command: F) -> F:
    """`--log-level`."""
    levels = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)
    return click.option("--log-level", type=levels, default="INFO", show_default=True)(command)


def config_option(apaches_file: str) -> Callable[[F], F]:
    """`--config`, passed on as `config_file`."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        help=f"Properties file with keys of Apache's {apaches_file}.",
    )


def loaded(
    load: Callable[[Path | None, Mapping[str, str], Mapping[str, str]], T],
    config_file: Path | None,
    given: Mapping[str, object],
) -> T:
    """The configuration of a file, the environment and the options that are given (those that are
    None are not), by their keys. Raises StartFailed.
    """
    from geminga_runtime.settings import ConfigError

    overrides = {key: str(value) for key, value in given.items() if value is not None}
    try:
        return load(config_file, os.environ, overrides)
    except ConfigError as error:
        raise StartFailed(str(error)) from error


def serve_command(
    start: Callable[..., Awaitable[object]],
    describe: Callable[[T], str],
    *refusals: type[Exception],
) -> None:
    """`run_server` with files for the owner only. Raises StartFailed for a wrong setting, a port
    that is taken, and the errors that are given.
    """
    from geminga_runtime.errors import BindFailed
    from geminga_runtime.process import run_server
    from geminga_runtime.settings import ConfigError

    os.umask(PRIVATE_UMASK)
    refused = run_server(start, describe, BindFailed, ConfigError, *refusals)
    if refused is not None:
        raise StartFailed(str(refused))
