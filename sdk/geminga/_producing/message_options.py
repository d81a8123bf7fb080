"""Checks of a send's arguments (spec SDK-09). Pure except for the wall clock."""

from __future__ import annotations

import binascii
import datetime
from collections.abc import Mapping, Sequence
from typing import TypedDict

from geminga._entries.encode import LOCAL_CLUSTER_ONLY, Extras
from geminga.errors import InvalidArgumentError
from geminga_runtime.clock import wall_clock_ms

SEQUENCE_ID_MAX = (1 << 63) - 1
"""Sequence ids and times are signed in Java's clients and broker, though not on the wire."""


class MessageKeywords(TypedDict, total=False):
    """A message's options beside its payload. Times are in ms since 1970. A `partition_key` of
    bytes is sent as the Java client's `keyBytes`: in Base64, marked as such.
    """

    properties: Mapping[str, str] | None
    partition_key: str | bytes | None
    ordering_key: bytes | str | None
    event_time_ms: int | None
    deliver_at_ms: int | None
    deliver_after: datetime.timedelta | None
    replication_clusters: Sequence[str] | None
    disable_replication: bool


def payload_of(data: object, sequence_id: object) -> bytes:
    """The payload as bytes. Raises InvalidArgumentError, naming the argument."""
    if sequence_id is not None:
        _whole("sequence_id", "a number", sequence_id)
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    hint = "; encode the text first" if isinstance(data, str) else ""
    raise InvalidArgumentError(f"data must be bytes, not {type(data).__name__}{hint}")


def extras_of(described: MessageKeywords) -> Extras:
    """Check a message's options. Raises InvalidArgumentError, naming the argument."""
    unknown = described.keys() - MessageKeywords.__annotations__.keys()
    if unknown:
        known = ", ".join(sorted(MessageKeywords.__annotations__))
        raise InvalidArgumentError(f"unknown argument {sorted(unknown)[0]!r}; known are {known}")
    ordering_key = described.get("ordering_key")
    if isinstance(ordering_key, str):
        ordering_key = _encoded("ordering_key", ordering_key)
    elif ordering_key is not None and not isinstance(ordering_key, bytes):
        raise InvalidArgumentError(f"ordering_key must be bytes or a text, not {ordering_key!r}")
    key = described.get("partition_key")
    is_base64 = isinstance(key, bytes)
    return Extras(
        _properties(described.get("properties")),
        binascii.b2a_base64(key, newline=False).decode() if isinstance(key, bytes) else _text(key),
        ordering_key,
        _time_ms("event_time_ms", described.get("event_time_ms")),
        _deliver_at_ms(described),
        _clusters(described),
        key_is_base64=is_base64,
    )


def _properties(given: object) -> Mapping[str, str] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"properties must be a mapping, not {given!r}")
    # A copy: the message is encoded later, and the program may change its own meanwhile.
    taken = dict(given.items())
    for key, value in taken.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(f"properties must be texts, not {key!r}: {value!r}")
        _encoded("properties", key + value)
    return taken


def _text(key: object) -> str | None:
    if key is not None:
        if not isinstance(key, str):
            raise InvalidArgumentError(f"partition_key must be a text or bytes, not {key!r}")
        _encoded("partition_key", key)
    return key


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{name} can't be encoded: {error}") from error


def _clusters(described: MessageKeywords) -> tuple[str, ...]:
    disabled: object = described.get("disable_replication", False)
    if not isinstance(disabled, bool):
        raise InvalidArgumentError(f"disable_replication must be True or False, not {disabled!r}")
    given: object = described.get("replication_clusters")
    if given is None:
        return LOCAL_CLUSTER_ONLY if disabled else ()
    if disabled:
        raise InvalidArgumentError(
            "replication_clusters and disable_replication can't both be given"
        )
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidArgumentError(
            f"replication_clusters must be a sequence of texts, not {given!r}"
        )
    for each in given:
        if not isinstance(each, str) or not each:
            raise InvalidArgumentError(f"replication_clusters must be names, not {each!r}")
    return tuple(given)


def _deliver_at_ms(described: MessageKeywords) -> int | None:
    after: object = described.get("deliver_after")
    if after is None:
        return _time_ms("deliver_at_ms", described.get("deliver_at_ms"))
    if described.get("deliver_at_ms") is not None:
        raise InvalidArgumentError("deliver_at_ms and deliver_after can't both be given")
    if not isinstance(after, datetime.timedelta) or after < datetime.timedelta(0):
        raise InvalidArgumentError(f"deliver_after must be a timedelta from 0 on, not {after!r}")
    now_ms = wall_clock_ms()
    return now_ms + int(after / datetime.timedelta(milliseconds=1))


def _time_ms(name: str, value: object) -> int | None:
    return None if value is None else _whole(name, "ms since 1970", value)


def _whole(name: str, what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= SEQUENCE_ID_MAX:
        raise InvalidArgumentError(f"{name} must be {what} from 0 to 2^63 - 1, not {value!r}")
    return value
