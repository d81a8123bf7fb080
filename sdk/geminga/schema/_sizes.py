"""Whole numbers in values of an explicit Avro schema in JSON, held to the bounds of `int` and
`long`: readers in other languages have no larger ones. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geminga.errors import InvalidValueError
from geminga.schema._plans import whole

_BITS = {"int": whole(32), "long": whole(64)}


class Sizes:
    """The bounds of one definition."""

    def __init__(self, definition: Any) -> None:
        self._definition = definition
        self._records: dict[str, Any] = {}
        self._learn(definition)

    def _learn(self, schema: Any) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._learn(each)
        elif isinstance(schema, Mapping):
            if schema.get("type") == "record":
                name = schema["name"].rpartition(".")[2]
                # Of two namespaces: which one a reference means isn't looked at.
                self._records[name] = None if name in self._records else schema
                for field in schema["fields"]:
                    self._learn(field["type"])
            else:
                for part in ("type", "items", "values"):
                    self._learn(schema.get(part))

    def checked(self, value: Any) -> Any:
        """The same value. Raises InvalidValueError, naming the field, for a number that is too
        large; what else doesn't fit the definition is let through.
        """
        self._check(value, self._definition, "")
        return value

    def _check(self, value: Any, schema: Any, where: str) -> None:
        if isinstance(schema, list):
            # Of a union of several numbers the widest one counts.
            wider = {"float", "double"} & {each for each in schema if isinstance(each, str)}
            records = [each for each in schema if self._is_record(each)]
            for each in schema:
                if (wider and each in ("int", "long")) or (each == "int" and "long" in schema):
                    continue
                if len(records) == 1 or each not in records:  # which of several isn't looked at
                    self._check(value, each, where)
        elif isinstance(schema, str):
            if type(value) is int and schema in _BITS:
                try:
                    _BITS[schema](value)
                except InvalidValueError as error:
                    told = f"{where.lstrip('.')}: " if where else ""
                    raise InvalidValueError(f"{told}{error.args[0]}") from None
            elif (record := self._records.get(schema.rpartition(".")[2])) is not None:
                self._check(value, record, where)
        elif isinstance(schema, Mapping):
            self._check_parts(value, schema, where)

    def _is_record(self, schema: Any) -> bool:
        if isinstance(schema, str):
            return schema.rpartition(".")[2] in self._records
        return isinstance(schema, Mapping) and schema.get("type") == "record"

    def _check_parts(self, value: Any, schema: Mapping[str, Any], where: str) -> None:
        kind = schema.get("type")
        if kind == "record":
            if isinstance(value, Mapping):
                for field in schema["fields"]:
                    if (name := field["name"]) in value:
                        self._check(value[name], field["type"], f"{where}.{name}")
        elif kind == "array":
            if isinstance(value, list | tuple):
                for index, each in enumerate(value):
                    self._check(each, schema["items"], f"{where}[{index}]")
        elif kind == "map":
            if isinstance(value, Mapping):
                for key, each in value.items():
                    self._check(each, schema["values"], f"{where}[{key!r}]")
        else:
            self._check(value, kind, where)
