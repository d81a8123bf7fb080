"""The recorded mistakes: read from `records/*.toml`, checked against the tree.

[[mutant]]
name = "trim-deletes-before-it-saves"   # unique; `--only` takes a part of it
file = "broker_core/…/topic_log.py"     # from the root
before = '''…'''                        # stands in the file exactly once
after = '''…'''
why = "…"                               # what a user would lose
tests = ["path", "path::name"]          # run in this order, up to the first failure
survives = "…"                          # only if no test can fail: the evidence
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDS = Path(__file__).parent / "records"
_FUNCTION = re.compile(r"^\s*(?:async )?def (\w+)\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One deliberate mistake."""

    name: str
    file: str
    before: str
    after: str
    why: str
    tests: tuple[str, ...]
    survives: str = ""
    """Why no test is expected to fail; empty for those that must be killed."""
    area: str = ""


class Stale(Exception):
    """A record that does not fit the tree any more."""


def load(folder: Path = RECORDS) -> list[Mutant]:
    """All records, by file and in their order there."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for row in tomllib.loads(path.read_text())["mutant"]:
            row["tests"] = tuple(row["tests"])
            found.append(Mutant(**row, area=path.stem))
    return found


def applied(mutant: Mutant, text: str) -> str:
    """The file's text with the mistake. Raises Stale unless `before` stands in it exactly once."""
    count = text.count(mutant.before)
    if count != 1:
        raise Stale(
            f"{mutant.name}: {mutant.file} holds the text {count} times, not once; "
            f"the code has changed, so change the record:\n{mutant.before}"
        )
    return text.replace(mutant.before, mutant.after)


def faults(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """What is wrong with the records: a line for each."""
    found = []
    read = cache(_meaning)  # a file has many mistakes
    names = [mutant.name for mutant in mutants]
    found += [f"{name}: two records have that name" for name in {*names} if names.count(name) > 1]
    for mutant in mutants:
        path = root / mutant.file
        if not path.is_file():
            found.append(f"{mutant.name}: there is no {mutant.file}")
            continue
        text = path.read_text()
        try:
            mutated = applied(mutant, text)
        except Stale as error:
            found.append(str(error))
            continue
        if _meaning(mutated) in (read(""), read(text)):
            found.append(f"{mutant.name}: it is no Python, or changes nothing")
        if not mutant.tests:
            found.append(f"{mutant.name}: it names no test")
        found += [f"{mutant.name}: {fault}" for fault in _missing_tests(mutant.tests, root)]
    return found


def _meaning(text: str) -> str:
    """What Python reads in a file; of a text that is no Python, as of an empty one."""
    try:
        return ast.dump(ast.parse(text))
    except SyntaxError:
        return ast.dump(ast.parse(""))


def _missing_tests(tests: Sequence[str], root: Path) -> list[str]:
    missing = []
    for test in tests:
        file, _, name = test.partition("::")
        path = root / file
        if not path.exists():
            missing.append(f"there is no {file}")
        elif name and name.partition("[")[0] not in _functions(path):
            missing.append(f"{file} has no test {name}")
    return missing


def _functions(path: Path) -> set[str]:
    return set(_FUNCTION.findall(path.read_text()))
