"""The `geminga` command finds its sub-commands, and imports none that it wasn't asked for."""

from __future__ import annotations

import subprocess
import sys

import click
from click.testing import CliRunner

from geminga.cli import main


def test_sub_commands_come_from_entry_points() -> None:
    context = click.Context(main)
    names = main.list_commands(context)
    assert {"standalone", "bookieshell", "client", "perf"} <= set(names)
    assert main.get_command(context, "nonsense") is None


def test_wrong_usage_is_exit_code_2() -> None:
    result = CliRunner().invoke(main, ["nonsense"])
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.output


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.output.startswith("geminga, version ")


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, geminga.cli; print('trio' in sys.modules, 'google.protobuf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
