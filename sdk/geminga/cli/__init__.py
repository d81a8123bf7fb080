"""The `geminga` command: sub-commands come from entry points of the group `geminga.commands`.

A sub-command's module is imported only when it is asked for, so that the program starts quickly and
each part of Geminga can be installed alone (spec OP-01).
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import click

ENTRY_POINT_GROUP = "geminga.commands"


class LazyGroup(click.Group):
    """A group whose commands are loaded from entry points by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all installed sub-commands."""
        return sorted(_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The sub-command, imported now; None when there is none of that name."""
        entry = _commands().get(cmd_name)
        if entry is None:
            return None
        command = entry.load()
        if not isinstance(command, click.Command):
            raise click.ClickException(f"entry point {entry.value} is no command")
        return command


def _commands() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="geminga", prog_name="geminga")
def main() -> None:
    """Apache Pulsar's protocol, broker, storage and client in one Python program."""
