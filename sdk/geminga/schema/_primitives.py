"""Schemas of single values (spec SDK-41; BooleanSchema, IntSchema... of the Java client, whose
encodings are big-endian).
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from typing import Any, ClassVar

from geminga.errors import InvalidValueError
from geminga.schema._base import Schema, T, undecodable
from geminga.schema._info import PLAIN_BYTES, SchemaInfo
from geminga_protocol.schema_type import SchemaType

UTC = datetime.timezone.utc  # noqa: UP017
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
MILLISECOND = datetime.timedelta(milliseconds=1)
MICROSECOND = datetime.timedelta(microseconds=1)
DAY_MS = 86_400_000


class Bytes(Schema[bytes]):
    """Unchanged payloads; the topic gets no schema."""

    def __init__(self) -> None:
        super().__init__(PLAIN_BYTES)

    def encode(self, value: bytes) -> bytes:
        """The same bytes."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise _wrong(self, "bytes", value)
        return bytes(value)

    def decode(self, data: bytes) -> bytes:
        """The same bytes."""
        return data


class String(Schema[str]):
    """Texts, as UTF-8."""

    def __init__(self) -> None:
        super().__init__(SchemaInfo("String", SchemaType.STRING))

    def encode(self, value: str) -> bytes:
        """The text's UTF-8."""
        if not isinstance(value, str):
            raise _wrong(self, "a text", value)
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidValueError(f"String: {error}") from error

    def decode(self, data: bytes) -> str:
        """The text."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise undecodable("text", error) from error


class Fixed(Schema[T]):
    """A value of fixed size."""

    _TYPE: ClassVar[SchemaType]
    _NAME: ClassVar[str]
    _LAYOUT: ClassVar[struct.Struct]

    def __init__(self) -> None:
        super().__init__(SchemaInfo(self._NAME, self._TYPE))

    def encode(self, value: T) -> bytes:
        """The value, big-endian."""
        try:
            return self._LAYOUT.pack(*self._parts(value))
        except struct.error as error:
            raise InvalidValueError(f"{self._NAME}: {value!r}: {error}") from error

    def decode(self, data: bytes) -> T:
        """The value."""
        if len(data) != self._LAYOUT.size:
            raise undecodable(self._NAME, f"{len(data)} bytes instead of {self._LAYOUT.size}")
        try:
            return self._value(*self._LAYOUT.unpack(data))
        except (ValueError, OverflowError) as error:
            raise undecodable(self._NAME, error) from error

    def _parts(self, value: T) -> tuple[object, ...]:
        raise _wrong(self, self._NAME, value)

    def _value(self, *parts: int) -> T:
        value: T = parts[0]  # type: ignore[assignment]
        return value


class Boolean(Fixed[bool]):
    """True or False, one byte."""

    _TYPE = SchemaType.BOOLEAN
    _NAME = "Boolean"
    _LAYOUT = struct.Struct(">B")

    def _parts(self, value: bool) -> tuple[object, ...]:
        if not isinstance(value, bool):
            raise _wrong(self, "True or False", value)
        return (value,)

    def _value(self, *parts: int) -> bool:
        return parts[0] != 0


class Whole(Fixed[int]):
    """A whole number."""

    def _parts(self, value: int) -> tuple[object, ...]:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(self, "a whole number", value)
        return (value,)


class Int8(Whole):
    """A whole number from -2^7 to 2^7 - 1."""

    _TYPE = SchemaType.INT8
    _NAME = "INT8"
    _LAYOUT = struct.Struct(">b")


class Int16(Whole):
    """A whole number from -2^15 to 2^15 - 1."""

    _TYPE = SchemaType.INT16
    _NAME = "INT16"
    _LAYOUT = struct.Struct(">h")


class Int32(Whole):
    """A whole number from -2^31 to 2^31 - 1."""

    _TYPE = SchemaType.INT32
    _NAME = "INT32"
    _LAYOUT = struct.Struct(">i")


class Int64(Whole):
    """A whole number from -2^63 to 2^63 - 1."""

    _TYPE = SchemaType.INT64
    _NAME = "INT64"
    _LAYOUT = struct.Struct(">q")


class Real(Fixed[float]):
    """A number."""

    def _parts(self, value: float) -> tuple[object, ...]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(self, "a number", value)
        return (value,)

    def encode(self, value: float) -> bytes:
        """The value, IEEE 754, big-endian."""
        try:
            return super().encode(value)
        except OverflowError as error:
            raise InvalidValueError(f"{self._NAME}: {value!r}: {error}") from error


class Float(Real):
    """A number of 32 bits."""

    _TYPE = SchemaType.FLOAT
    _NAME = "Float"
    _LAYOUT = struct.Struct(">f")


class Double(Real):
    """A number of 64 bits."""

    _TYPE = SchemaType.DOUBLE
    _NAME = "Double"
    _LAYOUT = struct.Struct(">d")


class Timestamp(Fixed[datetime.datetime]):
    """A moment, truncated to milliseconds (java.sql.Timestamp). Values must have a time zone, and
    are read in UTC.
    """

    _TYPE = SchemaType.TIMESTAMP
    _NAME = "Timestamp"
    _LAYOUT = struct.Struct(">q")

    def _parts(self, value: datetime.datetime) -> tuple[object, ...]:
        return (_since_epoch(self, value) // MILLISECOND,)

    def _value(self, *parts: int) -> datetime.datetime:
        return EPOCH + datetime.timedelta(milliseconds=parts[0])


class Date(Timestamp):
    """A moment, truncated to milliseconds (java.util.Date)."""

    _TYPE = SchemaType.DATE
    _NAME = "Date"


class Time(Fixed[datetime.time]):
    """A time of day in milliseconds, in UTC (java.sql.Time)."""

    _TYPE = SchemaType.TIME
    _NAME = "Time"
    _LAYOUT = struct.Struct(">q")

    def _parts(self, value: datetime.time) -> tuple[object, ...]:
        return (_micros_of_day(self, value) // 1000,)

    def _value(self, *parts: int) -> datetime.time:
        return _time_of(parts[0] % DAY_MS * 1000)


class Instant(Fixed[datetime.datetime]):
    """A moment in seconds and nanoseconds; Python keeps microseconds. Values must have a time zone,
    and are read in UTC.
    """

    _TYPE = SchemaType.INSTANT
    _NAME = "Instant"
    _LAYOUT = struct.Struct(">qi")

    def _parts(self, value: datetime.datetime) -> tuple[object, ...]:
        seconds, micros = divmod(_since_epoch(self, value) // MICROSECOND, 1_000_000)
        return seconds, micros * 1000

    def _value(self, *parts: int) -> datetime.datetime:
        seconds, nanos = parts
        return EPOCH + datetime.timedelta(seconds=seconds, microseconds=nanos // 1000)


class LocalDate(Fixed[datetime.date]):
    """A day, as days since 1970."""

    _TYPE = SchemaType.LOCAL_DATE
    _NAME = "LocalDate"
    _LAYOUT = struct.Struct(">q")

    def _parts(self, value: datetime.date) -> tuple[object, ...]:
        if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
            raise _wrong(self, "a datetime.date", value)
        return (value.toordinal() - EPOCH_DAY,)

    def _value(self, *parts: int) -> datetime.date:
        return datetime.date.fromordinal(parts[0] + EPOCH_DAY)


class LocalTime(Fixed[datetime.time]):
    """A time of day in nanoseconds; Python keeps microseconds."""

    _TYPE = SchemaType.LOCAL_TIME
    _NAME = "LocalTime"
    _LAYOUT = struct.Struct(">q")

    def _parts(self, value: datetime.time) -> tuple[object, ...]:
        return (_micros_of_day(self, value) * 1000,)

    def _value(self, *parts: int) -> datetime.time:
        return _time_of(parts[0] // 1000)


class LocalDateTime(Fixed[datetime.datetime]):
    """A day and a time of day, without time zone."""

    _TYPE = SchemaType.LOCAL_DATE_TIME
    _NAME = "LocalDateTime"
    _LAYOUT = struct.Struct(">qq")

    def _parts(self, value: datetime.datetime) -> tuple[object, ...]:
        if not isinstance(value, datetime.datetime) or value.tzinfo is not None:
            raise _wrong(self, "a datetime without time zone", value)
        return value.toordinal() - EPOCH_DAY, _micros_of_day(self, value.time()) * 1000

    def _value(self, *parts: int) -> datetime.datetime:
        day, nanos = parts
        date = datetime.date.fromordinal(day + EPOCH_DAY)
        return datetime.datetime.combine(date, _time_of(nanos // 1000))


def _since_epoch(schema: Schema[datetime.datetime], value: object) -> datetime.timedelta:
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        raise _wrong(schema, "a datetime with a time zone", value)
    return value - EPOCH


def _micros_of_day(schema: Schema[T], value: object) -> int:
    if not isinstance(value, datetime.time) or value.tzinfo is not None:
        raise _wrong(schema, "a datetime.time without time zone", value)
    minutes = value.hour * 60 + value.minute
    return (minutes * 60 + value.second) * 1_000_000 + value.microsecond


def _time_of(micros: int) -> datetime.time:
    seconds, micros = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return datetime.time(hour, minute, second, micros)


def _wrong(schema: object, wanted: str, value: object) -> InvalidValueError:
    return InvalidValueError(f"{type(schema).__name__}: the value must be {wanted}, not {value!r}")


_FIXED: tuple[type[Fixed[Any]], ...] = (
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    Float,
    Double,
    Date,
    Time,
    Timestamp,
    Instant,
    LocalDate,
    LocalTime,
    LocalDateTime,
)
BY_TYPE: dict[SchemaType, Callable[[], Schema[Any]]] = {
    **{kind._TYPE: kind for kind in _FIXED},
    SchemaType.STRING: String,
    SchemaType.BYTES: Bytes,
    SchemaType.NONE: Bytes,
}
"""The schemas without a definition, by type."""
