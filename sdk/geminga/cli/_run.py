"""Common code of commands that connect to a broker."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from geminga.cli._credentials import told_of_options

if TYPE_CHECKING:
    from geminga_protocol.message_id import MessageId

LOG_FORMAT = "%(levelname)s %(message)s"
EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""
T = TypeVar("T")
_NUMBER = re.compile(r"-1|[0-9]{1,19}")


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a command's main task; an error is reported in one sentence.

    The exit code is 2 for wrong arguments, 1 for other errors.
    """
    import logging

    import trio

    from geminga.errors import GemingaError, InvalidArgumentError, WrongProtocolError

    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)
    try:
        trio.run(main)
    except (GemingaError, KeyboardInterrupt, BaseExceptionGroup) as error:
        cause = _first_cause(error)
        if isinstance(cause, InvalidArgumentError | WrongProtocolError):
            raise click.UsageError(str(cause)) from error
        if isinstance(cause, GemingaError):
            text = told_of_options(str(cause)) if _takes_credentials() else str(cause)
            raise click.ClickException(text) from error
        if isinstance(cause, KeyboardInterrupt):
            interrupted()
        raise


def interrupted() -> NoReturn:
    """End after Ctrl-C; a second one ends at once, without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(EXIT_INTERRUPTED)


def _takes_credentials() -> bool:
    """Whether the command, or its group, has an option for them."""
    context = click.get_current_context(silent=True)
    while context is not None:
        if any("--auth-plugin" in each.opts for each in context.command.params):
            return True
        context = context.parent
    return False


def options_of(kind: Callable[..., T], given: Mapping[str, object]) -> T:
    """A command's flags, which click has checked, as an object with their long names."""
    return kind(**given)


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


def place(context: click.Context, parameter: click.Parameter, value: str) -> MessageId:
    """Where to begin: `latest`, `earliest`, or `LEDGER:ENTRY` as in the Java tools; what is shown
    as a message's id, with partition and batch index, is taken too.
    """
    from geminga_protocol.message_id import MessageId

    ends = {"latest": MessageId.LATEST, "earliest": MessageId.EARLIEST}
    if value.lower() in ends:
        return ends[value.lower()]
    parts = value.split(":")
    if not 2 <= len(parts) <= 4 or not all(_NUMBER.fullmatch(each) for each in parts):
        raise click.BadParameter(f"{value!r} is not latest, earliest or LEDGER:ENTRY")
    numbers = [int(each) for each in parts]
    if not all(-1 <= each < 1 << 63 for each in numbers):
        raise click.BadParameter(f"{value!r} has a number that no message id has")
    ledger_id, entry_id, partition, batch_index = [*numbers, -1, -1][:4]
    return MessageId(ledger_id, entry_id, partition, batch_index)
