"""Operations as declarations: a method's signature, with its verb and path, is all of it.

    @get("/admin/v2/{topic}/stats")
    async def stats(self, topic: str, *, get_precise_backlog: bool = False) -> TopicStats:
        '''Statistics of a topic.'''

The path's names are parameters; `body` names the one that is sent as JSON; all others go into the
query, in camel case, unless they are None. The annotation of the result says how the answer is
read. Signatures are read when an operation is first called: declaring some hundred of them costs
nothing.

The same declarations serve the asyncio face, whose calls differ in `send` only; the blocking face
has copies without `async` (tools/faces.py).
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from geminga._admin.requests import (
    Request,
    checked_text,
    namespace_path,
    schema_path,
    segment,
    subscription_segment,
    topic_path,
)

if TYPE_CHECKING:
    from geminga_runtime.http.answers import HttpAnswer

Send = Callable[[Request], Awaitable["HttpAnswer"]]
SendBlocking = Callable[[Request], "HttpAnswer"]
T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., object])

Body = Callable[[dict[str, object]], tuple[object, str]]
"""Takes what it needs out of a call's arguments; returns the body, to be written as JSON, and its
type. None is no body.
"""
JSON = "application/json"

_PLACEHOLDER = re.compile(r"\{(\w+)(?::(\w+))?\}")
_CAMEL = re.compile(r"_([a-z0-9])")

_IN_PATHS: Mapping[str, Callable[[object], str]] = {
    "topic": topic_path,
    "schema": schema_path,
    "namespace": namespace_path,
    "subscription": subscription_segment,
}
"""How a value stands in a path, by the name behind its colon or by its own."""


class Family:
    """Operations on one kind of thing."""

    def __init__(self, send: Send) -> None:
        self._send = send


class BlockingFamily:
    """The same of the blocking face."""

    def __init__(self, send: SendBlocking) -> None:
        self._send = send


class Declaration:
    """One operation."""

    def __init__(
        self,
        function: Callable[..., object],
        method: str,
        path: str,
        *,
        body: str | Body = "",
        query: Mapping[str, str] | None = None,
        reader: Callable[[HttpAnswer], object] | None = None,
    ) -> None:
        self.function = function
        self.method = method
        self.path = path
        self.body = body
        self._query = query or {}
        self._reader = reader

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The signature, without `self`."""
        whole = inspect.signature(self.function)
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    @functools.cached_property
    def _texts(self) -> Sequence[tuple[str, bool]]:
        """The parameters that are texts, each with whether it may be None too."""
        kinds = {"str": False, "str | None": True}
        given = self.signature.parameters.values()
        return [(each.name, kinds[each.annotation]) for each in given if each.annotation in kinds]

    def request(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Request:
        """The request of a call. Raises TypeError for wrong arguments, InvalidArgumentError for
        values that no path has, and for names that are no texts.
        """
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = bound.arguments
        for name, may_be_none in self._texts:
            if values[name] is not None or not may_be_none:
                checked_text(values[name], name)

        def placed(match: re.Match[str]) -> str:
            name, kind = match[1], match[2] or match[1]
            value = values.pop(name)
            encode = _IN_PATHS.get(kind)
            return segment(_text(value), name) if encode is None else encode(value)

        path = _PLACEHOLDER.sub(placed, self.path)
        value, content_type = self._taken_body(values)
        query = [
            (self._query.get(name) or camel(name), _text(value))
            for name, value in values.items()
            if value is not None
        ]
        body = None if value is None else encoded(value)
        return Request(self.method, path, query, body, content_type)

    def _taken_body(self, values: dict[str, object]) -> tuple[object, str]:
        if callable(self.body):
            return self.body(values)
        return values.pop(self.body, None), JSON

    def result(self, answer: HttpAnswer) -> object:
        """The answer in the type of the operation's annotation. Raises AdminError."""
        if self._reader is not None:
            return self._reader(answer)
        annotation = str(self.signature.return_annotation)
        if annotation == "None":
            return None
        kind = annotation.removesuffix(" | None")
        read = decoded if kind == annotation else decoded_or_none
        return read(answer, type_named(kind), self.path)


def type_named(annotation: str) -> type[object]:
    """The type that an annotation names, of the models or built in."""
    from geminga._admin import messages
    from geminga._admin.model import base, cluster, policies, schemas, stats, topics

    names: dict[str, object] = {}
    for module in (base, messages, cluster, policies, schemas, stats, topics):
        names |= vars(module)
    return cast(type[object], eval(annotation, names))


def camel(name: str) -> str:
    """A parameter's name in a query."""
    return _CAMEL.sub(lambda match: match[1].upper(), name)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def encoded(value: object) -> bytes:
    """A body of JSON."""
    return json.dumps(value, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> object:
    """A mapping, or a model without the fields that are None: brokers take null for a value."""
    import msgspec

    return dict(value) if isinstance(value, Mapping) else _given(msgspec.to_builtins(value))


def _given(value: object) -> object:
    if isinstance(value, dict):
        return {name: _given(each) for name, each in value.items() if each is not None}
    return [_given(each) for each in value] if isinstance(value, list) else value


def decoded(answer: HttpAnswer, kind: type[T], what: str) -> T:
    """An answer's JSON in that type. Raises AdminError."""

    from geminga._admin.errors import AdminError
    from geminga_runtime.json_text import read_json

    body = answer.body.strip()
    try:
        if kind is str and not body.startswith(b'"'):
            # Brokers write some texts as they are, although they say that it is JSON.
            return cast(T, body.decode())
        return read_json(body, kind, strict=False)
    except ValueError as error:
        raise AdminError(f"{what}: the answer can't be read: {error}", code="BadAnswer") from error


def decoded_or_none(answer: HttpAnswer, kind: type[T], what: str) -> T | None:
    """The same; None without a body, or for null."""
    return None if answer.body.strip() in (b"", b"null") else decoded(answer, kind, what)


def operation(
    method: str,
    path: str,
    *,
    body: str | Body = "",
    query: Mapping[str, str] | None = None,
    reader: Callable[[HttpAnswer], object] | None = None,
) -> Callable[[Function], Function]:
    """Decorate a method of a family: it sends the request that its signature describes.

    `body` is a parameter, or makes the body of several. `query` has the query's names of parameters
    that aren't those in camel case. `reader` makes the result of an answer that isn't JSON.
    """

    def decorate(function: Function) -> Function:
        declaration = Declaration(function, method, path, body=body, query=query, reader=reader)

        @functools.wraps(function)
        async def call(self: Family, *args: object, **kwargs: object) -> object:
            answer = await self._send(declaration.request(args, kwargs))
            return declaration.result(answer)

        @functools.wraps(function)
        def call_blocking(self: BlockingFamily, *args: object, **kwargs: object) -> object:
            answer = self._send(declaration.request(args, kwargs))
            return declaration.result(answer)

        made = call if inspect.iscoroutinefunction(function) else call_blocking
        vars(made)["declaration"] = declaration
        return cast(Function, made)

    return decorate


get = functools.partial(operation, "GET")
post = functools.partial(operation, "POST")
put = functools.partial(operation, "PUT")
delete = functools.partial(operation, "DELETE")


def declaration_of(function: object) -> Declaration:
    """The declaration of a family's method."""
    found = getattr(function, "declaration", None)
    assert isinstance(found, Declaration), f"{function} is no operation"
    return found
