"""Count what should stay small (`python tools/counts.py`, `--long` names each find).

Product code is what the wheel holds: no tests, no generated files. Counted are its lines, modules
that lie flat in one package, import circles, classes with many attributes, and methods of one line
that only forward to an attribute's method. `compat_tests/test_tidy.py` holds limits.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("protocol", "bookie_core", "broker_core", "proxy", "sdk")
GENERATED = "Made by tools/"
CLASS_ATTRIBUTES_MAX = 15

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A file of product code."""

    name: str
    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text)

    @property
    def is_package(self) -> bool:
        """Whether it is an `__init__.py`."""
        return self.path.endswith("/__init__.py")

    @property
    def is_generated(self) -> bool:
        """Whether a tool writes it."""
        return GENERATED in self.text[:400]

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


@cache
def modules() -> tuple[Module, ...]:
    """Every file of product code, generated ones too, by name."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *SOURCES]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = []
    for path in sorted(set(listed.stdout.split())):
        if not path.endswith(".py") or path.endswith(("_pb2.py", "/conftest.py")):
            continue
        if "/_tests/" in path:
            continue
        if (ROOT / path).exists():
            name = ".".join(Path(path).with_suffix("").parts[1:]).removesuffix(".__init__")
            found.append(Module(name, path, (ROOT / path).read_text()))
    return tuple(found)


def written() -> list[Module]:
    """The files that people write."""
    return [module for module in modules() if not module.is_generated]


def lines() -> dict[str, int]:
    """Lines of each top-level package."""
    found: Counter[str] = Counter()
    for module in written():
        found[module.name.split(".")[0]] += len(module.text.splitlines())
    return dict(found)


def flat() -> dict[str, int]:
    """How many modules lie flat in each package, its `__init__` and packages within it left out."""
    found = Counter(module.package for module in modules() if not module.is_package)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def within(node: ast.AST) -> Iterator[ast.AST]:
    """The statements right beneath a node, and what holds some (handlers of errors, cases)."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        found = getattr(node, name, ())
        if isinstance(found, list):  # a lambda's body is none
            yield from found


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements beneath a node: some times quicker than `ast.walk`, which sees expressions."""
    for child in within(node):
        yield child
        yield from statements(child)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _imports(node: ast.AST, typing: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports beneath `node`; those of TYPE_CHECKING blocks if `typing`. Imports within functions
    count: a late import hides a circle and does not remove it.
    """
    for child in within(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and _is_type_checking(child):
            for inner in child.body if typing else child.orelse:
                yield from _imports(ast.Module([inner], []), typing)
        else:
            yield from _imports(child, typing)


def _targets(module: Module, node: ast.Import | ast.ImportFrom, known: set[str]) -> Iterator[str]:
    """Our modules that an import statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
        return
    base = node.module or ""
    if node.level:
        parts = module.package.split(".")
        kept = parts[: len(parts) - node.level + 1]
        base = ".".join([*kept, *([node.module] if node.module else [])])
    for alias in node.names:
        whole = f"{base}.{alias.name}"
        if whole in known:
            yield whole
        elif base in known:
            yield base


def graph(typing: bool) -> dict[str, set[str]]:
    """Which module imports which, with or without imports for type checkers only."""
    known = {module.name for module in modules()}
    return {
        module.name: {
            target
            for node in _imports(module.tree, typing)
            for target in _targets(module, node, known)
            if target != module.name
        }
        for module in modules()
    }


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import one another in a circle (strongly connected components)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in edges:
        _visit(edges, start, seen, order)
    back: dict[str, set[str]] = {name: set() for name in edges}
    for name, targets in edges.items():
        for target in targets:
            back[target].add(name)
    found = []
    seen.clear()
    for start in reversed(order):
        group: list[str] = []
        _visit(back, start, seen, group)
        if len(group) > 1:
            found.append(sorted(group))
    return sorted(found, key=lambda group: (-len(group), group))


def _visit(edges: dict[str, set[str]], start: str, seen: set[str], order: list[str]) -> None:
    """Append to `order` all that is reached from `start`, each after what it reaches."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(sorted(edges[start])))]
    while stack:
        name, rest = stack[-1]
        following = next((each for each in rest if each not in seen), None)
        if following is None:
            order.append(name)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(sorted(edges[following]))))


def _classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for module in written():
        for node in statements(module.tree):
            if isinstance(node, ast.ClassDef):
                yield f"{module.path}::{node.name}", node


def _methods(node: ast.ClassDef) -> list[Function]:
    return [each for each in node.body if isinstance(each, Function)]


def _is_options(node: ast.ClassDef) -> bool:
    """Frozen dataclasses, named tuples, typed dictionaries, structs and enums: values of many
    named fields, which hold no state that changes.
    """
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    if bases & {"NamedTuple", "TypedDict", "Struct", "Enum", "IntEnum", "Protocol", "StrEnum"}:
        return True
    if any(keyword.arg == "total" for keyword in node.keywords):  # an heir of a TypedDict
        return True
    return any("frozen=True" in ast.unparse(each) for each in node.decorator_list)


def attributes(node: ast.ClassDef) -> set[str]:
    """Names that a class's methods set on `self`, and fields that it declares."""
    names = {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and "ClassVar" not in ast.unparse(each.annotation)
    }
    for method in _methods(node):
        for each in ast.walk(method):
            if (
                isinstance(each, ast.Attribute)
                and isinstance(each.ctx, ast.Store)
                and isinstance(each.value, ast.Name)
                and each.value.id == "self"
            ):
                names.add(each.attr)
    return names


def wide_classes() -> dict[str, int]:
    """Classes of changing state with more attributes than a reader keeps in mind."""
    sizes = {key: len(attributes(node)) for key, node in _classes() if not _is_options(node)}
    wide = {key: size for key, size in sizes.items() if size > CLASS_ATTRIBUTES_MAX}
    return dict(sorted(wide.items(), key=lambda item: -item[1]))


def _forwarded(method: Function) -> ast.Attribute | ast.Call | None:
    """What a method of one line asks of one of its object's attributes: `self.log.size`, or
    `self.log.read(...)`.
    """
    body = method.body[1:] if ast.get_docstring(method) is not None else method.body
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return None
    value = body[0].value
    if isinstance(value, ast.Await):
        value = value.value
    asked = value.func if isinstance(value, ast.Call) else value
    if not (isinstance(asked, ast.Attribute) and isinstance(asked.value, ast.Attribute)):
        return None
    path = ast.unparse(asked)
    if not path.startswith("self.") or "(" in path or "[" in path:
        return None
    return value if isinstance(value, ast.Call) else asked


def _adds_nothing(method: Function, value: ast.Attribute | ast.Call) -> bool:
    """Whether its parameters are passed on as they came."""
    if isinstance(value, ast.Attribute):
        return True
    given = method.args
    own = {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    own |= {each.arg for each in (given.vararg, given.kwarg) if each is not None}
    passed = [*value.args, *(keyword.value for keyword in value.keywords)]
    bare = [each.value if isinstance(each, ast.Starred) else each for each in passed]
    return all(isinstance(each, ast.Name) and each.id in own - {"self"} for each in bare)


def delegations() -> dict[str, bool]:
    """Methods of one line that forward to an attribute's method or attribute, and whether they add
    nothing to it.
    """
    return {
        f"{key}.{method.name}": _adds_nothing(method, value)
        for key, node in _classes()
        for method in _methods(node)
        if (value := _forwarded(method)) is not None
    }


def main() -> None:
    """Print every count; with `--long` what was found, too."""
    long = "--long" in sys.argv[1:]
    by_package = lines()
    print(f"lines of product code: {sum(by_package.values())}")
    for name, count in sorted(by_package.items()):
        print(f"    {name} {count}")
    print("modules flat in a package (the fullest):")
    for name, count in [*flat().items()][: None if long else 12]:
        print(f"    {count} {name}")
    for about, typing in (("at run time", False), ("with TYPE_CHECKING", True)):
        groups = circles(graph(typing))
        print(f"import circles {about}: {len(groups)}, of {sum(map(len, groups))} modules")
        for group in groups:
            print(f"    {len(group)}: {' '.join(group)}")
    wide = wide_classes()
    print(f"classes above {CLASS_ATTRIBUTES_MAX} attributes: {len(wide)}")
    for name, count in wide.items():
        print(f"    {count} {name}")
    forwarding = delegations()
    print(f"one-line delegations: {len(forwarding)}, {sum(forwarding.values())} add nothing")
    for name, adds_nothing in forwarding.items() if long else ():
        print(f"    {name}{'' if adds_nothing else ' (with other arguments)'}")


if __name__ == "__main__":
    main()
