"""Options of writing pairs of a key and a value (spec SP-06)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pyspark_pulsar._options._parser import OptionParser

_NAMES = ("keyValueEncoding", "keySchemaType", "valueSchemaType")


class PairEncoding(enum.Enum):
    """Where the key of a pair is stored (KeyValueEncodingType of the Java client)."""

    INLINE = "INLINE"
    """In the payload, before the value."""
    SEPARATED = "SEPARATED"
    """As the message's key."""


class HalfChoice(enum.Enum):
    """The schema of a key or value: by its column (AUTO), or one of these."""

    AUTO = "auto"
    AVRO = "avro"
    JSON = "json"
    BYTES = "bytes"
    STRING = "string"


@dataclass(frozen=True)
class PairChoice:
    """How pairs are written to a topic whose schema comes from the columns."""

    encoding: PairEncoding | None = None
    """None: the topic's encoding, or inline if it has none."""
    key: HalfChoice = HalfChoice.AUTO
    value: HalfChoice = HalfChoice.AUTO


def parse_pair(parser: OptionParser, *, is_wanted: bool) -> PairChoice:
    """The options of pairs. Raises InvalidOption, also if some are given though pairs aren't
    wanted.
    """
    if not is_wanted:
        parser.not_here("needs schemaType=keyvalue", *_NAMES)
        return PairChoice()
    encoding, key, value = _NAMES
    return PairChoice(
        parser.choice(encoding, kind=PairEncoding, default=None),
        parser.choice(key, kind=HalfChoice, default=HalfChoice.AUTO),
        parser.choice(value, kind=HalfChoice, default=HalfChoice.AUTO),
    )
