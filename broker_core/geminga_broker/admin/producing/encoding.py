"""Texts of JSON requests as a schema's bytes (spec OP-03, BR-51; Apache's
`TopicsBase.encodeWithSchema` and its client's schemas). Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time

import msgspec

from geminga_broker.admin.producing.avro_json import AvroWriter
from geminga_broker.schema.model import SchemaData
from geminga_protocol.avro_schema import AvroSchemaError, parse_avro
from geminga_protocol.schema_type import SchemaType
from geminga_runtime.json_text import read_json

_Encode = Callable[[str], bytes]
_EPOCH = date(1970, 1, 1).toordinal()
_LONG = struct.Struct(">q")


class Unencodable(ValueError):
    """The text is no value of the schema; its own text says why."""


Encode = Callable[[str | None], bytes]
"""A text's bytes. Raises Unencodable."""

ERROR_CHARS_MAX = 200
"""Of what is told about one message: it may repeat a value, and each message has an error."""


def encoder_of(schema: SchemaData) -> Encode:
    """What turns texts to values of the schema, which is parsed once. Work and result are linear in
    the text.
    """
    kind = schema.type.name
    try:
        encode = _avro(schema) if schema.type is SchemaType.AVRO else _BY_TYPE.get(schema.type)
    except AvroSchemaError as error:
        return _never(f"the AVRO schema is not valid: {error}")
    if encode is None:
        return _never(f"schemas of type {kind} can't be written over REST")

    def encoded(text: str | None) -> bytes:
        if text is None:
            raise Unencodable(f"there is no payload for the schema of type {kind}")
        try:
            return encode(text)
        except Exception as error:
            # Whatever a text can have that its schema hasn't: the client's fault.
            told = str(error)[:ERROR_CHARS_MAX]
            raise Unencodable(f"not a value of the {kind} schema: {told}") from error

    return encoded


def _never(why: str) -> Encode:
    def refuse(_text: str | None) -> bytes:
        raise Unencodable(why[:ERROR_CHARS_MAX])

    return refuse


def _packed(layout: str, read: Callable[[str], object]) -> _Encode:
    form = struct.Struct(layout)
    return lambda text: form.pack(read(text))


def _plain(text: str) -> bytes:
    return text.encode()


def _boolean(text: str) -> bytes:
    return b"\1" if text.lower() == "true" else b"\0"


def _instant(text: str) -> bytes:
    """`2026-01-31T10:20:30.123456789Z`: seconds and nanoseconds."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return struct.pack(">qi", seconds, _nanos(fraction))


def _nanos(fraction: str) -> int:
    return int(fraction.ljust(9, "0")[:9]) if fraction else 0


def _date(text: str) -> bytes:
    """`Jan 31, 2026`: milliseconds of the day's beginning, in UTC."""
    day = datetime.strptime(text, "%b %d, %Y").replace(tzinfo=UTC)
    return _LONG.pack(int(day.timestamp() * 1000))


def _days(text: str) -> int:
    return date.fromisoformat(text).toordinal() - _EPOCH


def _nanos_of_day(text: str) -> int:
    whole, _, fraction = text.partition(".")
    at = time.fromisoformat(whole)
    return (at.hour * 3600 + at.minute * 60 + at.second) * 10**9 + _nanos(fraction)


def _local_date_time(text: str) -> bytes:
    day, _, at = text.partition("T")
    return struct.pack(">qq", _days(day), _nanos_of_day(at))


def _value(text: str) -> object:
    """Of JSON. Raises BadJson. (Python's own reader and writer need ten times as long
    for numbers, in which no other thread runs, and know numbers that JSON can't say.)
    """
    return read_json(text, object)


def _json(text: str) -> bytes:
    return msgspec.json.encode(_value(text))


def _avro(schema: SchemaData) -> _Encode:
    """Avro's own JSON form, where a union's value names its branch. Raises AvroSchemaError."""
    try:
        writer = AvroWriter(parse_avro(schema.data.decode()).root)
    except UnicodeDecodeError as error:
        raise AvroSchemaError(str(error)) from None
    return lambda text: writer.encode(_value(text))


_BY_TYPE: Mapping[SchemaType, _Encode] = {
    SchemaType.BYTES: _plain,
    SchemaType.NONE: _plain,
    SchemaType.STRING: _plain,
    SchemaType.BOOLEAN: _boolean,
    SchemaType.INT8: _packed(">b", int),
    SchemaType.INT16: _packed(">h", int),
    SchemaType.INT32: _packed(">i", int),
    SchemaType.INT64: _packed(">q", int),
    SchemaType.FLOAT: _packed(">f", float),
    SchemaType.DOUBLE: _packed(">d", float),
    SchemaType.DATE: _date,
    SchemaType.TIME: _packed(">q", int),
    SchemaType.TIMESTAMP: _packed(">q", int),
    SchemaType.INSTANT: _instant,
    SchemaType.LOCAL_DATE: _packed(">q", _days),
    SchemaType.LOCAL_TIME: _packed(">q", _nanos_of_day),
    SchemaType.LOCAL_DATE_TIME: _local_date_time,
    SchemaType.JSON: _json,
}
