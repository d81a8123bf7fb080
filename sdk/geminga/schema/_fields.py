"""The fields of dataclasses and msgspec structs, and what their definition in Avro says."""

from __future__ import annotations

import dataclasses
import typing
from enum import Enum
from typing import Any

import msgspec

from geminga.schema._plans import FieldSpec, Plan


def fields_of(kind: Any) -> list[FieldSpec]:
    """The fields of a dataclass or struct, in the class's order."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found: dict[str, object] = {}
    if issubclass(kind, msgspec.Struct):
        for each in msgspec.structs.fields(kind):
            found[each.name] = _default(each.default, each.default_factory, msgspec.NODEFAULT)
    else:
        for field in dataclasses.fields(kind):
            if field.init:
                missing = dataclasses.MISSING
                found[field.name] = _default(field.default, field.default_factory, missing)
    return [FieldSpec(name, name, hints[name], default) for name, default in found.items()]


def _default(value: object, factory: object, missing: object) -> object:
    if value is not missing:
        return value
    return factory() if callable(factory) else msgspec.NODEFAULT


def field_definition(spec: FieldSpec, plan: Plan, default: object) -> dict[str, Any]:
    """A field, with its default if the schema can express it; then its type is first."""
    schema = plan.schema
    field: dict[str, Any] = {"name": spec.name, "type": schema}
    if spec.aliases:
        field["aliases"] = list(spec.aliases)
    if default is None and isinstance(schema, list) and "null" in schema:
        field["default"] = None
        return field
    if default is msgspec.NODEFAULT or default is None or not plan.fits(default):
        return field
    written = default
    if isinstance(default, Enum):
        written = default.name
    elif isinstance(default, bytes):
        written = default.decode("latin-1")
    elif not isinstance(default, bool | int | float | str) and default not in ([], {}):
        return field
    if isinstance(schema, list):
        field["type"] = sorted(schema, key=lambda each: each == "null")
        if len(schema) > 2:
            return field
    field["default"] = written
    return field
