"""What a handler takes and answers, read from its text (spec OP-03): names of the query, the kinds
of its body, each status with the types of its content.

A handler is followed into the functions of the admin package that it calls. Of a condition that
isn't known both sides count, so that more may be told than comes, never less; what errors of other
packages are answered with stands in `rest.STATUS_BY_CODE`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType, UnionType
from typing import Union, get_args, get_origin

from starlette.responses import RedirectResponse, Response

from geminga_broker.admin import answers, rest, routing
from geminga_broker.admin.http.off_loop import off_the_loop
from geminga_broker.admin.http.pages import error_page
from geminga_broker.admin.openapi.source import (
    UNKNOWN,
    Bound,
    Scope,
    Sources,
    Unknown,
    bound,
    called,
)
from geminga_broker.admin.topics.subscriptions import number_of
from geminga_broker.metrics.page import Chunked

JSON = "application/json"
TEXT = "text/plain"
PAGE = "text/html"
DEPTH_MAX = 24
"""Calls within one another; none of ours goes as deep."""
_UNREAD = ("content-type", "accept", "authorization")
"""Headers that a description doesn't name as parameters."""


class Query(Enum):
    """The kinds of values in a query."""

    TEXT = "string"
    FLAG = "boolean"
    NUMBER = "integer"
    TEXTS = "array"


@dataclass(slots=True)
class Uses:
    """What one handler takes and answers."""

    query: dict[str, Query] = field(default_factory=dict)
    headers: set[str] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)
    """Those of its path's parameters that are numbers."""
    bodies: list[object] = field(default_factory=list)
    """The kinds of its body; empty without one."""
    body_required: bool = False
    answers: dict[int, set[str]] = field(default_factory=dict)
    """The types of content by status; "" is none."""
    kinds: dict[int, list[object]] = field(default_factory=dict)
    """The kinds of JSON by status, where handlers name them; `object` where one doesn't."""

    def answer(self, status: int, content: str, kind: object = object) -> None:
        """One more that may come."""
        self.answers.setdefault(status, set()).add(content)
        if content == JSON:
            known = self.kinds.setdefault(status, [])
            if kind not in known:
                known.append(kind)

    def add(self, other: Uses) -> None:
        """What a function that it calls takes and answers."""
        self.query = {**other.query, **self.query}
        self.headers |= other.headers
        self.numbers |= other.numbers
        self.bodies += [each for each in other.bodies if each not in self.bodies]
        self.body_required |= other.body_required
        for status, contents in other.answers.items():
            self.answers.setdefault(status, set()).update(contents)
        for status, kinds in other.kinds.items():
            for kind in kinds:
                self.answer(status, JSON, kind)


class Reader:
    """Reads handlers; what functions do that several of them call is kept until all are read."""

    def __init__(self) -> None:
        self._sources = Sources()
        self._known: dict[object, Uses] = {}

    def uses(self, handler: object) -> Uses:
        """What a route's endpoint takes and answers."""
        own = bound(handler)
        return Uses() if own is None else self.of(own, 0)

    def of(self, own: Bound, depth: int) -> Uses:
        """The same of a function; a part of it in a circle of calls, which the caller completes."""
        known = self._known.get(own.key)
        if known is None:
            known = self._known[own.key] = Uses()
            node = self._sources.of(own.function)
            if node is not None and own.function not in _ENDS and depth < DEPTH_MAX:
                walk = _Walk(self, known, Scope(own), depth)
                for each in node.body:
                    walk.visit(each)
        return known


class _Walk:
    """Through one function."""

    def __init__(self, reader: Reader, found: Uses, scope: Scope, depth: int) -> None:
        self._reader, self._found, self._scope, self._depth = reader, found, scope, depth

    def visit(self, node: ast.AST) -> None:
        """Whatever is used in this part."""
        parts: list[ast.AST]
        if isinstance(node, ast.If):
            holds = self._scope.truth(node.test)
            parts = [node.test]
            parts += node.body if holds is not False else ()
            parts += node.orelse if holds is not True else ()
        elif isinstance(node, ast.BoolOp):
            ends = isinstance(node.op, ast.Or)
            last = [self._scope.truth(each) is ends for each in node.values]
            parts = [*node.values[: last.index(True) + 1]] if True in last else [*node.values]
        elif isinstance(node, ast.Call):
            self._call(node)
            # The function itself was followed with its arguments.
            inner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            parts = [*node.args, *node.keywords]
            parts += () if isinstance(inner, ast.Name) else (inner,)
        elif isinstance(node, ast.Name | ast.Attribute):
            if (own := bound(self._scope.value(node))) is not None:
                self._follow(own)
                return
            parts = [node.value] if isinstance(node, ast.Attribute) else []
        elif isinstance(node, ast.Constant | ast.expr_context):
            return
        else:
            parts = [*ast.iter_child_nodes(node)]
        for part in parts:
            self.visit(part)

    def _follow(self, own: Bound) -> None:
        self._found.add(self._reader.of(own, self._depth + 1))

    def _call(self, node: ast.Call) -> None:
        scope = self._scope
        function = scope.value(node.func)
        if isinstance(function, Unknown):
            self._of_request(node)
            return
        named = {each.arg: scope.value(each.value) for each in node.keywords if each.arg}
        values = [scope.value(each) for each in node.args]
        if isinstance(function, type):
            self._made(function, values, named)
            return
        own = bound(function)
        if own is None or self._known(own, values):
            return
        if isinstance(function, FunctionType):
            own = called(function, values, named)
        self._follow(own)

    def _of_request(self, node: ast.Call) -> None:
        """`request.query_params.get(...)`, `request.headers.get(...)`."""
        read = node.func
        if not (isinstance(read, ast.Attribute) and isinstance(read.value, ast.Attribute)):
            return
        name = self._scope.value(node.args[0]) if node.args else UNKNOWN
        if not isinstance(name, str) or read.attr not in ("get", "getlist"):
            return
        if read.value.attr == "query_params":
            kind = Query.TEXTS if read.attr == "getlist" else Query.TEXT
            self._found.query.setdefault(name, kind)
        elif read.value.attr == "headers" and name not in _UNREAD:
            self._found.headers.add(name)

    def _known(self, own: Bound, values: list[object]) -> bool:
        """Whether it is a function whose meaning is known; then it is not followed."""
        found, function = self._found, own.function
        if function in (rest.flag, rest.query_number) and isinstance(values[1], str):
            kind = Query.FLAG if function is rest.flag else Query.NUMBER
            found.query.setdefault(values[1], kind)
            if kind is Query.NUMBER:
                found.answer(404, PAGE)
        elif function is number_of and isinstance(values[1], str):
            found.numbers.add(values[1])
            found.answer(404, PAGE)
        elif function in _BODIES and self._scope.module == routing.__name__:
            return True  # what is passed on to partitions is read by the handler
        elif function in _BODIES:
            kinds = [_without_none(each) for each in values[1:]] or [object]
            found.bodies += [each for each in kinds if each not in found.bodies]
            found.body_required |= function is rest.required_body
        elif function in _ANSWERS:
            told = values[1] if len(values) > 1 else object
            found.answer(202 if function is rest.accepted else 200, JSON, _without_none(told))
            if function is rest.ok_or_empty:
                found.answer(200, "")
        elif function is rest.text_as_json:
            found.answer(200, JSON, answers.BARE_TEXT)
        elif function is rest.no_content:
            found.answer(204, "")
        elif function is rest.bad_body:
            found.answer(400, TEXT)
        else:
            return function is error_page
        return True

    def _made(self, kind: type, values: list[object], named: dict[str, object]) -> None:
        """An error or a response that is made."""
        found = self._found
        if issubclass(kind, rest.RestError | rest.Refused):
            status = values[0] if values else UNKNOWN
            if isinstance(status, int):
                found.answer(status, JSON if issubclass(kind, rest.RestError) else PAGE, _Reason)
        elif issubclass(kind, rest.Redirect):
            found.answer(307, "")
        elif issubclass(kind, RedirectResponse):
            status = named.get("status_code", 307)
            found.answer(status if isinstance(status, int) else 307, "")
        elif issubclass(kind, Chunked):
            found.answer(200, _content(values[1] if len(values) > 1 else UNKNOWN))
        elif issubclass(kind, Response):
            status = named.get("status_code", values[1] if len(values) > 1 else 200)
            content = named.get("media_type", kind.media_type or "")
            if isinstance(status, int):
                found.answer(status, _content(content))


def _without_none(kind: object) -> object:
    """Null is answered without a body, and taken as none."""
    known = [each for each in get_args(kind) if each is not type(None)]
    return known[0] if get_origin(kind) in (Union, UnionType) and len(known) == 1 else kind


def _content(value: object) -> str:
    return value if isinstance(value, str) else JSON


class _Reason:
    """Marks `{"reason": ...}`."""


REASON = _Reason
"""The kind of an error's JSON."""

_ANSWERS = (rest.ok, rest.ok_or_empty, rest.accepted, rest.encoded)
_BODIES = (rest.read_body, rest.read_union, rest.required_body, rest.json_body, rest.raw_body)
_ENDS = (rest.answered, rest.decoded, off_the_loop)
"""Functions that aren't followed: they answer for all."""
