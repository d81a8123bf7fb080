"""Avro and JSON schemas (spec SDK-41; AvroSchema and JSONSchema of the Java client). Both have an
Avro schema as their definition.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, overload

import msgspec

from geminga.errors import (
    InvalidArgumentError,
    InvalidSchemaError,
    InvalidValueError,
    UndecodableValueError,
)
from geminga.schema._base import Reader, Schema, T, undecodable
from geminga.schema._definition import Definition, avro_library, load, parsed, renamed
from geminga.schema._info import SchemaInfo
from geminga.schema._nesting import guard_of
from geminga.schema._official import is_official
from geminga.schema._plans import Plan
from geminga.schema._sizes import Sizes
from geminga.schema._types import Planner
from geminga_protocol.schema_type import SchemaType

ALWAYS_ALLOW_NULL = "__alwaysAllowNull"
JSR310_CONVERSION_ENABLED = "__jsr310ConversionEnabled"
_NAMED = {"return_named_type": True, "return_named_type_override": True}
"""Read options: only values of unions of several named types name their type."""


class Described(Schema[T]):
    """A schema with an Avro definition: of a class, or given (values are dicts)."""

    _TYPE: SchemaType

    def __init__(
        self,
        record: type[T] | Definition,
        *,
        always_allow_null: bool,
        properties: Mapping[str, str] | None,
        name: str,
    ) -> None:
        self._kind = record if isinstance(record, type) else None
        self._models: frozenset[str] = frozenset()
        if isinstance(record, type):
            planner = Planner(
                always_allow_null=always_allow_null, json=self._TYPE is SchemaType.JSON
            )
            self._plan = planner.plan(record, record.__name__, "")
            if not isinstance(self._plan.schema, dict) or self._plan.schema["type"] != "record":
                raise InvalidSchemaError(f"{record.__name__} is not a record")
            self._definition = self._plan.schema
            self._models = planner.models()
        elif isinstance(record, str | Mapping):
            self._definition = load(record)
            self._plan = Plan(self._definition, (object,))
        else:
            raise InvalidSchemaError(f"a class or an Avro schema is needed, not {record!r}")
        known = {
            ALWAYS_ALLOW_NULL: "true" if always_allow_null else "false",
            JSR310_CONVERSION_ENABLED: "false",
        }
        if record is not None and self._kind is not None and is_official(self._kind):
            known = {}
        text = json.dumps(self._definition, separators=(",", ":"), ensure_ascii=False)
        super().__init__(
            SchemaInfo(name, self._TYPE, text.encode(), {**known, **(properties or {})})
        )

    @property
    def definition(self) -> dict[str, object]:
        """The Avro schema."""
        found: dict[str, object] = load(self._info.schema)
        return found


class Avro(Described[T]):
    """Avro records of a dataclass, a msgspec struct, a pydantic model or an official client's
    `Record`; or values of an explicit Avro schema (a dict or its JSON), with dicts for records.

    `always_allow_null` makes every field except plain numbers and bools optional, which is the Java
    client's default. Messages are read with their writer's schema, resolved into this one. Raises
    InvalidSchemaError, and InvalidArgumentError if fastavro is missing.
    """

    _TYPE = SchemaType.AVRO

    @overload
    def __init__(
        self,
        record: type[T],
        *,
        always_allow_null: bool = ...,
        properties: Mapping[str, str] | None = ...,
        name: str = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: Avro[dict[str, object]],
        record: Definition,
        *,
        properties: Mapping[str, str] | None = ...,
        name: str = ...,
    ) -> None: ...

    def __init__(
        self,
        record: type[T] | Definition,
        *,
        always_allow_null: bool = False,
        properties: Mapping[str, str] | None = None,
        name: str = "",
    ) -> None:
        super().__init__(
            record, always_allow_null=always_allow_null, properties=properties, name=name
        )
        library = avro_library()
        self._parsed = parsed(self._definition)
        self._write = library.schemaless_writer
        self._out = self._plan.out
        self._back = self._plan.back
        self._decode = self._reading(self._definition, self._parsed, None)

    def encode(self, value: T) -> bytes:
        """The Avro bytes, without a header. Raises InvalidValueError."""
        buffer = io.BytesIO()
        out = self._out
        try:
            self._write(buffer, self._parsed, value if out is None else out(value))
        except Exception as error:
            raise self._explained(value, error) from error
        return buffer.getvalue()

    def _explained(self, value: T, error: Exception) -> InvalidValueError:
        if isinstance(error, InvalidValueError):
            return error
        try:
            plain = value if self._out is None else self._out(value)
            avro_library().validate(plain, self._parsed)
        except Exception as found:
            return InvalidValueError(f"the value doesn't fit the schema: {_plainly(found)}")
        return InvalidValueError(f"the value can't be written: {error}")

    def decode(self, data: bytes) -> T:
        """The value of Avro bytes. Raises UndecodableValueError."""
        return self._decode(data)

    def _reading(self, definition: object, writer: Any, reader: Any) -> Callable[[bytes], T]:
        read = avro_library().schemaless_reader
        back = self._back
        guard = guard_of(json.dumps(definition))

        def decode(data: bytes) -> T:
            try:
                if guard is not None:
                    guard(data)
                found = read(io.BytesIO(data), writer, reader, **_NAMED)
                value: T = found if back is None else back(found)
            except Exception as error:
                raise undecodable("Avro record", error or type(error).__name__) from error
            return value

        return decode

    @property
    def _wants_writer(self) -> bool:
        return True

    def _reader(self, writer: SchemaInfo | None, version: bytes | None = None) -> Reader[T]:
        if writer is None or writer.schema == self._info.schema:
            decode = self._decode
        elif writer.type is not SchemaType.AVRO:
            raise UndecodableValueError(f"it was written with a schema of type {writer.type.name}")
        else:
            named = renamed(load(writer.schema), self._definition)
            decode = self._reading(named, parsed(named), self._parsed)
        return lambda data, key: decode(data)


def _plainly(error: Exception) -> str:
    """fastavro's list of errors in one line."""
    return " ".join(str(error).replace("\n", " ").strip('[]" ').split()).replace('",', ";")


class Json(Described[T]):
    """JSON objects of the same classes, or of an explicit Avro schema. As in the Java client, enums
    are names, bytes are Base64. Missing fields are None if that is allowed.
    """

    _TYPE = SchemaType.JSON

    @overload
    def __init__(
        self,
        record: type[T],
        *,
        always_allow_null: bool = ...,
        properties: Mapping[str, str] | None = ...,
        name: str = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: Json[dict[str, object]],
        record: Definition,
        *,
        properties: Mapping[str, str] | None = ...,
        name: str = ...,
    ) -> None: ...

    def __init__(
        self,
        record: type[T] | Definition,
        *,
        always_allow_null: bool = False,
        properties: Mapping[str, str] | None = None,
        name: str = "",
    ) -> None:
        super().__init__(
            record, always_allow_null=always_allow_null, properties=properties, name=name
        )
        self._encoder = msgspec.json.Encoder()
        plan, kind = self._plan, self._kind
        exact = kind is not None and plan.is_exact
        self._check = Sizes(self._definition).checked if kind is None else plan.out
        self._changes = not exact
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind if exact else Any)
        self._back = None if exact else plan.back
        self._fields = _Filling(self._definition, self._models)

    def encode(self, value: T) -> bytes:
        """The JSON, without white space. Raises InvalidValueError."""
        check = self._check
        try:
            plain = value if check is None else check(value)
            return self._encoder.encode(plain if self._changes else value)
        except InvalidValueError:
            raise
        except Exception as error:
            raise InvalidValueError(f"the value can't be written: {error}") from error

    def decode(self, data: bytes) -> T:
        """The value of JSON. Raises UndecodableValueError."""
        try:
            if self._back is None:
                decoded: T = self._decoder.decode(data)
                return decoded
        except msgspec.ValidationError:
            # Perhaps only optional fields are missing: the Java client omits nulls.
            pass
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise undecodable("JSON object", error) from error
        try:
            found: Any = self._fields.fill(msgspec.json.decode(data))
            if self._back is not None:
                found = self._back(found)
            elif self._kind is not None:
                found = msgspec.convert(found, self._kind)
        except Exception as error:
            raise undecodable("JSON object", error or type(error).__name__) from error
        filled: T = found
        return filled


class _Filling:
    """Adds missing fields to JSON objects, with the schema's defaults; but not to those of pydantic
    models, which know their defaults, and what to do with other fields.
    """

    def __init__(self, definition: Any, models: frozenset[str]) -> None:
        self._definition = definition
        self._models = models
        self._known: dict[str, Any] = {}
        self._learn(definition)

    def _learn(self, schema: Any) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._learn(each)
        elif isinstance(schema, dict):
            if schema.get("type") == "record":
                self._known[schema["name"]] = schema
                for field in schema["fields"]:
                    self._learn(field["type"])
            else:
                for part in ("type", "items", "values"):
                    self._learn(schema.get(part))

    def fill(self, value: Any) -> Any:
        """The value with the missing fields. Raises InvalidArgumentError if it is no object."""
        if self._known and not isinstance(value, dict):
            raise InvalidArgumentError(f"an object is needed, not {value!r}")
        return self._filled(value, self._definition)

    def _filled(self, value: Any, schema: Any) -> Any:
        if isinstance(schema, list):
            real = [each for each in schema if each != "null"]
            return self._filled(value, real[0]) if len(real) == 1 else value
        if isinstance(schema, str):
            schema = self._known.get(schema.rpartition(".")[2], schema)
        if not isinstance(schema, dict):
            return value
        kind = schema["type"]
        if kind == "record" and isinstance(value, dict):
            is_model = schema["name"] in self._models
            made: dict[str, Any] = dict(value) if is_model else {}
            for field in schema["fields"]:
                name = field["name"]
                if name in value:
                    made[name] = self._filled(value[name], field["type"])
                elif is_model:
                    continue
                elif isinstance(field["type"], list) and "null" in field["type"]:
                    made[name] = field.get("default")
                elif "default" in field:
                    made[name] = field["default"]
            return made
        if kind == "array" and isinstance(value, list):
            return [self._filled(each, schema["items"]) for each in value]
        if kind == "map" and isinstance(value, dict):
            return {key: self._filled(each, schema["values"]) for key, each in value.items()}
        return value
