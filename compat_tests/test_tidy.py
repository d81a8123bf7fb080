"""House rules as tests: sizes, purity, docstrings, words that must not stand in the project
(docs/STYLE.md).
"""

from __future__ import annotations

import ast
import gc
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tools import counts

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
CLASS_CODE_LINES_MAX = 300
CLASS_METHODS_MAX = 25
CONSTRUCTOR_PARAMETERS_MAX = 8
LINE_COLUMNS_MAX = 120  # tables in docstrings may pass ruff's 100 for code
FLAT_MODULES_MAX = 26

BASELINE: dict[str, int] = {
    # Its parameters are those of the official client's `Client`.
    "sdk/geminga/pulsar/_client.py::Client": 17,
}
"""`path::name` -> size of the few known exceptions; a number may only fall."""

FLAT_BASELINE: dict[str, int] = {}
"""Packages that still hold more modules side by side; a number may only fall."""

FORBIDDEN_WORDS = re.compile(
    r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|pragma: no cover|/root/|/work/|/home/\w"
)
PURE_PACKAGES = ("protocol/geminga_protocol/",)


@cache
def sources() -> tuple[str, ...]:
    """Paths of our own Python files, generated ones left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = [name for name in listed.stdout.split() if not name.endswith("_pb2.py")]
    return tuple(name for name in names if (ROOT / name).exists())


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text()


@cache
def tree_of(name: str) -> ast.Module:
    return product()[name].tree if name in product() else ast.parse(text_of(name))


@cache
def product() -> dict[str, counts.Module]:
    """The files that `counts` parses, too."""
    return {module.path: module for module in counts.modules()}


@pytest.fixture(scope="module", autouse=True)
def no_search_for_garbage() -> Iterator[None]:
    """Millions of nodes stay until the last test: Python would look through them time and again,
    which takes longer than all else.
    """
    gc.disable()
    yield
    tree_of.cache_clear()
    product.cache_clear()
    counts.modules.cache_clear()
    gc.enable()


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, its docstring left out."""
    first = node.body[0]
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def code_lines(name: str, node: ast.ClassDef) -> int:
    """Lines of a class that hold code: no blanks, comments, docstrings."""
    skip: set[int] = set()
    for inner in counts.statements(node):
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
            skip.update(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
    lines = text_of(name).splitlines()
    numbers = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    kept = [lines[n - 1].strip() for n in numbers if n not in skip]
    return sum(1 for line in kept if line and not line.startswith("#"))


def functions(name: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in counts.statements(tree_of(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}::{node.name}", node


def classes(name: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in counts.statements(tree_of(name)):
        if isinstance(node, ast.ClassDef):
            yield f"{name}::{node.name}", node


def too_big(sizes: dict[str, int], limit: int) -> list[str]:
    return [
        f"{key} is {size}, limit {max(limit, BASELINE.get(key, 0))}"
        for key, size in sorted(sizes.items())
        if size > max(limit, BASELINE.get(key, 0))
    ]


def test_files_are_small() -> None:
    sizes = {name: len(text_of(name).splitlines()) for name in sources()}
    assert sizes, "git lists no sources: the test would pass on nothing"
    assert too_big(sizes, FILE_LINES_MAX) == []


def test_functions_are_short() -> None:
    sizes = {key: body_lines(node) for name in sources() for key, node in functions(name)}
    assert too_big(sizes, FUNCTION_LINES_MAX) == []


def test_classes_are_small() -> None:
    sizes: dict[str, int] = {}
    methods: dict[str, int] = {}
    parameters: dict[str, int] = {}
    for name in sources():
        for key, node in classes(name):
            sizes[key] = code_lines(name, node)
            own = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
            methods[key] = sum(1 for method in own if not _is_attribute(method))
            for method in own:
                if method.name == "__init__":
                    parameters[key] = len(method.args.args) + len(method.args.kwonlyargs) - 1
    assert too_big(sizes, CLASS_CODE_LINES_MAX) == []
    if_tests_left_out = {
        k: v for k, v in methods.items() if "/_tests/" not in k and "compat_" not in k
    }
    assert too_big(if_tests_left_out, CLASS_METHODS_MAX) == []
    assert too_big(parameters, CONSTRUCTOR_PARAMETERS_MAX) == []


def test_packages_are_not_too_full() -> None:
    """A package of many modules side by side wants rooms."""
    flat = counts.flat()
    assert flat, "no packages were found: the test would pass on nothing"
    limits = {name: max(FLAT_MODULES_MAX, FLAT_BASELINE.get(name, 0)) for name in flat}
    assert {name: count for name, count in flat.items() if count > limits[name]} == {}


@pytest.mark.parametrize("kind", ["at run time", "for type checkers"])
def test_no_modules_import_one_another_in_a_circle(kind: str) -> None:
    edges = counts.graph(typing=kind == "for type checkers")
    assert any(edges.values()), "no imports were found: the test would pass on nothing"
    assert counts.circles(edges) == []


def test_circles_are_found() -> None:
    edges = {
        "a": {"b", "c"},
        "b": {"c"},
        "c": {"b"},
        "d": {"a"},
        "e": {"f"},
        "f": {"g"},
        "g": {"e"},
    }
    assert counts.circles(edges) == [["e", "f", "g"], ["b", "c"]]


def test_baseline_only_falls() -> None:
    for key, allowed in BASELINE.items():
        name = key.split("::")[0]
        assert name in sources(), f"{key} is gone: take it out of the baseline"
        assert allowed > 0


def test_lines_are_not_too_long() -> None:
    long = [
        f"{name}:{number}"
        for name in sources()
        for number, line in enumerate(text_of(name).splitlines(), 1)
        if len(line) > LINE_COLUMNS_MAX
    ]
    assert long == []


def test_no_forbidden_words() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in sources()
        if name != "compat_tests/test_tidy.py"
        for number, line in enumerate(text_of(name).splitlines(), 1)
        if FORBIDDEN_WORDS.search(line)
    ]
    assert found == []


def test_public_names_have_docstrings() -> None:
    missing = []
    for name in sources():
        if "/_tests/" in name or name.startswith(("compat_tests/", "tools/", "examples/")):
            continue
        tree = tree_of(name)
        if ast.get_docstring(tree) is None:
            missing.append(name)
        for node in tree.body:
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            if isinstance(node, kinds) and not node.name.startswith("_"):
                if ast.get_docstring(node) is None:
                    missing.append(f"{name}::{node.name}")
                if isinstance(node, ast.ClassDef):
                    missing += [
                        f"{name}::{node.name}.{method.name}"
                        for method in node.body
                        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
                        and not method.name.startswith("_")
                        and ast.get_docstring(method) is None
                        and not _is_plain(method)
                    ]
    assert missing == []


def _is_attribute(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Properties read like attributes, and dunders belong to every class: neither is counted."""
    decorators = {ast.unparse(decorator) for decorator in method.decorator_list}
    return bool(decorators & {"property", "cached_property"}) or method.name.startswith("__")


def _is_plain(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Properties and overloads of one line, and protocol stubs, speak for themselves."""
    return len(method.body) == 1 and body_lines(method) <= 4


@pytest.mark.parametrize("package", PURE_PACKAGES)
def test_pure_packages_have_no_coroutines(package: str) -> None:
    found = [
        key
        for name in sources()
        if name.startswith(package) and "/_tests/" not in name
        for key, node in functions(name)
        if isinstance(node, ast.AsyncFunctionDef)
    ]
    assert found == []


def test_what_tasks_wait_for_is_of_one_event_loop() -> None:
    """A process may have several brokers or clients, each with a loop in a thread of its own: what
    is made at import would wake a loop's tasks from another one's thread.
    """
    kinds = {"CapacityLimiter", "Condition", "Event", "Lock", "Semaphore", "StrictFIFOLock"}
    shared = [
        f"{name}:{node.lineno}"
        for name in sources()
        if "/_tests/" not in name
        for statement in tree_of(name).body
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(made := node.func, ast.Attribute)
        if made.attr in kinds and isinstance(made.value, ast.Name) and made.value.id == "trio"
    ]
    assert not shared


def test_servers_read_json_by_one_function() -> None:
    """It raises one error, whatever is wrong with what others wrote."""
    servers = ("protocol/geminga_runtime/", "bookie_core/", "broker_core/", "proxy/")
    found = [
        f"{name}:{node.lineno}"
        for name in sources()
        if name.startswith(servers) and "/_tests/" not in name and "/json_text.py" not in name
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Attribute) and node.attr in {"decode", "Decoder"}
        if ast.unparse(node.value) == "msgspec.json"
    ]
    assert not found


def test_the_connector_uses_public_names_only() -> None:
    """It is a program like a user's own: what it needs of the client is public."""
    found = [
        f"{name}: {module}.{each.name}"
        for name in sources()
        if name.startswith("sdk/pyspark_pulsar/") and "/_tests/" not in name
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in [(node.module or "") if isinstance(node, ast.ImportFrom) else ""]
        for each in node.names
        if re.match(r"geminga\b.*\._", f"{module}.{each.name}".lstrip("."))
    ]
    assert found == []


def test_documents_keep_to_themselves() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.toml", "Makefile", ".ci/run"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    pattern = re.compile(r"/root/|/work/|\b(Claude|GPT|LLM|AI agent|issue #?\d+)\b")
    found = [
        f"{name}: {match.group()}"
        for name in listed.stdout.split()
        if (match := pattern.search((ROOT / name).read_text()))
    ]
    assert found == []


def test_features_table_lists_every_row_once() -> None:
    text = (ROOT / "docs" / "FEATURES.md").read_text()
    ids = re.findall(r"^\| ((?:PR|BK|BR|CL|PX|SDK|SP|AD|OP)-\d\d) \|", text, re.MULTILINE)
    assert len(ids) == 163
    assert len(set(ids)) == 163
    states = set(re.findall(r"^\| [A-Z]+-\d\d \| [^|]+ \| (\w+)", text, re.MULTILINE))
    assert states <= {"done", "part", "open"}
    count = {
        s: len(re.findall(rf"^\| [A-Z]+-\d\d \| [^|]+ \| {s} ", text, re.MULTILINE)) for s in states
    }
    line = f"{count['done']} done, {count['part']} in part, {count['open']} open, of 163."
    assert line in text
