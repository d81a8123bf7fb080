"""Avro definitions: parsed for fastavro, and renamed to match each other. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from geminga.errors import InvalidArgumentError, InvalidSchemaError

Definition = Mapping[str, object] | str
"""An explicit Avro schema: a dict, or its JSON."""
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def avro_library() -> ModuleType:
    """The module fastavro. Raises InvalidArgumentError if it isn't installed."""
    try:
        import fastavro
    except ImportError as error:
        raise InvalidArgumentError('Avro needs fastavro: pip install "geminga[avro]"') from error
    return fastavro


def load(text: bytes | str | Mapping[str, object]) -> Any:
    """The definition as a Python object. Raises InvalidSchemaError."""
    if isinstance(text, Mapping):
        return dict(text)
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidSchemaError(f"the definition is not JSON: {error}") from error


def parsed(definition: Any) -> Any:
    """The definition parsed by fastavro. Raises InvalidSchemaError."""
    try:
        return avro_library().parse_schema(definition)
    except InvalidArgumentError:
        raise
    except Exception as error:
        raise InvalidSchemaError(f"the definition is not an Avro schema: {error}") from error


def renamed(writer: Any, reader: Any) -> Any:
    """The writer's definition with the reader's names of records: as in Java, records match by
    their fields, regardless of names.
    """
    names: dict[str, str] = {}
    known: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    _collect(writer, "", known[0])
    _collect(reader, "", known[1])
    _pair(writer, reader, ("", ""), known, names)
    return _rewritten(writer, "", names)


def _full(name: str, namespace: str | None) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _space_of(schema: Mapping[str, Any], space: str) -> str:
    name = schema["name"]
    if "." in name:
        return str(name.rpartition(".")[0])
    return str(schema.get("namespace") or space)


def _is_named(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") in ("record", "enum", "fixed")


def _collect(schema: Any, space: str, known: dict[str, Any]) -> None:
    """Collect all named types by full name."""
    if isinstance(schema, list):
        for each in schema:
            _collect(each, space, known)
    elif _is_named(schema):
        space = _space_of(schema, space)
        known[_full(schema["name"], space)] = (schema, space)
        for field in schema.get("fields", ()):
            _collect(field["type"], space, known)
    elif isinstance(schema, Mapping):
        for part in ("type", "items", "values"):
            if not isinstance(schema.get(part), str | None) or (part != "type" and part in schema):
                _collect(schema[part], space, known)


def _resolve(schema: Any, space: str, known: dict[str, Any]) -> tuple[Any, str]:
    """The type with a name, and its name space."""
    if isinstance(schema, str) and schema not in _PRIMITIVES:
        found: tuple[Any, str] | None = known.get(_full(schema, space)) or known.get(schema)
        return found or (schema, space)
    if isinstance(schema, Mapping) and isinstance(schema.get("type"), Mapping | list):
        return _resolve(schema["type"], space, known)
    if isinstance(schema, Mapping) and _is_named(schema):
        return schema, _space_of(schema, space)
    return schema, space


def _pair(
    writer: Any,
    reader: Any,
    spaces: tuple[str, str],
    known: tuple[dict[str, Any], dict[str, Any]],
    names: dict[str, str],
) -> None:
    """Match the writer's records with the reader's."""
    writer, writer_space = _resolve(writer, spaces[0], known[0])
    reader, reader_space = _resolve(reader, spaces[1], known[1])
    spaces = writer_space, reader_space
    if isinstance(writer, list) or isinstance(reader, list):
        ours = [each for each in _listed(writer) if each != "null"]
        theirs = [each for each in _listed(reader) if each != "null"]
        if len(ours) == len(theirs) == 1:
            _pair(ours[0], theirs[0], spaces, known, names)
        return
    if not isinstance(writer, Mapping) or not isinstance(reader, Mapping):
        return
    kind = writer.get("type")
    if kind != reader.get("type"):
        return
    if kind == "record":
        name = _full(writer["name"], writer_space)
        if name in names:
            return
        names[name] = _full(reader["name"], reader_space)
        fields = {each["name"]: each for each in writer.get("fields", ())}
        for field in reader.get("fields", ()):
            for alias in (field["name"], *field.get("aliases", ())):
                if alias in fields:
                    _pair(fields[alias]["type"], field["type"], spaces, known, names)
                    break
    elif kind in ("array", "map"):
        part = "items" if kind == "array" else "values"
        _pair(writer[part], reader[part], spaces, known, names)


def _listed(schema: Any) -> list[Any]:
    return schema if isinstance(schema, list) else [schema]


def _rewritten(schema: Any, space: str, names: dict[str, str]) -> Any:
    """The definition with full names, changed by `names`."""
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return schema
        name = _full(schema, space)
        return names.get(name, name)
    if isinstance(schema, list):
        return [_rewritten(each, space, names) for each in schema]
    made = {key: value for key, value in schema.items() if not key.startswith("__")}
    if _is_named(schema):
        space = _space_of(schema, space)
        name = _full(schema["name"], space)
        made["name"] = names.get(name, name)
        made.pop("namespace", None)
        if "fields" in schema:
            made["fields"] = [
                {**field, "type": _rewritten(field["type"], space, names)}
                for field in schema["fields"]
            ]
        return made
    for part in ("items", "values"):
        if part in made:
            made[part] = _rewritten(made[part], space, names)
    if not isinstance(made["type"], str):
        made["type"] = _rewritten(made["type"], space, names)
    return made
