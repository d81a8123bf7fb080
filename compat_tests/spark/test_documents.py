"""docs/spark.md as it stands: its examples are run (and README's), its tables compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from compat_tests.guides import guides, run_guide
from compat_tests.processes import ROOT
from compat_tests.spark.programs import run_program
from compat_tests.spark.topics import Pulsar
from pyspark_pulsar._decode._metadata import METADATA
from pyspark_pulsar._decode._tests.test_types import TABLE
from pyspark_pulsar._encode._layout import _ROLES
from pyspark_pulsar._options import parse_read
from pyspark_pulsar._options._parser import OptionParser
from pyspark_pulsar._options._write_options import parse_write
from pyspark_pulsar.errors import InvalidOption

DOCUMENT = ROOT / "docs" / "spark.md"
BLOCK = re.compile(r"<!-- spark: ([\w-]+) -->\n```python\n(.*?)```", re.DOTALL)
NEEDED = {"service.url": "pulsar://localhost:1", "topic": "t"}
Parser = Callable[[dict[str, str]], object]
PARSERS: tuple[Parser, ...] = (
    lambda options: parse_read(options, streaming=False),
    lambda options: parse_read(options, streaming=True),
    lambda options: parse_write(options, streaming=False),
    lambda options: parse_write(options, streaming=True),
    lambda options: parse_write({"schemaType": "keyvalue", **options}, streaming=False),
)
NOT_THE_USERS = {"path", "checkpointlocation", "pulsar.client.serviceurl"}
"""What Spark itself gives, and a name of Java's that means `service.url`."""


def section(title: str, until: str = "\n## ") -> str:
    """The text below a heading."""
    text = DOCUMENT.read_text()
    start = text.index(f"\n{title}\n")
    return text[start : text.index(until, start + 1)]


def rows(text: str) -> list[list[str]]:
    """Cells of the tables' lines, without heads."""
    bodies = re.findall(r"^\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    lines = [line for body in bodies for line in body.splitlines()]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


@pytest.mark.parametrize(("document", "count"), [(DOCUMENT, 10), (ROOT / "README.md", 1)])
def test_examples(
    spark: SparkSession,
    pulsar: Pulsar,
    document: Path,
    count: int,
    request: pytest.FixtureRequest,
) -> None:
    """One after the other in one program, as a reader would type them."""
    policy = "namespaces/public/default/deduplication"
    pulsar.admin("POST", policy, True)
    request.addfinalizer(lambda: pulsar.admin("DELETE", policy))
    blocks = BLOCK.findall(document.read_text())
    assert len(blocks) == count
    known: dict[str, object] = {}
    for name, code in blocks:
        code = code.replace("pulsar://127.0.0.1:6650", pulsar.url)
        exec(compile(code, f"{document.name}:{name}", "exec"), known)
    if "secured" in known:
        parse_read({**cast("dict[str, str]", known["secured"]), "topic": "t"}, streaming=False)
    for view in ("orders", "colours", "dear", "cheap", "teas"):
        spark.catalog.dropTempView(view)


def test_commands(pulsar: Pulsar, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    there = {"geminga sql": f"geminga sql -u {pulsar.url} --master local[1]",
             "geminga client": f"geminga client --url {pulsar.url}"}  # fmt: skip
    found = guides(DOCUMENT)["sql"]
    assert len(found) == 4
    for step in found:
        for command, addressed in there.items():
            step.command = step.command.replace(command, addressed)
    run_guide(found, folder, timeout_s=500)


def test_columns_are_told_right() -> None:
    told = {name.strip("`"): (kind, what) for name, kind, what in rows(section("## Columns"))}
    types = {name: column.spark.simpleString() for name, column in METADATA.items()}
    assert {name: kind for name, (kind, _) in told.items()} == types
    only_if_asked = {name for name, (_, what) in told.items() if "(only if" in what}
    assert only_if_asked == {name for name, column in METADATA.items() if not column.in_default}
    written = [name.strip("`").lower() for name, _ in rows(section("## Writing"))]
    assert sorted(written) == sorted(set(_ROLES) - {"__properties"})


def test_types_are_told_right() -> None:
    told = [tuple(cells) for cells in rows(section("## Types"))]
    assert told == TABLE


def test_workers_without_the_connector(tmp_path: Path) -> None:
    """What is told to somebody whose `python3` isn't the one of the program."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    program = "compat_tests.spark.lost_program"
    found, registered = run_program(program, str(python), str(tmp_path))
    advice = DOCUMENT.read_text().partition("\n## When something is wrong\n")[2]
    table = {cells[0].strip("`"): cells[1] for cells in rows(advice)}
    (told,) = [what for message, what in table.items() if message in found]
    assert "PYSPARK_PYTHON" in told
    assert any(message in registered for message in table)


@pytest.mark.parametrize("first", ["connector", "spark"])
def test_a_program_that_says_nothing_of_workers(tmp_path: Path, first: str) -> None:
    """`venv/bin/python app.py`, where `python3` is another one: importing the connector helps."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if "PYSPARK" not in name}
    environ["PATH"] = f"{tmp_path}:{environ['PATH']}"
    program = [sys.executable, "-m", "compat_tests.spark.plain_program", first, str(tmp_path)]
    done = subprocess.run(
        program, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=250, check=True
    )
    if first == "connector":
        assert "option service.url: must be given" in done.stdout
    else:
        assert "DATA_SOURCE_NOT_FOUND" in done.stdout
        assert "Spark was started before pyspark_pulsar was imported" in done.stderr


def names_in(table: list[list[str]]) -> set[str]:
    return {name for cells in table for name in re.findall(r"`([^`]+)`", cells[0])}


def test_options_are_told_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the parsers know is in the tables, and the other way round."""
    asked: set[str] = set()

    def note(given: OptionParser, *names: str) -> None:
        asked.update(each.lower() for each in names)

    text = OptionParser.text
    monkeypatch.setattr(OptionParser, "text", lambda self, *n: (note(self, *n), text(self, *n))[1])
    for parse in PARSERS:
        parse(dict(NEEDED))
    told = names_in(rows(section("## Options")))
    assert {name.lower() for name in told} == asked - NOT_THE_USERS
    for name in told:
        complaints = [complaint_about(parse, name) for parse in PARSERS]
        assert any("is unknown" not in each for each in complaints), name


def complaint_about(parse: Parser, name: str) -> str:
    """What is said to a value that no option takes."""
    try:
        parse({**NEEDED, name: "\\0"})
    except InvalidOption as error:
        return str(error)
    return ""
