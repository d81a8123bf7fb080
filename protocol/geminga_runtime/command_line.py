"""What the commands that serve have in common: options, and a start that fails in one sentence with
exit code 2, or 1 if the same start may succeed later (spec OP-01). Heavy imports come after the
arguments are checked.
"""

from __future__ import annotations

import errno
import gc
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

START_OBJECTS = 1_000_000
"""New objects between two collections of a server's start, which makes them for its whole life."""

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

PORT = click.IntRange(0, 65535)

_PORT_OPTIONS = {
    "brokerServicePort": "broker_port",
    "servicePort": "service_port",
    "servicePortTls": "service_port_tls",
    "webServicePort": "web_port",
    "webServicePortTls": "web_port_tls",
}
"""Parameters of commands by the keys of their ports."""

PRIVATE_UMASK = 0o077
"""For servers: their files hold messages, roles and policies."""


class StartFailed(click.ClickException):
    """A server can't start: one sentence on standard error, exit code 2."""

    exit_code = 2


class StartFailedForNow(StartFailed):
    """What the start lacks may come by itself: whoever starts servers should try again. Exit code
    1.
    """

    exit_code = 1


def log_options(command: Callable[..., object]) -> Callable[..., object]:
    """`--log-level` and `--log-format`: the log is set up before the command runs, which gets
    neither.
    """

    @wraps(command)
    def logging_first(*args: object, log_level: str, log_format: str, **given: object) -> object:
        from geminga_runtime.observing.log_setup import LogSettings, set_up_logging

        set_up_logging(LogSettings(log_level, log_format == "json"))
        gc.set_threshold(START_OBJECTS)
        return command(*args, **given)

    levels = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)
    level = click.option("--log-level", type=levels, default="INFO", show_default=True)
    formats = click.Choice(["text", "json"], case_sensitive=False)
    shape = click.option(
        "--log-format",
        type=formats,
        default="text",
        show_default=True,
        help="json: an object a line, with what it is about as members.",
    )
    return level(shape(logging_first))


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
    that can't be taken, and the errors that are given; StartFailedForNow where `may_pass` says so.
    """
    from geminga_runtime.errors import BindFailed
    from geminga_runtime.process import run_server
    from geminga_runtime.settings import ConfigError

    os.umask(PRIVATE_UMASK)
    refused = run_server(start, describe, BindFailed, ConfigError, *refusals)
    if refused is None:
        return
    text = _by_option(str(refused)) if isinstance(refused, BindFailed) else str(refused)
    raise StartFailedForNow(text) if may_pass(refused) else StartFailed(text)


def may_pass(refused: BaseException) -> bool:
    """Whether the same start may succeed later, with nothing changed in configuration or data: the
    metadata store can't be reached, another process has the port or the files, the network isn't
    up yet.
    """
    from geminga_runtime.metadata.api import SessionExpired, StoreUnavailable

    cause: BaseException | None = refused
    while cause is not None:
        if isinstance(cause, (StoreUnavailable, SessionExpired, BlockingIOError)):
            return True
        if isinstance(cause, socket.gaierror):
            return cause.errno == socket.EAI_AGAIN
        if isinstance(cause, OSError) and cause.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
            return True
        cause = cause.__cause__
    return False


def _by_option(text: str) -> str:
    """What was wrong with a port; it names the option, too, if the port came from one."""
    key, _, rest = text.partition(": ")
    name, context = _PORT_OPTIONS.get(key), click.get_current_context(silent=True)
    if name is None or context is None:
        return text
    if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
        return text
    return f"--{name.replace('_', '-')} ({key}): {rest}"
