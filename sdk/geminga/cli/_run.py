"""Common code of commands that connect to a broker."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence

import click

EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a command's main task; an error is reported in one sentence.

    The exit code is 2 for wrong arguments, 1 for other errors.
    """
    import logging

    import trio

    from geminga.errors import GemingaError, InvalidArgumentError

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        trio.run(main)
    except (GemingaError, KeyboardInterrupt, BaseExceptionGroup) as error:
        cause = _first_cause(error)
        if isinstance(cause, InvalidArgumentError):
            raise click.UsageError(str(cause)) from error
        if isinstance(cause, GemingaError):
            raise click.ClickException(str(cause)) from error
        if isinstance(cause, KeyboardInterrupt):
            sys.exit(EXIT_INTERRUPTED)
        raise


def _first_cause(error: BaseException) -> BaseException:
    """The error wrapped by Trio's nurseries."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def properties(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> dict[str, str]:
    """`k=v` pairs, also separated by commas, as in the Java tools."""
    pairs: dict[str, str] = {}
    for value in values:
        for pair in value.split(","):
            key, equals, text = pair.partition("=")
            if not equals or not key:
                raise click.BadParameter(f"{pair!r} is not key=value")
            pairs[key] = text
    return pairs
