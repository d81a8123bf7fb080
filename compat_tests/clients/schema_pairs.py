"""Random pairs of Avro definitions: one, and another that grew out of it by some changes."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "bytes": "ÿ",
    "string": "s",
}


class Pairs:
    """A stream of pairs out of one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._named = 0

    def pair(self) -> tuple[str, str]:
        """Two definitions as JSON, both of them records at the top."""
        self._named = 0
        old = self._record(0)
        new = copy.deepcopy(old)
        for _ in range(self._random.choice((0, 1, 1, 1, 2, 3))):
            self._change(new)
        if self._random.random() < 0.3:
            old, new = new, old
        return json.dumps(old), json.dumps(new)

    def _name(self, prefix: str) -> str:
        self._named += 1
        return f"{prefix}{self._named}"

    def _type(self, depth: int) -> Any:
        kind = self._random.choice(
            (*_PRIMITIVES, *_PRIMITIVES, "enum", "fixed", "array", "map", "union", "record")
        )
        if depth > 2 and kind not in ("enum", "fixed"):
            kind = self._random.choice(_PRIMITIVES)
        if kind == "enum":
            symbols = [f"S{n}" for n in range(self._random.randint(1, 4))]
            return {"type": "enum", "name": self._name("E"), "symbols": symbols}
        if kind == "fixed":
            size = self._random.randint(0, 3)
            return {"type": "fixed", "name": self._name("F"), "size": size}
        if kind == "array":
            return {"type": "array", "items": self._type(depth + 1)}
        if kind == "map":
            return {"type": "map", "values": self._type(depth + 1)}
        if kind == "union":
            return self._union(depth)
        return self._record(depth + 1) if kind == "record" else kind

    def _union(self, depth: int) -> list[Any]:
        branches = self._random.sample(_PRIMITIVES, self._random.randint(1, 3))
        found: list[Any] = list(branches)
        if self._random.random() < 0.4:
            found.append(self._record(depth + 1))
        if self._random.random() < 0.2:
            found.append({"type": "enum", "name": self._name("E"), "symbols": ["A", "B"]})
        return found

    def _record(self, depth: int) -> dict[str, Any]:
        name = "Root" if depth == 0 else self._name("R")
        fields = [self._field(depth, index) for index in range(self._random.randint(1, 3))]
        if self._random.random() < 0.15:
            fields.append({"name": "again", "type": ["null", name], "default": None})
        record = {"type": "record", "name": name, "fields": fields}
        if self._random.random() < 0.3:
            record["namespace"] = self._random.choice(("a.b", "c"))
        return record

    def _field(self, depth: int, index: int) -> dict[str, Any]:
        kind = self._type(depth)
        found = {"name": f"f{index}", "type": kind}
        first = kind[0] if isinstance(kind, list) else kind
        if self._random.random() < 0.5 and isinstance(first, str) and first in _DEFAULTS:
            found["default"] = _DEFAULTS[first]
        return found

    def _change(self, root: dict[str, Any]) -> None:
        """One change somewhere inside."""
        records = list(_records(root))
        record = self._random.choice(records)
        fields = record["fields"]
        field = self._random.choice(fields) if fields else None
        step = self._random.randrange(10)
        if step == 0 or field is None:
            added = self._field(2, 100 + self._named)
            fields.insert(self._random.randint(0, len(fields)), added)
        elif step == 1:
            fields.remove(field)
        elif step == 2:
            field["type"] = self._type(2)
            field.pop("default", None)
        elif step == 3:
            self._promote(field)
        elif step == 4 and "default" in field:
            del field["default"]
        elif step == 5:
            field["name"], field["aliases"] = f"{field['name']}x", [field["name"]]
        elif step == 6 and record is not root:
            self._rename(root, record)
        elif step == 7:
            self._random.shuffle(fields)
        elif step == 8:
            self._alter_enum(root)
        else:
            self._to_union(field)

    def _promote(self, field: dict[str, Any]) -> None:
        chosen = self._random.choice(("int", "long", "float", "double", "string", "bytes"))
        if isinstance(field["type"], str):
            field["type"] = chosen
            if "default" in field:
                field["default"] = _DEFAULTS[chosen]

    def _rename(self, root: dict[str, Any], record: dict[str, Any]) -> None:
        old = record["name"]
        record["name"] = self._name("N")
        if self._random.random() < 0.5:
            record["aliases"] = [old]
        for each in record["fields"]:
            if each["type"] == ["null", old]:
                each["type"] = ["null", record["name"]]
        del root

    def _alter_enum(self, root: dict[str, Any]) -> None:
        for each in _enums(root):
            if self._random.random() < 0.5 and len(each["symbols"]) > 1:
                each["symbols"].pop()
            else:
                each["symbols"].append(self._name("Z"))
            if self._random.random() < 0.3:
                each["default"] = each["symbols"][0]

    def _to_union(self, field: dict[str, Any]) -> None:
        kind = field["type"]
        if not isinstance(kind, list):
            field["type"] = [kind, "null"] if kind != "null" else [kind, "int"]
        else:
            self._random.shuffle(kind)
            field.pop("default", None)


def _records(source: Any) -> Any:
    for each in _objects(source):
        if each.get("type") == "record":
            yield each


def _enums(source: Any) -> Any:
    return [each for each in _objects(source) if each.get("type") == "enum"]


def _objects(source: Any) -> Any:
    if isinstance(source, dict):
        yield source
        for value in source.values():
            yield from _objects(value)
    elif isinstance(source, list):
        for value in source:
            yield from _objects(value)
