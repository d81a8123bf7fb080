"""Values that don't fit: what is told of them, and how much of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

import geminga
from geminga import schema

LARGE = 1 << 63


class Tea(pydantic.BaseModel):
    name: str = ""
    minutes: int = 3

    @pydantic.field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name == "coffee":
            raise ValueError("is no tea, " * 10_000)
        return name


class Order(pydantic.BaseModel):
    tea: Tea


def test_pydantic_s_own_reason_is_told() -> None:
    with pytest.raises(geminga.UndecodableValueError) as caught:
        schema.Json(Tea).decode(b'{"minutes":"long"}')
    told = str(caught.value)
    assert told.startswith("the payload's value doesn't fit: Tea.minutes: Input should be a valid")
    assert "no JSON object" not in told
    with pytest.raises(geminga.UndecodableValueError, match=r"fit: Order.tea: Tea.minutes: Input"):
        schema.Json(Order).decode(b'{"tea":{"minutes":"long"}}')
    with pytest.raises(geminga.UndecodableValueError, match="no JSON object: JSON is malformed"):
        schema.Json(Tea).decode(b"{nonsense")


def test_a_reason_is_bounded() -> None:
    with pytest.raises(geminga.UndecodableValueError) as caught:
        schema.Json(Tea).decode(b'{"name":"coffee"}')
    told = str(caught.value)
    assert "Tea.name: Value error, is no tea" in told
    assert len(told) < 600


def test_pydantic_refuses_what_avro_has() -> None:
    plain = schema.Avro(
        {"type": "record", "name": "Tea", "fields": [
            {"name": "name", "type": "string"}, {"name": "minutes", "type": "long"}]}
    )  # fmt: skip
    payload = plain.encode({"name": "coffee", "minutes": 1})
    with pytest.raises(geminga.UndecodableValueError, match=r"doesn't fit: Tea.name: Value error"):
        schema.Avro(Tea).decode(payload)


@dataclass
class Counts:
    one: int = 0
    small: Annotated[int, schema.Int32] = 0
    some: list[int] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)
    perhaps: int | None = None
    either: int | str | None = None


class Counted(msgspec.Struct):
    one: int


@pytest.mark.parametrize(
    "value",
    [
        Counts(one=LARGE), Counts(one=-LARGE - 1), Counts(small=1 << 31), Counts(some=[0, LARGE]),
        Counts(named={"a": LARGE}), Counts(perhaps=LARGE), Counts(either=LARGE),
        Counts(one=1 << 100_000),
    ],
)  # fmt: skip
def test_numbers_beyond_a_long_are_refused(value: Counts) -> None:
    with pytest.raises(geminga.InvalidValueError, match="is not a whole number of") as caught:
        schema.Json(Counts).encode(value)
    assert str(caught.value).startswith("Counts.")
    assert len(str(caught.value)) < 200


def test_the_ends_of_a_long_are_taken() -> None:
    kind = schema.Json(Counts)
    value = Counts(LARGE - 1, -(1 << 31), [-LARGE], {"a": LARGE - 1}, -LARGE, LARGE - 1)
    assert kind.decode(kind.encode(value)) == value
    with pytest.raises(geminga.InvalidValueError, match=r"Counted.one: 9223372036854775808 is not"):
        schema.Json(Counted).encode(Counted(LARGE))
    with pytest.raises(geminga.InvalidValueError, match=r"Tea.minutes"):
        schema.Json(Tea).encode(Tea(minutes=LARGE))


NODE = {
    "type": "record", "name": "Node", "namespace": "a.b", "fields": [
        {"name": "size", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "either", "type": ["null", "int", "long"]},
        {"name": "wide", "type": ["null", "long", "double"]},
        {"name": "some", "type": {"type": "array", "items": "long"}},
        {"name": "named", "type": {"type": "map", "values": "int"}},
        {"name": "next", "type": ["null", "Node"]},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"size": 1 << 31}, "size: "),
        ({"at": LARGE}, "at: "),
        ({"either": LARGE}, "either: "),
        ({"some": [0, LARGE]}, r"some\[1\]: "),
        ({"named": {"k": 1 << 31}}, r"named\['k'\]: "),
        ({"next": {"next": {"size": 1 << 31}}}, "next.next.size: "),
    ],
)
def test_numbers_of_an_explicit_schema_are_held_to_it(value: dict[str, object], told: str) -> None:
    with pytest.raises(geminga.InvalidValueError, match=f"^{told}.* whole number of"):
        schema.Json(NODE).encode(value)


def test_other_values_of_an_explicit_schema_pass() -> None:
    value = {"size": -5, "either": 1 << 40, "wide": 1 << 70, "some": [1], "next": None, "more": 1}
    assert json.loads(schema.Json(NODE).encode(value)) == value
    text: Any = "text"
    assert schema.Json('"string"').encode(text) == b'"text"'


@pytest.mark.parametrize("kind", [schema.Json, schema.Avro])
def test_the_base_of_all_models_is_no_record(kind: type[schema.Json[object]]) -> None:
    with pytest.raises(geminga.InvalidSchemaError, match="BaseModel itself is no record"):
        kind(pydantic.BaseModel)


def test_records_of_one_name_in_two_namespaces() -> None:
    """Whose bounds a reference means isn't guessed: a right value is never refused."""
    large, small = (
        {"type": "record", "name": f"{space}.Point", "fields": [{"name": "x", "type": kind}]}
        for space, kind in (("a", "long"), ("b", "int"))
    )
    both = schema.Json(
        {"type": "record", "name": "Both", "fields": [
            {"name": "large", "type": large}, {"name": "small", "type": small},
            {"name": "again", "type": "a.Point"}]}
    )  # fmt: skip
    value = {"large": {"x": 1 << 40}, "small": {"x": 1}, "again": {"x": 1 << 40}}
    assert both.decode(both.encode(value)) == value
    with pytest.raises(geminga.InvalidValueError, match=r"small.x: 1099511627776 is not a whole"):
        both.encode({**value, "small": {"x": 1 << 40}})


def test_a_choice_of_several_records() -> None:
    """A value of one isn't held to the bounds of another."""
    kinds = [
        {"type": "record", "name": name, "fields": [{"name": "x", "type": kind}]}
        for name, kind in (("Small", "int"), ("Large", "long"))
    ]
    shapes: Any = {
        "type": "record", "name": "Shapes", "fields": [
            {"name": "one", "type": ["null", *kinds, "int"]},
            {"name": "again", "type": ["Small", "Large"]}]
    }  # fmt: skip
    value = {"one": {"x": 1 << 40}, "again": {"x": 1 << 40}}
    assert json.loads(schema.Json(shapes).encode(value)) == value
    with pytest.raises(geminga.InvalidValueError, match="one: 1099511627776 is not"):
        schema.Json(shapes).encode({"one": 1 << 40})
