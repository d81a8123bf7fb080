"""Limits of names and properties (spec PR-16).

Apache's broker accepts all that fits into a frame. But names are stored in metadata and repeated in
`/metrics`, `/stats` and logs, where long ones cost all readers.
"""

from __future__ import annotations

from collections.abc import Iterable

from geminga_broker.errors import BrokerError
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import PARTITION_SUFFIX, TopicName

TOPIC_BYTES_MAX = 2048
"""A topic's full name, in UTF-8."""

NAME_BYTES_MAX = 1024
"""Names of subscriptions, producers, consumers and namespaces, in UTF-8."""

ENTITY_BYTES_MAX = 512
"""Name of a tenant, a cluster, or a namespace without its tenant."""

PROPERTIES_MAX = 1000
"""Pairs of one set of properties."""

PROPERTIES_BYTES_MAX = 64 * 1024
"""All keys and values of a set of properties, in UTF-8."""

SCHEMA_BYTES_MAX = 1 << 20
"""A schema's definition."""

PARTITIONS_MAX = 10_000
"""Partitions of a topic where `maxNumPartitionsPerPartitionedTopic` sets no limit: each is a record
that is made, and a part of every call on the topic.
"""

_PARTITION_BYTES = len(f"{PARTITION_SUFFIX}{(1 << 31) - 1}")


def is_longer(text: str, bytes_max: int) -> bool:
    """Whether the text has more bytes in UTF-8; a very long one is not encoded."""
    return len(text) > bytes_max or (
        len(text) > bytes_max // 4 and len(text.encode("utf-8", "replace")) > bytes_max
    )


def check_text(
    what: str, text: str, bytes_max: int, code: ServerError = ServerError.NotAllowedError
) -> None:
    """Raises BrokerError with that code if the text is too long."""
    if is_longer(text, bytes_max):
        raise BrokerError(code, f"The {what} is longer than {bytes_max} bytes")


def check_topic(name: str) -> None:
    """Raises BrokerError InvalidTopicName if it is too long."""
    check_text("topic name", name, TOPIC_BYTES_MAX, ServerError.InvalidTopicName)


def check_partitioned(topic: TopicName) -> None:
    """Raises BrokerError InvalidTopicName if the partitions' names may be too long."""
    limit = TOPIC_BYTES_MAX - _PARTITION_BYTES
    check_text("partitioned topic's name", str(topic), limit, ServerError.InvalidTopicName)


def check_subscription(name: str) -> None:
    """Raises BrokerError NotAllowedError if it is too long."""
    check_text("subscription name", name, NAME_BYTES_MAX)


def check_properties(what: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Raises BrokerError NotAllowedError if there are too many or they are too long."""
    size = 0
    for count, (key, value) in enumerate(pairs, 1):
        size += len(key.encode("utf-8", "replace")) + len(value.encode("utf-8", "replace"))
        if count > PROPERTIES_MAX or size > PROPERTIES_BYTES_MAX:
            text = f"{what}: more than {PROPERTIES_MAX} pairs or {PROPERTIES_BYTES_MAX} bytes"
            raise BrokerError(ServerError.NotAllowedError, text)
