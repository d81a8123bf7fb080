"""`geminga completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click

WHERE = {
    "bash": "~/.bashrc:  eval \"$(geminga completion bash)\"",
    "zsh": "~/.zshrc:   eval \"$(geminga completion zsh)\"",
    "fish": "geminga completion fish > ~/.config/fish/completions/geminga.fish",
}  # fmt: skip
HELP = "Print what SHELL needs to complete commands and options.\n\n\b\n" + "\n".join(
    WHERE.values()
)


@click.command(help=HELP)
@click.argument("shell", type=click.Choice(list(WHERE)))
def completion(shell: str) -> None:
    """Print the shell's script."""
    from click.shell_completion import get_completion_class

    from geminga.cli import main

    kind = get_completion_class(shell)
    assert kind is not None, f"click knows {shell}"
    click.echo(kind(main, {}, "geminga", "_GEMINGA_COMPLETE").source())
