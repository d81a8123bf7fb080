"""Which pydantic models can't be schemas, and that pydantic is never imported without one."""

from __future__ import annotations

import decimal
import subprocess
import sys
import types
from typing import Annotated, Any

import pydantic
import pytest
from pydantic import AliasPath, BaseModel, Field

from geminga import errors, schema


class Listed(pydantic.RootModel[list[int]]):
    pass


class Unmapped(BaseModel):
    a: object
    b: decimal.Decimal
    c: pydantic.SecretStr
    d: tuple[int, str]
    e: dict[int, str]
    f: Listed
    g: pydantic.Base64Bytes
    h: str = Field(validation_alias=AliasPath("h", 0))
    i: int = Field(alias="no-name")
    j: Annotated[int, pydantic.PlainSerializer(str)]
    k: int = Field(exclude=True)
    m: list[int] | list[str]
    n: list[Annotated[int, pydantic.PlainSerializer(str)]]


@pytest.mark.parametrize("name", Unmapped.model_fields)
@pytest.mark.parametrize("made", [schema.Avro, schema.Json])
def test_what_has_no_avro_type_is_named(made: type[schema.Json[Any]], name: str) -> None:
    info = Unmapped.model_fields[name]
    fields: dict[str, Any] = {name: (info.annotation, info)}
    one = pydantic.create_model("One", **fields)
    with pytest.raises(errors.InvalidSchemaError, match=rf"One\.{name}|Listed is a RootModel"):
        made(one)


def test_models_that_write_themselves_otherwise() -> None:
    class Whole(BaseModel):
        a: int

        @pydantic.model_serializer
        def written(self) -> str:
            return "x"

    class Part(BaseModel):
        a: int

        @pydantic.field_serializer("a")
        def written(self, value: int) -> str:
            return "x"

    class Twice(BaseModel):
        a: int
        b: int = Field(serialization_alias="a")

    for kind, told in ((Whole, "model_serializer"), (Part, r"Part\.a"), (Twice, "two fields")):
        with pytest.raises(errors.InvalidSchemaError, match=told):
            schema.Json(kind)
    with pytest.raises(errors.InvalidSchemaError, match="RootModel"):
        schema.Json(Listed)


def test_models_of_pydantic_1() -> None:
    from pydantic import v1

    class Old(v1.BaseModel):
        a: int

    with pytest.raises(errors.InvalidSchemaError, match=r'pip install "geminga\[pydantic\]"'):
        schema.Json(Old)


def test_the_library_of_version_1(monkeypatch: pytest.MonkeyPatch) -> None:
    base = type("BaseModel", (), {"__module__": "pydantic.main"})
    library = types.ModuleType("pydantic")
    vars(library)["BaseModel"] = base
    monkeypatch.setitem(sys.modules, "pydantic", library)
    with pytest.raises(errors.InvalidSchemaError, match=r'pip install "geminga\[pydantic\]"'):
        schema.Json(type("Old", (base,), {}))


def test_pydantic_is_not_imported_without_models() -> None:
    code = (
        "import sys, dataclasses; from geminga import schema\n"
        "Order = dataclasses.make_dataclass('Order', [('id', int)])\n"
        "schema.Json(Order).encode(Order(1)); schema.Avro(Order)\n"
        "print(*[m for m in sys.modules if m.startswith('pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
