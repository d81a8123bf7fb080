"""The `geminga` command: sub-commands come from entry points of the group `geminga.commands`.

A sub-command's module is imported on use only, so that the program starts quickly and each part of
Geminga can be installed alone (spec OP-01).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "geminga.commands"


class GuessingGroup(click.Group):
    """A group that names the command that was perhaps meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As of click. Raises UsageError, which names commands that are spelt alike."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            from difflib import get_close_matches

            near = get_close_matches(name, self.list_commands(ctx), 3, 0.6)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As of click. Raises UsageError, which says where an option of a command belongs."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            _check_command(self, ctx, given, error)
            raise

    def invoke(self, ctx: click.Context) -> object:
        """As of click. Raises UsageError, which says where an option of a group belongs."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            _check_place(error)
            raise


def _check_command(
    group: click.Group, ctx: click.Context, args: Sequence[str], error: click.NoSuchOption
) -> None:
    """Raises UsageError if one of the group's commands in `args` has the option, which was given
    before it.
    """
    for name in args:
        command = None if name.startswith("-") else group.get_command(ctx, name)
        if command is not None and any(error.option_name in each.opts for each in command.params):
            text = f"{error.option_name} stands behind {name!r}: {ctx.command_path} {name}"
            raise click.UsageError(f"{text} {error.option_name} ...", ctx) from None


def _check_place(error: click.NoSuchOption) -> None:
    """Raises UsageError if a group has the option, which was given behind its command."""
    ctx = error.ctx
    while ctx is not None and ctx.parent is not None:
        command, ctx = ctx.info_name, ctx.parent
        if any(error.option_name in param.opts for param in ctx.command.params):
            text = f"{error.option_name} stands before {command!r}, behind {ctx.command_path!r}"
            raise click.UsageError(text, error.ctx) from None


class LazyGroup(GuessingGroup):
    """A group whose commands are loaded from entry points by name."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a sub-command; its late imports may also be missing. Raises BrokenPipeError if nobody
        reads its output any more, which click takes for a quiet end with exit code 1.
        """
        try:
            return super().invoke(ctx)
        except (ModuleNotFoundError, BaseExceptionGroup) as error:
            missing = missing_module(error)
            if missing is None:
                if pipe := closed_pipe(error):
                    raise pipe from None
                raise
            raise MissingExtra(ctx.invoked_subcommand or "", missing) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all installed sub-commands."""
        return sorted({*_commands(), *OWN_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The sub-command, imported now; None if there is none with that name."""
        own = OWN_COMMANDS.get(cmd_name)
        entry = None if own else _commands().get(cmd_name)
        if entry is None and own is None:
            return None
        try:
            command = entry.load() if entry else _loaded(own or "")
        except ModuleNotFoundError as error:
            return _missing(cmd_name, error)
        if not isinstance(command, click.Command):
            raise click.ClickException(f"entry point of {cmd_name} is no command")
        return command


OWN_COMMANDS = {
    "admin": "geminga.cli.admin:admin",
    "client": "geminga.cli.client:client",
    "compact-topic": "geminga.cli.compact_topic:compact_topic",
    "completion": "geminga.cli.completion:completion",
    "doctor": "geminga.cli.doctor:doctor",
    "perf": "geminga.cli.perf:perf",
    "tokens": "geminga.cli.tokens:tokens",
}
"""Commands of this package, as among its entry points: reading those takes as long as a call of the
admin API.
"""


def _loaded(path: str) -> object:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


class MissingExtra(click.ClickException):
    """A package that the command needs isn't installed; exit code 2."""

    exit_code = 2

    def __init__(self, command: str, module: str) -> None:
        extra = _EXTRAS.get(command, "server")
        super().__init__(
            f"`geminga {command}` needs the package {module!r}, which is not installed: "
            f"pip install 'geminga[{extra}]'"
        )


_EXTRAS = {"sql": "spark"}
_OURS = ("geminga", "pyspark_pulsar")


def missing_module(error: BaseException) -> str | None:
    """The third-party package that can't be imported; None for another error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, ModuleNotFoundError):
        return None
    module = (error.name or str(error)).partition(".")[0]
    return None if module.startswith(_OURS) else module


def closed_pipe(error: BaseException) -> BrokenPipeError | None:
    """The closed pipe that is all that is wrong, wrapped by Trio's nurseries; None otherwise."""
    while isinstance(error, BaseExceptionGroup):
        if error.split(BrokenPipeError)[1] is not None:
            return None
        error = error.exceptions[0]
    return error if isinstance(error, BrokenPipeError) else None


def _missing(name: str, error: ModuleNotFoundError) -> click.Command:
    """A command that only reports its missing package, so that `--help` still works."""
    module = missing_module(error)
    if module is None:
        raise error

    def refuse() -> None:
        raise MissingExtra(name, module)

    return click.Command(
        name,
        callback=refuse,
        help=f"Not installed: needs {module!r}.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
    )


def _commands() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="geminga", prog_name="geminga")
def main() -> None:
    """Apache Pulsar's protocol, broker, storage and client in one Python program."""
