"""The tables of commands: their names and options, and what each one asks for."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from geminga._admin.declared import declaration_of
from geminga.cli.admin import admin
from geminga.cli.admin.build import built, commands_of
from geminga.cli.admin.declare import FAMILIES, Command
from geminga.cli.admin.values import KINDS

ROOT = Path(__file__).resolve().parents[5]
APACHE = ROOT / "compat_tests" / "apache" / "admin_commands.txt"


def rows() -> Iterator[tuple[str, Command]]:
    for family, about in FAMILIES.items():
        for row in commands_of(about.modules).values():
            yield family, row


ROWS = list(rows())


@pytest.mark.parametrize("line", APACHE.read_text().splitlines())
def test_pulsar_admin_s_commands_and_options_are_there(line: str) -> None:
    family, name, *options = line.split()
    row = commands_of(FAMILIES[family].modules).get(name)
    assert row is not None, line
    known = {each for option in row.options for each in option.names.split()}
    assert set(options) <= known, set(options) - known


@pytest.mark.parametrize(("family", "row"), ROWS, ids=[f"{f} {r.name}" for f, r in ROWS])
def test_a_row_fits_its_operation(family: str, row: Command) -> None:
    assert (row.operation is None) != (row.run is None)
    assert row.about.endswith(".")
    assert isinstance(built(row), click.Command)
    names = [each for option in row.options for each in option.names.split()]
    assert len(names) == len(set(names)), "an option twice"
    kinds = {option.kind for option in row.options}
    assert kinds <= {*KINDS, "text", "int", "float", "flag"}
    if row.operation is None:
        return
    parameters = declaration_of(row.operation).signature.parameters
    given = {each.strip("[]") for each in row.arguments.split()}
    if row.make is None:
        given |= {option.to for option in row.options}
        assert given <= set(parameters), given - set(parameters)
    needed = {name for name, each in parameters.items() if each.default is inspect.Parameter.empty}
    if row.make is None:
        assert needed <= given, needed - given


def test_no_command_stands_twice() -> None:
    from geminga.cli.admin.build import rows_of

    for name, family in FAMILIES.items():
        if name == "topics":
            continue
        listed = [row.name for module in family.modules for row in rows_of(module)]
        assert len(listed) == len(set(listed)), name


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_help(family: str) -> None:
    result = CliRunner().invoke(admin, [family, "--help"])
    assert result.exit_code == 0
    visible = [row.name for each, row in ROWS if each == family and not row.is_hidden]
    shown = {line.split()[0] for line in result.output.splitlines() if line.startswith("  ")}
    assert set(visible) <= shown
    result = CliRunner().invoke(admin, [family, visible[0], "--help"])
    assert result.exit_code == 0
    assert "--format" in result.output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("functions list", "No command 'functions': Geminga runs no functions and connectors."),
        ("transactions slow-transactions", "Geminga has no transactions."),
        ("topics create t -p 4", "create makes one topic: use create-partitioned-topic"),
    ],
)
def test_what_is_not_there_is_told(line: str, told: str) -> None:
    result = CliRunner().invoke(admin, line.split())
    assert (result.exit_code, told in result.output) == (2, True), result.output
