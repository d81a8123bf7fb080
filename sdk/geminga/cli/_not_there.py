"""Options of pulsar-client that Geminga has not: they are told, instead of being read as a short
option with a value (`-ks` as `-k s`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_KEYS = "-k is the key, as a text, and -vs the messages' schema"
_LEAVE = "leave it out"
OF_PRODUCE = {
    "-ks --key-schema": _KEYS,
    "-kvet --key-value-encoding-type": _KEYS,
    "-kvk --key-value-key": _KEYS,
    "-kvkf --key-value-key-file": _KEYS,
}
OF_READ = {
    "-mc --max_chunked_msg": _LEAVE,
    "-ac --auto_ack_chunk_q_full": _LEAVE,
    "-pm --pool-messages": _LEAVE,
    "-ca --crypto-failure-action": _LEAVE,
    "-mp --print-metadata": "--json shows the metadata",
}
OF_CONSUME = {
    **OF_READ,
    "-rs --replicated": _LEAVE,
    "-stp --start-timestamp": _LEAVE,
    "-etp --end-timestamp": _LEAVE,
}
"""By the names of an option: what to do instead."""


def lacks(options: Mapping[str, str]) -> Callable[[Command], Command]:
    """Decorate a command: it refuses these options."""

    def refuse(context: click.Context, parameter: click.Parameter, value: object) -> None:
        if value:
            names = " ".join(parameter.opts)
            short, long = parameter.opts
            text = f"{context.info_name} has no {short} ({long}): {options[names]}"
            raise click.UsageError(text)

    def decorate(command: Command) -> Command:
        for names in options:
            # A flag, and eager: it is told before anything that stands behind it.
            click.option(
                *names.split(), is_flag=True, is_eager=True, hidden=True, expose_value=False,
                callback=refuse,
            )(command)  # fmt: skip
        return command

    return decorate
