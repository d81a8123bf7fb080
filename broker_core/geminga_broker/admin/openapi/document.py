"""The OpenAPI 3.1 document of the broker's REST interface, made of its routes (spec OP-03)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from inspect import getdoc
from itertools import chain

from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.openapi.schemas import Object, Schemas
from geminga_broker.admin.openapi.source import bound
from geminga_broker.admin.openapi.uses import JSON, PAGE, REASON, TEXT, Query, Reader, Uses
from geminga_broker.authz.needs import Need, Scope
from geminga_broker.authz.routes import need_of

_PART = re.compile(r"\{([^}]*)\}")
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_OF = ("subscription", "topic", "bundle", "namespace", "tenant", "cluster")
"""Names of a path's parameters, the narrowest one first."""

ANY_CALL = frozenset({401, 403, 404, 405, 412, 503, *rest.STATUS_BY_CODE.values(), 409}) - {500}
"""What any call may be refused with, as errors of other packages are, and missing rights."""
NOT_SET = "the body is empty if nothing is set"
OF_BODIES = {400: (JSON, TEXT, PAGE), 408: (JSON,), 413: (JSON,), 415: (PAGE,)}
"""What any body may be refused with, and the types of content."""


def document(routes: Iterable[Route], version: str) -> Object:
    """The whole document; takes a part of a second."""
    reader = Reader()
    described = [_Described(route, reader.uses(route.endpoint)) for route in routes]
    kinds = (chain(each.uses.bodies, *each.uses.kinds.values()) for each in described)
    schemas = Schemas(chain.from_iterable(kinds))
    shared = _Shared()
    paths: dict[str, Object] = {}
    names: dict[str, str] = {}
    for each in described:
        # Two of our routes may name the same place differently, which OpenAPI doesn't allow.
        path = names.setdefault(_PART.sub("{}", each.path), each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, path, schemas, shared)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pulsar REST API of Geminga",
            "version": version,
            "description": "What this broker serves, made of its routes. Bodies may be as lenient "
            "as Apache's: numbers and booleans as texts, unknown members, null for missing.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "tags": [{"name": name} for name in sorted({each.tag for each in described})],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": schemas.components,
            **shared.components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "With authenticationEnabled; certificates, passwords and other "
                    "providers are taken too, as the broker is configured.",
                }
            },
        },
    }


class _Described:
    """A route with what its handler takes and answers."""

    def __init__(self, route: Route, uses: Uses) -> None:
        self.path, self.endpoint, self.uses = route.path, route.endpoint, uses
        (self.method,) = (route.methods or set()) - {"HEAD"}
        self.need = need_of(self.method, self.path)
        if len(uses.bodies) > 1 and object in uses.bodies:
            uses.bodies.remove(object)
        parts = self.path.strip("/").split("/")
        self.tag = (parts[2] if parts[0] == "admin" else parts[0]).removesuffix(".json")


class _Shared:
    """Parameters and responses, each written once."""

    def __init__(self) -> None:
        self.components: dict[str, Object] = {"parameters": {}, "responses": {}}

    def parameter(self, name: str, place: str, schema: Object) -> Object:
        """A reference to that parameter."""
        made = {"name": name, "in": place, "schema": schema}
        return self._named(
            "parameters", name, made | ({"required": True} if place == "path" else {})
        )

    def response(self, status: str, made: Object) -> Object:
        """A reference to that response."""
        return self._named("responses", status, made)

    def _named(self, family: str, name: str, made: Object) -> Object:
        known = self.components[family]
        same = (f"{name}.{number}" if number else name for number in range(len(known) + 1))
        found = next(each for each in same if known.setdefault(each, made) == made)
        return {"$ref": f"#/components/{family}/{found}"}


def _operation(each: _Described, path: str, schemas: Schemas, shared: _Shared) -> Object:
    uses = each.uses
    found: Object = {
        "operationId": _id_of(each),
        "summary": _summary(each),
        "description": _needs(each.need),
        "tags": [each.tag],
        "parameters": [*_parameters(path, each, shared)],
        "responses": _responses(each, schemas, shared),
    }
    if each.need.scope is Scope.PUBLIC:
        found["security"] = []
    if uses.bodies:
        schema = schemas.of(uses.bodies)
        found["requestBody"] = {
            "required": uses.body_required,
            "content": {JSON: {"schema": schema} if schema else {}},
        }
    return found


def _id_of(each: _Described) -> str:
    words = [each.method.lower(), *re.findall(r"\w+", each.path)]
    return "_".join(words) + ("_" if each.path.endswith("/") else "")


def _summary(each: _Described) -> str:
    """The first sentence of the handler's docstring; without one, what the path says."""
    if text := getdoc(_handler(each.endpoint)):
        return text.partition("\n\n")[0].replace("\n", " ").rstrip(".")
    parts = each.path.strip("/").split("/")
    names = _PART.findall(each.path)
    if parts[-1].startswith("{") and names[-1] in _OF:
        what = names.pop()
    else:
        what = [part for part in parts if not part.startswith("{")][-1]
    words = [word if word.isupper() else word.lower() for word in _WORD.findall(what)]
    of = next((f"of a {name}" for name in _OF if name in names), "")
    return " ".join(filter(None, (each.method.capitalize(), *words, of)))


def _handler(endpoint: object) -> object:
    """The handler itself, which may be called by those that find the owner."""
    while isinstance(endpoint, partial):
        own = bound(endpoint)
        endpoint = endpoint.func if own is None else own.given.get("handler", own.function)
    return endpoint


def _needs(need: Need) -> str:
    if need.scope is Scope.PUBLIC:
        return "For everybody."
    if need.scope is Scope.ROLE:
        return "For every authenticated role."
    what = " ".join(filter(None, (need.operation, need.policy)))
    scope = need.scope.name.lower().replace("_", " ")
    return f"Needs, with authorization: {scope}{': ' if what else ''}{what}."


def _parameters(path: str, each: _Described, shared: _Shared) -> Iterable[Object]:
    # By place: of two routes at one place the first one's names count.
    shown, own = _PART.findall(path), _PART.findall(each.path)
    for name, known in zip(shown, own, strict=True):
        kind = "integer" if known in each.uses.numbers else "string"
        schema: Object = {"type": kind, **({"minLength": 1} if kind == "string" else {})}
        yield shared.parameter(name, "path", schema)
    for name, query in sorted(each.uses.query.items()):
        schema = {"type": query.value}
        if query is Query.TEXTS:
            schema["items"] = {"type": "string"}
        yield shared.parameter(name, "query", schema)
    for name in sorted(each.uses.headers):
        yield shared.parameter(name, "header", {"type": "string"})


def _responses(each: _Described, schemas: Schemas, shared: _Shared) -> Object:
    uses = Uses()
    uses.add(each.uses)
    if each.need.scope is not Scope.PUBLIC:
        for status in ANY_CALL:
            uses.answer(status, JSON, REASON)
    for status, types in OF_BODIES.items() if uses.bodies else ():
        for content in types:
            uses.answer(status, content, REASON)
    found: Object = {}
    for status, contents in sorted(uses.answers.items()):
        schema = schemas.of(uses.kinds.get(status, []))
        found[str(status)] = shared.response(str(status), _response(status, contents, schema))
    # What goes wrong within the broker, its stores and bookies.
    problem = schemas.of([REASON])
    failed: Object = {"description": "Failed", "content": {JSON: {"schema": problem}}}
    return found | {"default": shared.response("failed", failed)}


def _response(status: int, types: set[str], schema: Object) -> Object:
    found: Object = {"description": HTTPStatus(status).phrase}
    if "" in types and len(types) > 1:
        found["description"] = f"{HTTPStatus(status).phrase}; {NOT_SET}"
    content: Object = {
        kind: {"schema": schema} if kind == JSON and schema else {} for kind in sorted(types - {""})
    }
    if content:
        found["content"] = content
    if status in (302, 307):
        found["headers"] = {"Location": {"schema": {"type": "string"}}}
    return found
