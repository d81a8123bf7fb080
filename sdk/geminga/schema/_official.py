"""The official Python client's `pulsar.schema.Record` classes, recognized by their attributes: that
package is never imported (spec SDK-41).
"""

from __future__ import annotations

import copy
from enum import Enum
from typing import Any

from geminga.errors import InvalidSchemaError
from geminga.schema._plans import Plan


def is_official(kind: type) -> bool:
    """Whether it is such a class."""
    return type(kind).__name__ == "RecordMeta" and hasattr(kind, "_fields")


def official_plan(kind: Any, name: str) -> Plan:
    """The plan of a record class, with its own schema."""
    try:
        schema = copy.deepcopy(kind.schema())
    except Exception as error:
        raise InvalidSchemaError(f"{kind.__name__} makes no schema of itself: {error}") from error
    return Plan(schema, (kind,), _plain, lambda read: kind(**read), name, is_exact=False)


def _plain(value: Any) -> Any:
    """A record's value for an Avro writer: enums by name."""
    if isinstance(value, Enum):
        return value.name
    if is_official(type(value)):
        fields = value.__dict__
        return {name: _plain(fields.get(name)) for name in type(value)._fields}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value
