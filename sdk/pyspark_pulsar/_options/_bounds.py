"""Where reading starts and ends (spec SP-01): `startingOffsets`, `endingOffsets` and their
timestamps, for all topics or for each.
"""

from __future__ import annotations

import base64
import binascii
import enum
from dataclasses import dataclass

import geminga
from pyspark_pulsar._options._parser import OptionParser, json_object
from pyspark_pulsar._positions import ID_MAX, Position
from pyspark_pulsar.errors import InvalidOption

TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999, in ms since 1970."""
_FORMS = (
    '"earliest", "latest", "ledger:entry" or "ledger:entry:batch", a message id\'s bytes as a list '
    "of numbers or as base64"
)


class Edge(enum.Enum):
    """The ends of a topic."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message published at this time (ms since 1970) or later, as the broker's search
    finds it.
    """

    time_ms: int


Where = Edge | Position | AtTime


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a read. `option` is the name that the user gave it; `per_topic` has full or short
    names of topics or partitions, all others have `default`.
    """

    option: str
    default: Where
    per_topic: tuple[tuple[str, Where], ...] = ()


def parse_start(parser: OptionParser, *, streaming: bool) -> Bound:
    """The start; by default the earliest for a batch, the latest for a stream. Raises
    InvalidOption.
    """
    default = Edge.LATEST if streaming else Edge.EARLIEST
    found = _parse(
        parser,
        ("startingOffsets",),
        ("startingTimestamp", "startingTime", "startingOffsetsByTimestamp"),
        default,
    )
    if not streaming and Edge.LATEST in (found.default, *(each for _, each in found.per_topic)):
        raise InvalidOption(found.option, "can't be latest in a batch read: there is nothing after")
    return found


def parse_end(parser: OptionParser) -> Bound:
    """The end of a batch, inclusive except for a timestamp; by default the latest. Raises
    InvalidOption.
    """
    found = _parse(
        parser,
        ("endingOffsets",),
        ("endingTimestamp", "endingTime", "endingOffsetsByTimestamp"),
        Edge.LATEST,
    )
    if Edge.EARLIEST in (found.default, *(each for _, each in found.per_topic)):
        raise InvalidOption(found.option, "can't be earliest: there is nothing before")
    return found


def _parse(
    parser: OptionParser, by_id: tuple[str, ...], by_time: tuple[str, ...], default: Edge
) -> Bound:
    offsets = parser.filled(*by_id)
    times = parser.filled(*by_time)
    if offsets is not None and times is not None:
        raise parser.fault(by_time[0], f"can't be given together with {parser.name_of(by_id[0])}")
    if offsets is not None:
        return _of_offsets(parser.name_of(by_id[0]), offsets.strip(), default)
    if times is not None:
        return _of_times(parser.name_of(by_time[0]), times.strip(), default)
    return Bound(by_id[0], default)


def _of_offsets(option: str, text: str, default: Edge) -> Bound:
    if text.lower() in ("earliest", "latest"):
        return Bound(option, Edge(text.lower()))
    if not text.startswith("{"):
        raise InvalidOption(
            option, f"must be earliest, latest or a JSON object of topics, not {text!r}"
        )
    topics = json_object(option, text)
    places = tuple((name, _where(option, name, value)) for name, value in topics.items())
    return Bound(option, default, places)


def _of_times(option: str, text: str, default: Edge) -> Bound:
    if not text.startswith("{"):
        return Bound(option, _time(option, text))
    topics = json_object(option, text)
    places = tuple((name, _time(option, value, name)) for name, value in topics.items())
    return Bound(option, default, places)


def _time(option: str, value: object, topic: str = "") -> AtTime:
    of = f" of topic {topic}" if topic else ""
    if isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) < 17:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= TIME_MS_MAX:
        raise InvalidOption(option, f"the time{of} must be ms since 1970, not {value!r}")
    return AtTime(value)


def _where(option: str, topic: str, value: object) -> Where:
    """The bound in one topic's JSON value: in this connector's forms, or bytes as for the JVM
    connector.
    """
    if isinstance(value, str):
        if value.lower() in ("earliest", "latest"):
            return Edge(value.lower())
        if ":" in value:
            try:
                return _placed(option, topic, Position.parse(value))
            except ValueError as error:
                raise InvalidOption(option, f"topic {topic}: {error}") from None
        try:
            return _from_bytes(option, topic, base64.b64decode(value, validate=True))
        except binascii.Error:
            raise InvalidOption(option, f"topic {topic}: must be {_FORMS}, not {value!r}") from None
    if isinstance(value, list) and value and all(_is_byte(each) for each in value):
        return _from_bytes(option, topic, bytes(each & 0xFF for each in value))
    raise InvalidOption(option, f"topic {topic}: must be {_FORMS}, not {value!r}")


def _is_byte(value: object) -> bool:
    """Java's bytes are signed, others' aren't."""
    return isinstance(value, int) and not isinstance(value, bool) and -128 <= value <= 255


def _from_bytes(option: str, topic: str, data: bytes) -> Where:
    try:
        found = geminga.MessageId.deserialize(data)
    except Exception as error:
        raise InvalidOption(option, f"topic {topic}: not a message id: {error}") from None
    place = Position(found.ledger_id, found.entry_id, max(found.batch_index, -1))
    return _placed(option, topic, place)


def _placed(option: str, topic: str, place: Position) -> Where:
    """Java's constants are the ends; no other id is negative."""
    if place[:2] == (-1, -1):
        return Edge.EARLIEST
    if place[:2] == (ID_MAX, ID_MAX):
        return Edge.LATEST
    if min(place[:2]) < 0:
        raise InvalidOption(option, f"topic {topic}: {place} is not a message id")
    return place
