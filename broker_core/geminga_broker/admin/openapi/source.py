"""Functions as the text that they were made of: their syntax, and what names in it stand for.

The description of the REST interface is read from its handlers, so that it can't say anything else
than they do. Of expressions only those are worked out that run no code of ours: names, attributes
of modules and of plain records, types.
"""

from __future__ import annotations

import ast
import dataclasses
import operator
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

OURS = "geminga_broker.admin"
"""Functions of this package, and of those within, are read."""

Functional = ast.FunctionDef | ast.AsyncFunctionDef
Values = Mapping[str, object]


class Unknown:
    """What can't be told without running the program."""


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class Bound:
    """A function, and the values of those of its parameters that are known."""

    function: types.FunctionType
    given: Values

    @property
    def key(self) -> object:
        """Equal for those that do the same."""
        return self.function, frozenset((name, id(each)) for name, each in self.given.items())


def bound(value: object) -> Bound | None:
    """A callable taken apart; None for one that isn't ours, or no function."""
    arguments: list[tuple[tuple[object, ...], Mapping[str, object]]] = []
    while isinstance(value, partial):
        arguments.append((value.args, value.keywords))
        value = value.func
    if not isinstance(value, types.FunctionType) or not _is_ours(value):
        return None
    positional: list[object] = []
    named: dict[str, object] = {}
    for args, keywords in reversed(arguments):
        positional += args
        named |= keywords
    return called(value, positional, named)


def _is_ours(function: types.FunctionType) -> bool:
    return function.__module__ == OURS or function.__module__.startswith(f"{OURS}.")


def called(
    function: types.FunctionType, positional: list[object], named: Mapping[str, object]
) -> Bound:
    """A function with arguments; unknown ones are left out, and defaults stand for missing ones."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given: dict[str, object] = dict(function.__kwdefaults__ or {})
    defaults = function.__defaults__ or ()
    ordered = names[: code.co_argcount]
    with_default = ordered[len(ordered) - len(defaults) :]
    given.update(zip(with_default, defaults, strict=True))
    given.update(zip(ordered, positional, strict=False))
    given.update((name, value) for name, value in named.items() if name in names)
    return Bound(function, {key: each for key, each in given.items() if each is not UNKNOWN})


class Sources:
    """The syntax of functions, each file parsed once; let go of it when all are read."""

    def __init__(self) -> None:
        self._files: dict[str, dict[int, Functional]] = {}

    def of(self, function: types.FunctionType) -> Functional | None:
        """Its definition; None for a lambda, and without its file."""
        code = function.__code__
        lines = self._files.get(code.co_filename)
        if lines is None:
            lines = self._files[code.co_filename] = _definitions(Path(code.co_filename))
        return lines.get(code.co_firstlineno)


def _definitions(path: Path) -> dict[int, Functional]:
    """By the first line, which is that of a decorator where there is one."""
    try:
        tree = ast.parse(path.read_bytes())
    except OSError:
        return {}
    found: dict[int, Functional] = {}
    for node in ast.walk(tree):
        if isinstance(node, Functional):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found[first] = node
    return found


class Scope:
    """What names stand for within a function."""

    def __init__(self, own: Bound) -> None:
        function = own.function
        code = function.__code__
        self.module = function.__module__
        self._local = frozenset((*code.co_varnames, *code.co_cellvars))
        self._globals: Values = function.__globals__
        self._known = _closed_over(function) | dict(own.given)

    def name(self, name: str) -> object:
        """The value of a name, or UNKNOWN."""
        if name in self._known:
            return self._known[name]
        if name in self._local:
            return UNKNOWN
        return self._globals.get(name, _BUILTINS.get(name, UNKNOWN))

    def value(self, node: ast.expr) -> object:
        """The value of an expression, or UNKNOWN."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.Attribute):
            return _attribute(self.value(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            return _made(operator.getitem, self.value(node.value), self._index(node.slice))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return _made(operator.or_, self.value(node.left), self.value(node.right))
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            found = [self.value(each) for each in node.values]
            return UNKNOWN if UNKNOWN in found else next(filter(None, found), found[-1])
        if isinstance(node, ast.Call) and len(node.args) == 2:
            # What the program takes a value for is what it says.
            return self.value(node.args[1]) if self.value(node.func) is typing.cast else UNKNOWN
        return UNKNOWN

    def _index(self, node: ast.expr) -> object:
        if not isinstance(node, ast.Tuple):
            return self.value(node)
        found = tuple(self.value(each) for each in node.elts)
        return UNKNOWN if UNKNOWN in found else found

    def truth(self, node: ast.expr) -> bool | None:
        """Whether a condition holds, as far as it is about known values; None if it may or not."""
        if isinstance(node, ast.BoolOp):
            decisive = isinstance(node.op, ast.Or)
            parts = [self.truth(each) for each in node.values]
            return decisive if decisive in parts else None if None in parts else not decisive
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand)
            return None if inner is None else not inner
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self.value(node.left), self.value(node.comparators[0])
            if left is UNKNOWN or right is UNKNOWN:
                return None
            if isinstance(node.ops[0], ast.Eq | ast.NotEq) and isinstance(left, str):
                return (left == right) is isinstance(node.ops[0], ast.Eq)
            if isinstance(node.ops[0], ast.Is | ast.IsNot):
                return (left is right) is isinstance(node.ops[0], ast.Is)
            return None
        value = self.value(node)
        return value if isinstance(value, bool) else None


_BUILTINS: Values = {kind.__name__: kind for kind in (str, int, bool, float, dict, list, set)} | {
    "object": object
}


def _closed_over(function: types.FunctionType) -> dict[str, object]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            found[name] = UNKNOWN
    return found


def _attribute(value: object, name: str) -> object:
    """Of modules, classes and records only: those of others may be properties that do something."""
    is_plain = isinstance(value, types.ModuleType | type) or dataclasses.is_dataclass(value)
    is_tuple = isinstance(value, tuple) and hasattr(value, "_fields")
    return getattr(value, name, UNKNOWN) if is_plain or is_tuple else UNKNOWN


def _made(how: Callable[[typing.Any, typing.Any], object], left: object, right: object) -> object:
    if left is UNKNOWN or right is UNKNOWN or not _is_type(left):
        return UNKNOWN
    try:
        return how(left, right)
    except TypeError:
        return UNKNOWN


def _is_type(value: object) -> bool:
    return isinstance(value, type) or typing.get_origin(value) is not None or value in _SPECIAL


_SPECIAL: tuple[object, ...] = (typing.Literal, None)
