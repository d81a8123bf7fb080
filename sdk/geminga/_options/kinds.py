"""Choices of producers; public in `geminga.options`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass


class CompressionType(enum.IntEnum):
    """How payloads are compressed; the values are the wire's."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


class ProducerAccessMode(enum.IntEnum):
    """Who else may produce to the topic (PIP-68); the values are the wire's."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class RoutingMode(enum.Enum):
    """Which partition a message without key goes to (MessageRoutingMode)."""

    ROUND_ROBIN = "round-robin"
    SINGLE_PARTITION = "single-partition"


class BatchingType(enum.Enum):
    """Which messages share a batch (BatcherBuilder): all, or those of one key."""

    DEFAULT = "default"
    KEY_BASED = "key-based"


class HashingScheme(enum.Enum):
    """How a key becomes a partition (HashingScheme); clients of one topic must agree."""

    JAVA_STRING_HASH = "java-string-hash"
    MURMUR3_32 = "murmur3-32"


@dataclass(frozen=True, slots=True)
class RoutedMessage:
    """What a custom router sees of a message; a key given as bytes is their Base64 text."""

    data: bytes
    partition_key: str | None
    ordering_key: bytes | None
    properties: Mapping[str, str]


MessageRouter = Callable[[RoutedMessage, int], int]
"""(message, number of partitions) -> partition."""
