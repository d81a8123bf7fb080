"""A message's payload and options, the same for both faces."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from geminga.producer import MessageKeywords
from geminga.pulsar._checks import Kinds, check_all, check_texts, check_type
from geminga.pulsar.schema.schema import Schema

_KINDS: Kinds = {
    "properties": (dict, True),
    "partition_key": (str, True),
    "ordering_key": (str, True),
    "sequence_id": (int, True),
    "replication_clusters": (list, True),
    "disable_replication": (bool, True),
    "event_timestamp": (int, True),
    "deliver_at": (int, True),
    "deliver_after": (timedelta, True),
}


def outgoing(
    schema: Schema, content: object, given: dict[str, Any]
) -> tuple[bytes | None, int | None, MessageKeywords]:
    """Payload, sequence id and options. As in the official client, an empty text and 0 count as not
    given, and of two contradictory options the last one counts. Raises ValueError, TypeError.
    """
    data: bytes | None = None
    if content is not None:
        data = schema.encode(content)
        check_type(bytes, data, "data")
    check_all(_KINDS, given)
    check_texts(given["properties"], "properties")
    if (given["sequence_id"] or 0) < 0:
        raise ValueError("sequence_id must not be below 0")
    described: MessageKeywords = {}
    if given["properties"]:
        described["properties"] = given["properties"]
    if given["partition_key"]:
        described["partition_key"] = given["partition_key"]
    if given["ordering_key"]:
        described["ordering_key"] = given["ordering_key"]
    if given["event_timestamp"]:
        described["event_time_ms"] = given["event_timestamp"]
    if given["disable_replication"]:
        described["disable_replication"] = True
    elif given["replication_clusters"]:
        described["replication_clusters"] = given["replication_clusters"]
    if given["deliver_after"]:
        described["deliver_after"] = given["deliver_after"]
    elif given["deliver_at"]:
        described["deliver_at_ms"] = given["deliver_at"]
    return data, given["sequence_id"] or None, described
