"""Pairs of a key and a value, each with its own schema (spec SP-02; KeyValueSchemaImpl and
KeyValueSchemaInfo of the Java client). Pure.

Inline, a payload has both, each as a size of four bytes (-1 for null) and its bytes. Separated, the
payload is the value, and the key is the message's key.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import NamedTuple

from geminga.schema import SchemaInfo, SchemaType
from pyspark_pulsar.errors import SchemaMismatch

_SIZE = struct.Struct(">i")
HALVES = ("key", "value")


class PairInfo(NamedTuple):
    """The schemas of both halves."""

    key: SchemaInfo
    value: SchemaInfo
    is_separated: bool


def split(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Both halves. Raises ValueError for wrong sizes, and for bytes after the pair."""
    halves: list[bytes | None] = []
    at = 0
    for name in HALVES:
        if at + 4 > len(data):
            raise ValueError(f"the pair ends before the size of its {name}")
        (size,) = _SIZE.unpack_from(data, at)
        at += 4
        if size < -1 or size > len(data) - at:
            raise ValueError(
                f"the pair's {name} has {size} bytes by its size, but {len(data) - at} are left"
            )
        halves.append(None if size < 0 else data[at : at + size])
        at += max(size, 0)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the pair")
    return halves[0], halves[1]


def split_all(
    payloads: Sequence[bytes | None],
) -> tuple[list[bytes | None], list[bytes | None], dict[int, str]]:
    """Keys and values of inline pairs, and the errors of malformed ones."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    notes: dict[int, str] = {}
    for number, payload in enumerate(payloads):
        key: bytes | None = None
        value: bytes | None = None
        if payload is not None:
            try:
                key, value = split(payload)
            except ValueError as error:
                notes[number] = str(error)
        keys.append(key)
        values.append(value)
    return keys, values, notes


def pair_info(info: SchemaInfo) -> PairInfo:
    """The schemas of a pair's halves. Raises SchemaMismatch."""
    properties = info.properties
    halves: list[SchemaInfo] = []
    try:
        for name, data in zip(HALVES, split(info.schema), strict=True):
            known = json.loads(properties.get(f"{name}.schema.properties") or "{}")
            kind = SchemaType[properties[f"{name}.schema.type"]]
            title = properties.get(f"{name}.schema.name", "")
            halves.append(SchemaInfo(title, kind, data or b"", known))
    except (KeyError, ValueError) as error:
        raise SchemaMismatch(
            "schema", f"the topic's key-value schema is invalid: {error}"
        ) from error
    key, value = halves
    return PairInfo(key, value, properties.get("kv.encoding.type") == "SEPARATED")
