"""The JSON schemas of what requests and answers hold, made of msgspec's of their types.

In a form that generators of clients read: null stands beside the type (`"type": ["string",
"null"]`) where there is one, no default is null, an object or a list, and names begin with a
letter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, cast

import msgspec

from geminga_broker.admin.openapi.uses import REASON

Object: TypeAlias = dict[str, object]

_REFERENCE = "#/components/schemas/{name}"
_PROBLEM = "Problem"
_NULL = {"type": "null"}


class Schemas:
    """The schemas of all kinds; those with a name are the document's components."""

    def __init__(self, kinds: Iterable[object]) -> None:
        found: list[object] = []
        for kind in kinds:
            if kind not in found and kind not in (object, REASON) and _has_schema(kind):
                found.append(kind)
        made, components = msgspec.json.schema_components(
            found, schema_hook=_any, ref_template=_REFERENCE
        )
        self.components: Object = {
            **{name.lstrip("_"): _readable(each) for name, each in components.items()},
            _PROBLEM: _PROBLEM_SCHEMA,
        }
        self._known = list(zip(found, map(_readable, made), strict=True))

    def of(self, kinds: Iterable[object]) -> Object:
        """That of a value of one of these kinds; empty if any will do."""
        found: list[Object] = []
        for kind in kinds:
            schema: Object | None = {"$ref": _REFERENCE.format(name=_PROBLEM)}
            if kind is not REASON:
                schema = next((each for known, each in self._known if known == kind), None)
            if schema is None:
                return {}
            found.append(schema)
        return found[0] if len(found) == 1 else {"anyOf": found} if found else {}


_PROBLEM_SCHEMA: Object = {
    "type": "object",
    "description": "Why a call failed.",
    "properties": {"reason": {"type": ["string", "null"]}},
    "required": ["reason"],
}


def _has_schema(kind: object) -> bool:
    try:
        msgspec.json.schema(kind, schema_hook=_any)
    except TypeError:
        return False
    return True


def _any(kind: type) -> Object:
    """The schema of `object`. Raises TypeError for another type."""
    if kind is object:
        return {"description": "Any value"}
    raise TypeError(kind)


def _readable(schema: Object) -> Object:
    """The same schema in the module's form."""
    found: Object = {name: _part(name, each) for name, each in schema.items()}
    if "default" in found and (
        found["default"] is None or isinstance(found["default"], dict | list)
    ):
        del found["default"]
    if isinstance(reference := found.get("$ref"), str):
        found["$ref"] = reference.replace("/_", "/")
    if isinstance(first := found.pop("prefixItems", None), list):
        found["items"] = first[0]  # all are of one kind; how many there are is said beside
    choices = found.get("anyOf")
    if not isinstance(choices, list) or _NULL not in choices:
        return found
    others = [each for each in choices if each != _NULL]
    if len(others) != 1 or "$ref" in others[0]:
        return found
    del found["anyOf"]
    (only,) = others
    nullable = {**only, **found}
    if "enum" in only:
        nullable["enum"] = [*only["enum"], None]
    if "type" in only:
        nullable["type"] = [only["type"], "null"]
    return nullable


def _part(name: str, value: object) -> object:
    if name == "properties":
        return {key: _readable(each) for key, each in cast(dict[str, Object], value).items()}
    if isinstance(value, dict) and name != "default":
        return _readable(value)
    if isinstance(value, list) and name in ("anyOf", "prefixItems"):
        return [_readable(each) for each in value]
    return value
