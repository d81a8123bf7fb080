"""What everybody expects of a project: the changelog names each change of a public name, hooks are
the steps of `make check`, and each place that a document names is there.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from compat_tests.test_tidy import sources, text_of, tree_of
from tools import public_names

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
WITH_PLACES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "BENCHMARKS.md"),
)
PRODUCTS = ("broker_core/", "bookie_core/", "protocol/", "proxy/", "sdk/")
PLACE = re.compile(r"`((?:[\w.-]+/)*\w+\.(?:py|proto))`")


def test_licence_is_the_one_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE"]
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "9. Accepting Warranty or Additional Liability" in text


def test_what_a_server_needs_is_locked() -> None:
    """Tests run with more packages than `make run` installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted, left = set(), [*project["dependencies"], *extras["server"]]
    while left:
        needed = Requirement(left.pop())
        if needed.name == project["name"]:
            left += [each for extra in needed.extras for each in extras[extra]]
        else:
            wanted.add((canonicalize_name(needed.name), str(needed.specifier)))
    lines = (ROOT / "requirements" / "run.lock").read_text().splitlines()[1:]
    locked = {canonicalize_name(name): version for name, _, version in (
        line.partition("==") for line in lines
    )}  # fmt: skip
    assert ("fastavro", "<2,>=1.9") in wanted
    for name, specifier in sorted(wanted):
        assert locked.get(name) in SpecifierSet(specifier), name


def test_changelog_names_each_change() -> None:
    released = public_names.RELEASED.read_text().splitlines()
    now = [*public_names.names()]
    assert "geminga.Client" in now
    assert public_names.omitted(released, now, public_names.CHANGELOG.read_text()) == []


@pytest.mark.parametrize(
    ("now", "missing"),
    [
        (["a.C(x)", "a.C.get(b, *, c)"], []),
        (["a.C(x)", "a.C.get(b, *, d)"], ["a.C.get.c", "a.C.get.d"]),
        (["a.C(x)", "a.C.get(b, c)"], ["a.C.get"]),
        (["a.C(x)", "a.C.fetch(b, *, c)"], ["a.C.fetch", "a.C.get"]),
        (["a.D(x)", "a.D.get(b, *, c)"], ["a.C", "a.D"]),
        (["a.C(x)", "a.C.get(b, *, c)", "a.told"], []),
    ],
)
def test_changes_of_public_names_are_found(now: list[str], missing: list[str]) -> None:
    changelog = (
        "# x\n\n## Unreleased\n\n- new: `a.told(y)`\n\n## 0.1\n\n- `get`, `fetch`, `C`, `D`\n"
    )
    before = ["a.C(x)", "a.C.get(b, *, c)"]
    assert public_names.omitted(before, now, changelog) == missing


def test_hooks_are_the_steps_of_the_check() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (steps,) = re.findall(r"^CHECKS := (.*)$", makefile, re.MULTILINE)
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"^        entry: make (\S+)$", hooks, re.MULTILINE) == steps.split()


@cache
def tracked() -> frozenset[str]:
    """Every path of the repository, and each of its ends: `a/b.py` and `b.py`."""
    files = [path.relative_to(ROOT) for path in ROOT.glob("protocol/**/*.proto")]
    parts = [path.parts for path in (*files, *map(Path, sources()))]
    return frozenset("/".join(each[at:]) for each in parts for at in range(len(each)))


@pytest.mark.parametrize("document", WITH_PLACES, ids=lambda path: path.name)
def test_files_that_documents_name_exist(document: Path) -> None:
    named = PLACE.findall(document.read_text())
    assert [name for name in named if name not in tracked()] == []


def features() -> str:
    return (ROOT / "docs" / "FEATURES.md").read_text()


def test_features_are_counted() -> None:
    rows = re.findall(r"^\| ([A-Z]+-\d+) \| [^|]+ \| (done|part|open) \|", features(), re.MULTILINE)
    assert len({row for row, _ in rows}) == len(rows) > 150
    states = Counter(state for _, state in rows)
    told = "{done} done, {part} in part, {open} open, of {all}."
    assert told.format(**states, all=len(rows)) in features()


def test_features_in_part_say_what_is_there() -> None:
    assert re.findall(r"^\| ([A-Z]+-\d+) \| [^|]+ \| part \| *\|$", features(), re.MULTILINE) == []


def test_tests_that_features_name_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", features())
    assert len(named) > 30
    assert [(path, name) for path, name in named if path not in sources()] == []
    assert [(path, name) for path, name in named if name not in defined(tree_of(path))] == []


def test_names_in_features_exist() -> None:
    """What stands in backquotes and is no file is a setting or a name of the code, or a target."""
    words = re.findall(r"`([^`]+)`", features())
    code = "\n".join(text_of(path) for path in sources() if path.startswith(PRODUCTS))
    makefile = (ROOT / "Makefile").read_text()
    targets = {f"make {target}" for target in re.findall(r"^([\w-]+):", makefile, re.MULTILINE)}
    plain = [word for word in words if ".py" not in word and word not in targets]
    assert [word for word in plain if not re.search(rf"\b{re.escape(word)}\b", code)] == []


def test_rooms_exist() -> None:
    section = ARCHITECTURE.read_text().partition("## The rooms")[2].partition("\n## ")[0]
    rooms = re.findall(r"`(\w+/\w+)`", section)
    packages = {str(Path(name).parent) for name in tracked() if name.endswith("/__init__.py")}
    assert len(rooms) > 8
    assert [room for room in rooms if room not in packages] == []


def where_is() -> list[tuple[str, str, str]]:
    """(question, file, name) of each row of ARCHITECTURE.md's table."""
    section = ARCHITECTURE.read_text().partition("## Where is")[2].partition("\n## ")[0]
    return re.findall(r"^\| ([^|]+) \| `([\w/]+\.py)` \| `([\w.]+)` \|$", section, re.MULTILINE)


def defined(tree: ast.Module | ast.ClassDef) -> dict[str, ast.stmt]:
    """Names that a module or class body binds, with the statements."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update({each.id: node for each in targets if isinstance(each, ast.Name)})
    return found


def test_there_is_a_table_of_places() -> None:
    assert len(where_is()) >= 15


@pytest.mark.parametrize(("question", "file", "name"), where_is(), ids=[w[0] for w in where_is()])
def test_places_are_where_the_table_says(question: str, file: str, name: str) -> None:
    (path,) = [each for each in sources() if each.endswith(f"/{file}")]
    scope: ast.stmt | ast.Module = tree_of(path)
    for part in name.split("."):
        assert isinstance(scope, ast.Module | ast.ClassDef), f"{question}: {name} in {path}"
        names = defined(scope)
        assert part in names, f"{question}: {path} defines no {name}"
        scope = names[part]
    assert text_of(path)


def test_decisions_have_numbers_of_their_own() -> None:
    files = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [int(name[:4]) for name in files if name[:4].isdigit()]
    assert numbers == [*range(1, len(numbers) + 1)]
