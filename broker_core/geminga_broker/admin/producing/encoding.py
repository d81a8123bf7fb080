"""Texts of JSON requests as a schema's bytes (spec OP-03, BR-51; Apache's
`TopicsBase.encodeWithSchema` and its client's schemas). Pure.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from typing import cast

from geminga_broker.schema.model import SchemaData
from geminga_protocol.schema_type import SchemaType

_EPOCH = date(1970, 1, 1).toordinal()
_LONG = struct.Struct(">q")


class Unencodable(ValueError):
    """The text is no value of the schema; its own text says why."""


def encoded(text: str | None, schema: SchemaData) -> bytes:
    """The text in the schema's form. Raises Unencodable."""
    encode = _BY_TYPE.get(schema.type)
    if encode is None:
        raise Unencodable(f"schemas of type {schema.type.name} can't be written over REST")
    if text is None:
        raise Unencodable(f"there is no payload for the schema of type {schema.type.name}")
    try:
        return encode(text, schema)
    except Exception as error:
        # Whatever Avro finds wrong with a schema or a value: the client's fault.
        raise Unencodable(f"not a value of the {schema.type.name} schema: {error}") from error


def _packed(layout: str, read: Callable[[str], object]) -> Callable[[str, SchemaData], bytes]:
    form = struct.Struct(layout)
    return lambda text, _schema: form.pack(read(text))


def _plain(text: str, _schema: SchemaData) -> bytes:
    return text.encode()


def _boolean(text: str, _schema: SchemaData) -> bytes:
    return b"\1" if text.lower() == "true" else b"\0"


def _instant(text: str, _schema: SchemaData) -> bytes:
    """`2026-01-31T10:20:30.123456789Z`: seconds and nanoseconds."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return struct.pack(">qi", seconds, _nanos(fraction))


def _nanos(fraction: str) -> int:
    return int(fraction.ljust(9, "0")[:9]) if fraction else 0


def _date(text: str, _schema: SchemaData) -> bytes:
    """`Jan 31, 2026`: milliseconds of the day's beginning, in UTC."""
    day = datetime.strptime(text, "%b %d, %Y").replace(tzinfo=UTC)
    return _LONG.pack(int(day.timestamp() * 1000))


def _days(text: str) -> int:
    return date.fromisoformat(text).toordinal() - _EPOCH


def _nanos_of_day(text: str) -> int:
    whole, _, fraction = text.partition(".")
    at = time.fromisoformat(whole)
    return (at.hour * 3600 + at.minute * 60 + at.second) * 10**9 + _nanos(fraction)


def _local_date_time(text: str, _schema: SchemaData) -> bytes:
    day, _, at = text.partition("T")
    return struct.pack(">qq", _days(day), _nanos_of_day(at))


def _json(text: str, _schema: SchemaData) -> bytes:
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode()


def _avro(text: str, schema: SchemaData) -> bytes:
    """Avro's own JSON form, where a union's value names its branch."""
    from fastavro import json_reader, parse_schema, schemaless_writer

    parsed = parse_schema(json.loads(schema.data))
    # The reader takes a line for each record.
    [record] = json_reader(io.StringIO(json.dumps(json.loads(text))), parsed)
    out = io.BytesIO()
    schemaless_writer(out, parsed, cast("dict[str, object]", record))
    return out.getvalue()


_BY_TYPE: Mapping[SchemaType, Callable[[str, SchemaData], bytes]] = {
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
    SchemaType.AVRO: _avro,
}
