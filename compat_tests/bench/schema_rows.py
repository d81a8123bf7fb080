"""Typed values: our schemas beside the official Python client's, in one process, in CPU time.

``python -m compat_tests.bench.schema_rows COUNT`` is the load itself; it prints one JSON line.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulsar.schema

from compat_tests.bench.model import Measure, Row
from compat_tests.bench.side import Side, run_program
from geminga import schema

ROUNDS = 3
"""Of each the fastest counts."""
TIMES_MAX = 1 / 3
"""Encoding and decoding may cost a third of what the official client takes."""


class TheirItem(pulsar.schema.Record):
    """What the official client is given."""

    sku = pulsar.schema.String(required=True)
    count = pulsar.schema.Long(required=True)
    price = pulsar.schema.Double(required=True)


class TheirOrder(pulsar.schema.Record):
    """The same, with the item in it."""

    id = pulsar.schema.Long(required=True)
    customer = pulsar.schema.String(required=True)
    country = pulsar.schema.String(required=True)
    amount = pulsar.schema.Double(required=True)
    paid = pulsar.schema.Boolean(required=True)
    comment = pulsar.schema.String()
    tags = pulsar.schema.Array(pulsar.schema.String(), required=True)
    item = TheirItem(required=True)


@dataclass
class Item:
    """What ours is given."""

    sku: str
    count: int
    price: float


@dataclass
class Order:
    """The same, with the item in it."""

    id: int
    customer: str
    country: str
    amount: float
    paid: bool
    comment: str | None = None
    tags: list[str] = field(default_factory=list)
    item: Item = field(default_factory=lambda: Item("", 0, 0.0))


OURS = Order(
    7_000_000_000, "customer-17", "FI", 99.5, True, "a comment of some length", ["a", "b", "c"],
    Item("sku-12345", 3, 33.25),
)  # fmt: skip
THEIRS = TheirOrder(
    **{**vars(OURS), "item": TheirItem(sku="sku-12345", count=3, price=33.25)},
)


def measured(count: int) -> dict[str, float]:
    """Microseconds of CPU time a message, for both clients."""
    schemas: dict[str, tuple[Any, Any]] = {
        "ours_avro": (schema.Avro(Order), OURS),
        "official_avro": (pulsar.schema.AvroSchema(TheirOrder), THEIRS),
        "ours_json": (schema.Json(Order), OURS),
        "official_json": (pulsar.schema.JsonSchema(TheirOrder), THEIRS),
    }
    found: dict[str, float] = {}
    gc.disable()
    for name, (typed, value) in schemas.items():
        data = typed.encode(value)
        found[f"{name}_encode_us"] = _cpu_us(typed.encode, value, count)
        found[f"{name}_decode_us"] = _cpu_us(typed.decode, data, count)
    for kind in ("avro", "json"):
        total = {who: found[f"{who}_{kind}_encode_us"] + found[f"{who}_{kind}_decode_us"]
                 for who in ("ours", "official")}  # fmt: skip
        found[f"{kind}_times"] = total["ours"] / total["official"]
        found[f"{kind}_faster"] = total["official"] / total["ours"]
    return found


def _cpu_us(function: Callable[[Any], object], value: Any, count: int) -> float:
    best_s = float("inf")
    for _ in range(ROUNDS):
        began_s = time.process_time()
        for _ in range(count):
            function(value)
        best_s = min(best_s, time.process_time() - began_s)
    return best_s / count * 1e6


def schemas(side: Side) -> Mapping[str, float]:
    """No broker has a part in it."""
    count = str(int(side.seconds(20_000, 2_000)))
    return run_program([sys.executable, "-m", "compat_tests.bench.schema_rows", count])


SCHEMA_ROWS = (
    Row(
        "schemas",
        "Avro and JSON from dataclasses, encoded and decoded, beside the official Python client",
        schemas,
        (
            Measure("avro_times", "Avro: our CPU time / theirs", "", geminga_max=TIMES_MAX),
            Measure("json_times", "JSON: our CPU time / theirs", "", geminga_max=TIMES_MAX),
            Measure("avro_faster", "Avro: times faster", ""),
            Measure("json_faster", "JSON: times faster", ""),
            Measure("ours_avro_encode_us", "Avro, encode, ours", "µs"),
            Measure("ours_avro_decode_us", "Avro, decode, ours", "µs"),
            Measure("official_avro_encode_us", "Avro, encode, official", "µs"),
            Measure("official_avro_decode_us", "Avro, decode, official", "µs"),
            Measure("ours_json_encode_us", "JSON, encode, ours", "µs"),
            Measure("ours_json_decode_us", "JSON, decode, ours", "µs"),
            Measure("official_json_encode_us", "JSON, encode, official", "µs"),
            Measure("official_json_decode_us", "JSON, decode, official", "µs"),
        ),
        geminga_only=True,
    ),
)


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))
