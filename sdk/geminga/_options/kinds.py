"""Enums of producers' options; public in `geminga.options`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass


class CompressionType(enum.IntEnum):
    """Compression of payloads; the values are the wire's."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


class ProducerAccessMode(enum.IntEnum):
    """Access of other producers to the topic (PIP-68); the values are the wire's."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class RoutingMode(enum.Enum):
    """Partition of a message without a key (MessageRoutingMode)."""

    ROUND_ROBIN = "round-robin"
    SINGLE_PARTITION = "single-partition"


class BatchingType(enum.Enum):
    """Messages of a batch (BatcherBuilder): any, or those of one key."""

    DEFAULT = "default"
    KEY_BASED = "key-based"


class HashingScheme(enum.Enum):
    """Hash of a key for its partition (HashingScheme); clients of a topic must agree. BOOST_HASH is
    the default of the official C++ and Python clients.
    """

    JAVA_STRING_HASH = "java-string-hash"
    MURMUR3_32 = "murmur3-32"
    BOOST_HASH = "boost-hash"


@dataclass(frozen=True, slots=True)
class RoutedMessage:
    """A message, as passed to a custom router; a key given as bytes is in Base64."""

    data: bytes
    partition_key: str | None
    ordering_key: bytes | None
    properties: Mapping[str, str]


MessageRouter = Callable[[RoutedMessage, int], int]
"""(message, number of partitions) -> partition."""
