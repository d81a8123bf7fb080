"""pydantic models as Avro and JSON schemas."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from enum import Enum
from typing import Annotated, Any, ClassVar, Generic, Literal, NewType, TypeVar

import pydantic
import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from geminga import errors, schema
from geminga.schema import Precision

UTC = datetime.UTC
Customer = NewType("Customer", str)
T = TypeVar("T")


class Color(Enum):
    RED = "r"
    GREEN = "g"


class Leaf(BaseModel):
    number: int
    text: str | None = None


class Other(BaseModel):
    flag: bool


class Node(BaseModel):
    value: int
    next: Node | None = None
    children: list[Node] = []


def test_models_within_themselves() -> None:
    value = Node(value=1, next=Node(value=2), children=[Node(value=3, children=[Node(value=4)])])
    for typed in (schema.Avro(Node), schema.Json(Node)):
        assert typed.decode(typed.encode(value)) == value


class Named(BaseModel):
    _avro_namespace = "shop.eu"

    order_id: int = Field(alias="orderId", gt=0)
    customer: Customer = Field(
        validation_alias=AliasChoices("client", "buyer"), serialization_alias="customerName"
    )
    size: Literal["s", "m", "l"] = "m"
    level: Literal[1, 2, None] = None
    price: decimal.Decimal = Field(max_digits=10, decimal_places=2, default=decimal.Decimal("0"))
    tags: list[Annotated[str, Field(min_length=2)]] = Field(default_factory=list)
    color: Color = Color.RED
    ratio: pydantic.NonNegativeFloat = 1
    at: datetime.datetime = datetime.datetime(2024, 1, 1, tzinfo=UTC)
    token: uuid.UUID = Field(default_factory=uuid.uuid4)
    cached: object = Field(default=None, exclude=True)
    kind: ClassVar[str] = "not a field"


def named(**changes: Any) -> Named:
    return Named(**{"orderId": 5, "client": "Ada", **changes})


def test_names_defaults_and_constraints_in_the_definition() -> None:
    found = schema.Avro(Named).definition
    decimals = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    colors = {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}
    assert (found["name"], found["namespace"]) == ("Named", "shop.eu")
    assert found["fields"] == [
        {"name": "orderId", "type": "long"},
        {"name": "customerName", "type": "string", "aliases": ["client", "buyer"]},
        {"name": "size", "type": "string", "default": "m"},
        {"name": "level", "type": ["null", "long"], "default": None},
        {"name": "price", "type": decimals},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "color", "type": colors, "default": "RED"},
        {"name": "ratio", "type": "double", "default": 1},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
    ]


def test_values_have_their_names_in_avro() -> None:
    value = named(cached=object())
    assert json.loads(schema.Json(Named).encode(value)) == {
        "orderId": 5, "customerName": "Ada", "size": "m", "level": None, "price": "0",
        "tags": [], "color": "RED", "ratio": 1.0, "at": "2024-01-01T00:00:00Z",
        "token": str(value.token),
    }  # fmt: skip
    for typed in (schema.Avro(Named), schema.Json(Named)):
        read = typed.decode(typed.encode(value))
        assert read == value.model_copy(update={"cached": None})


def test_what_java_leaves_out_of_json() -> None:
    class Strict(BaseModel):
        leaf: Leaf | None
        color: Color | None = Color.RED

    assert schema.Json(Strict).decode(b"{}") == Strict(leaf=None)


def test_other_names_and_missing_fields_of_writers() -> None:
    found = schema.Json(Named).decode(b'{"orderId": 1, "buyer": "Bo", "new": [1]}')
    assert (found.customer, found.at.year) == ("Bo", 2024)
    old = schema.Avro(
        {
            "type": "record",
            "name": "Named",
            "fields": [{"name": "orderId", "type": "int"}, {"name": "buyer", "type": "string"}],
        }
    )

    class Reads(BaseModel):
        order_id: int = Field(alias="orderId")
        customer: str = Field(validation_alias=AliasChoices("client", "buyer"))
        color: Color = Color.GREEN

    read = schema.Avro(Reads)._reader(old.info)
    data = old.encode({"orderId": 7, "buyer": "Bo"})
    assert read(data, None) == Reads(orderId=7, client="Bo")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"order_id": 0}, r"Named\.order_id: Input should be greater than 0"),
        ({"order_id": "x"}, r"Named\.order_id: Input should be a valid integer"),
        ({"customer": 5}, r"Named\.customer"),
        ({"size": "xl"}, r"Named\.size: Input should be 's', 'm' or 'l'"),
        ({"tags": ["ok", "x"]}, r"Named\.tags\[1\]: String should have at least 2"),
        ({"price": decimal.Decimal("0.001")}, r"Named\.price: Decimal .* 2 decimal places"),
        ({"at": datetime.datetime(2024, 1, 1)}, r"Named\.at: must have a time zone"),
        ({"ratio": float("inf")}, r"Named\.ratio: JSON has no inf"),
        ({"order_id": 0, "size": "xl"}, r"Named\.order_id: .*; Named\.size: "),
    ],
)
def test_what_pydantic_refuses_is_not_sent(change: dict[str, Any], told: str) -> None:
    """pydantic doesn't look at what is set after a model was made."""
    value = named()
    for name, wrong in change.items():
        setattr(value, name, wrong)
    with pytest.raises(errors.InvalidValueError, match=told):
        schema.Json(Named).encode(value)
    if "ratio" not in change:
        with pytest.raises(errors.InvalidValueError, match=told):
            schema.Avro(Named).encode(value)


def anything(value: object) -> Any:
    """For what a type checker would refuse, as programs without one do."""
    return value


def test_incomplete_and_other_values() -> None:
    typed = schema.Avro(Leaf)
    with pytest.raises(errors.InvalidValueError, match=r"Leaf\.number: Field required"):
        typed.encode(Leaf.model_construct())
    with pytest.raises(errors.InvalidValueError, match="must be a Leaf, not"):
        typed.encode(anything(Other(flag=True)))
    holder = Holder(leaves=[Leaf(number=1)])
    anything(holder.leaves[0]).number = "x"
    with pytest.raises(errors.InvalidValueError, match=r"Holder\.leaves: Leaf\.number: Input"):
        schema.Avro(Holder).encode(holder)


class Holder(BaseModel):
    leaves: list[Leaf]


def test_what_pydantic_refuses_is_not_read() -> None:
    class Loose(BaseModel):
        orderId: int
        customerName: str
        size: str = "m"

    for made, strict in ((schema.Avro, schema.Avro(Named)), (schema.Json, schema.Json(Named))):
        loose = made(Loose)
        read = strict._reader(loose.info)
        for number, size in ((0, "m"), (1, "xl")):
            data = loose.encode(Loose(orderId=number, customerName="A", size=size))
            wanted = "order_id|size|default"
            with pytest.raises(errors.UndecodableValueError, match=wanted):
                read(data, None)
    with pytest.raises(errors.UndecodableValueError, match=r"Named\.order_id: Field required"):
        schema.Json(Named).decode(b'{"customerName": "A"}')
    with pytest.raises(errors.UndecodableValueError, match=r"Named\.color: "):
        schema.Json(Named).decode(b'{"orderId": 1, "client": "A", "color": "BLUE"}')


def test_fields_beyond_the_definition() -> None:
    class Forbids(Leaf):
        model_config = ConfigDict(extra="forbid")

    class Keeps(Leaf):
        model_config = ConfigDict(extra="allow")

    data = b'{"number": 1, "more": 2}'
    assert schema.Json(Leaf).decode(data) == Leaf(number=1)
    kept = schema.Json(Keeps).decode(data)
    assert kept.model_extra == {"more": 2}
    with pytest.raises(errors.UndecodableValueError, match=r"Forbids\.more: Extra inputs"):
        schema.Json(Forbids).decode(data)
    with pytest.raises(errors.InvalidValueError, match="no field more"):
        schema.Json(Keeps).encode(kept)
    # A value of a subclass is written as what the schema says.
    assert schema.Json(Forbids).decode(schema.Json(Leaf).encode(Forbids(number=1))) is not None


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str
    tail_cm: int | None


class Owner(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")
    more: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = []
    plain: Leaf | Other | None = None


def test_unions_of_models() -> None:
    value = Owner(
        pet=Dog(name="a", tail_cm=3),
        more=[Cat(name="b"), Dog(name="c", tail_cm=None)],
        plain=Other(flag=True),
    )
    for typed in (schema.Avro(Owner), schema.Json(Owner)):
        assert typed.decode(typed.encode(value)) == value
    assert json.loads(schema.Json(Owner).encode(value))["plain"] == {"flag": True}
    assert schema.Json(Owner).decode(b'{"pet": {"kind": "cat", "name": "d"}}') == Owner(
        pet=Cat(name="d")
    )


def test_the_settings_of_a_model() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True, frozen=True)
        at: datetime.datetime
        key: uuid.UUID
        numbers: tuple[int, ...]
        data: bytes
        price: Annotated[decimal.Decimal, Precision(5, 1)]
        color: Color
        ratio: float

    class Raw(BaseModel):
        model_config = ConfigDict(use_enum_values=True)
        color: Color
        colors: list[Color | None] = []
        strict: Color = Color.RED

    strict = Strict(
        at=datetime.datetime(2024, 1, 1, tzinfo=UTC), key=uuid.UUID(int=1), numbers=(1, 2),
        data=b"\xff", price=decimal.Decimal("1.5"), color=Color.RED, ratio=2.0,
    )  # fmt: skip
    raw = Raw(color=Color.GREEN, colors=[Color.RED, None], strict=Color.RED)
    assert raw.color == "g"
    for each in (schema.Avro(Strict), schema.Json(Strict)):
        assert each.decode(each.encode(strict)) == strict
    for typed in (schema.Avro(Raw), schema.Json(Raw)):
        assert typed.decode(typed.encode(raw)) == raw
    assert json.loads(schema.Json(Raw).encode(raw)) == {
        "color": "GREEN", "colors": ["RED", None], "strict": "RED",
    }  # fmt: skip


class Page(BaseModel, Generic[T]):
    items: list[T]


def test_generic_models() -> None:
    typed = schema.Avro(Page[Leaf])
    assert typed.definition["name"] == "Page_Leaf"
    value = Page[Leaf](items=[Leaf(number=1)])
    assert typed.decode(typed.encode(value)) == value


def test_validators_run_and_always_allow_null() -> None:
    class Checked(BaseModel):
        low: int
        high: int
        note: str = "none"

        @pydantic.model_validator(mode="after")
        def ordered(self) -> Checked:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

        @pydantic.computed_field
        def width(self) -> int:
            return self.high - self.low

    typed = schema.Json(Checked, always_allow_null=True)
    assert typed.info.properties["__alwaysAllowNull"] == "true"
    fields: Any = typed.definition["fields"]
    assert fields[2] == {"name": "note", "type": ["string", "null"], "default": "none"}
    assert typed.encode(Checked(low=1, high=2)) == b'{"low":1,"high":2,"note":"none"}'
    with pytest.raises(errors.UndecodableValueError, match="Checked: Value error, low is above"):
        typed.decode(b'{"low": 3, "high": 2}')
    with pytest.raises(errors.UndecodableValueError, match=r"Checked\.note"):
        typed.decode(b'{"low": 1, "high": 2, "note": null}')
