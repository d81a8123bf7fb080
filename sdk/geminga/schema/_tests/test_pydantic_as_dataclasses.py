"""pydantic models as schemas write the same bytes as dataclasses with their fields."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from geminga import errors, schema
from geminga.schema import Micros, Precision
from geminga.schema._auto import generic_reader
from geminga.schema._tests import test_types as plain
from geminga.schema._tests.test_pydantic_models import Color, Leaf, Other


class Everything(BaseModel):
    number: int
    small: Annotated[int, schema.Int32]
    ratio: float
    text: str
    data: bytes
    flag: bool
    color: Color
    leaf: Leaf
    leaves: list[Leaf]
    by_name: dict[str, Leaf]
    several: Leaf | Other | str | None
    numbers: tuple[int, ...]
    unique: frozenset[str]
    maybe_color: Color | None
    day: datetime.date
    at: datetime.datetime
    exactly: Annotated[datetime.datetime, Micros()]
    local: Annotated[datetime.datetime, schema.LocalDateTime]
    noon: datetime.time
    key: uuid.UUID
    price: Annotated[decimal.Decimal, Precision(10, 2)]


EVERYTHING = plain.EVERYTHING.filter(lambda value: abs(value.ratio) < float("inf"))
AVRO, JSON = schema.Avro(Everything), schema.Json(Everything)


def as_model(value: plain.Everything) -> Everything:
    """The model with the fields of the dataclass."""

    def leaf(each: plain.Leaf) -> Leaf:
        return Leaf(number=each.number, text=each.text)

    several: Any = value.several
    if isinstance(several, plain.Leaf):
        several = leaf(several)
    elif isinstance(several, plain.Other):
        several = Other(flag=several.flag)
    return Everything(
        **{
            **vars(value),
            "color": Color[value.color.name],
            "maybe_color": value.maybe_color and Color[value.maybe_color.name],
            "leaf": leaf(value.leaf),
            "leaves": [leaf(each) for each in value.leaves],
            "by_name": {name: leaf(each) for name, each in value.by_name.items()},
            "several": several,
        }
    )


@given(EVERYTHING)
@pytest.mark.slow
def test_there_and_back(value: plain.Everything) -> None:
    model = as_model(value)
    data = AVRO.encode(model)
    if len(value.unique) < 2:  # a set has no order, and a copy may have another one
        assert data == plain.AVRO.encode(value), "not as the dataclass"
    assert plain.AVRO.decode(data) == value
    assert AVRO.decode(data) == model
    generic = generic_reader(AVRO.info, b"v")(data, None)
    assert isinstance(generic, schema.GenericRecord)
    assert generic["leaf"] == {"number": value.leaf.number, "text": value.leaf.text}
    assert JSON.decode(JSON.encode(model)) == model


def test_the_definition_is_the_dataclasss() -> None:
    assert AVRO.definition == plain.AVRO.definition
    assert AVRO.info.type is schema.SchemaType.AVRO
    assert JSON.definition == plain.AVRO.definition
    assert AVRO.info.properties == plain.AVRO.info.properties


@given(st.binary())
def test_what_is_no_record_is_told(data: bytes) -> None:
    for typed in (AVRO, JSON):
        try:
            typed.decode(data)
        except errors.UndecodableValueError:
            continue
