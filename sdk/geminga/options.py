"""Options of client, producers, consumers and readers, with Pulsar's names and the Java client's
defaults.

Each set exists twice: as a frozen dataclass, which checks its values, and as a TypedDict that types
the keywords of the calls; a test holds them equal.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict, TypeVar

from geminga.errors import InvalidArgument

O = TypeVar("O")  # noqa: E741


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


class ConsumerType(enum.IntEnum):
    """How a subscription's messages are spread over its consumers; the values are the wire's."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3

    @property
    def is_shared(self) -> bool:
        """Whether single messages can be redelivered (Shared and Key_Shared)."""
        return self in (ConsumerType.SHARED, ConsumerType.KEY_SHARED)


class InitialPosition(enum.IntEnum):
    """Where a new subscription begins; the values are the wire's."""

    LATEST = 0
    EARLIEST = 1


class RoutingMode(enum.Enum):
    """Which partition a message without key goes to (MessageRoutingMode)."""

    ROUND_ROBIN = "round-robin"
    SINGLE_PARTITION = "single-partition"


class HashingScheme(enum.Enum):
    """How a key becomes a partition (HashingScheme); clients of one topic must agree."""

    JAVA_STRING_HASH = "java-string-hash"
    MURMUR3_32 = "murmur3-32"


@dataclass(frozen=True)
class MultiplierBackoff:
    """A delay that grows with each redelivery (MultiplierRedeliveryBackoff):
    `min_delay_s * multiplier ** redelivery_count`, at most `max_delay_s`.
    """

    min_delay_s: float = 1.0
    max_delay_s: float = 60.0
    multiplier: float = 2.0

    def delay_s(self, redelivery_count: int) -> float:
        """Seconds to wait before the next redelivery."""
        # Above 64 doublings every sensible maximum is passed; a float would overflow.
        power = self.multiplier ** min(redelivery_count, 64)
        return min(self.min_delay_s * power, self.max_delay_s)


@dataclass(frozen=True)
class KeySharedPolicy:
    """How Key_Shared spreads keys: split by the broker, or fixed `sticky_ranges` (both ends
    included, within 0..65535) of this consumer.
    """

    sticky_ranges: tuple[tuple[int, int], ...] = ()
    allow_out_of_order_delivery: bool = False

    def __post_init__(self) -> None:
        last = -1
        for start, end in sorted(self.sticky_ranges):
            if not 0 <= start <= end <= 65535:
                raise InvalidArgument(f"sticky_ranges: {start}..{end} is not within 0..65535")
            if start <= last:
                raise InvalidArgument(f"sticky_ranges: {start}..{end} overlaps another range")
            last = end


MessageRouter = Callable[["RoutedMessage", int], int]
"""(message, number of partitions) -> partition."""


@dataclass(frozen=True, slots=True)
class RoutedMessage:
    """What a custom router sees of a message."""

    data: bytes
    partition_key: str | None
    ordering_key: bytes | None
    properties: Mapping[str, str]


@dataclass(frozen=True)
class ClientOptions:
    """Options of `connect`."""

    operation_timeout_s: float = 30.0
    connection_timeout_s: float = 10.0
    connections_per_broker: int = 1
    keep_alive_interval_s: float = 30.0
    memory_limit_bytes: int = 64 * 1024 * 1024
    listener_name: str | None = None
    lookup_redirects_max: int = 20
    initial_backoff_s: float = 0.1
    max_backoff_s: float = 60.0

    def __post_init__(self) -> None:
        _positive(self, "operation_timeout_s", "connection_timeout_s", "connections_per_broker")
        _positive(self, "keep_alive_interval_s", "memory_limit_bytes")
        _positive(self, "initial_backoff_s", "max_backoff_s")
        _not_negative(self, "lookup_redirects_max")


class ClientKeywords(TypedDict, total=False):
    """Keywords of `connect`."""

    operation_timeout_s: float
    connection_timeout_s: float
    connections_per_broker: int
    keep_alive_interval_s: float
    memory_limit_bytes: int
    listener_name: str | None
    lookup_redirects_max: int
    initial_backoff_s: float
    max_backoff_s: float


@dataclass(frozen=True)
class ProducerOptions:
    """Options of `Client.create_producer`.

    `send_timeout_s=0` waits for ever. `max_pending_messages` is per partition. A batch is sent when
    it is full by count or bytes, when its delay passes, or at once when nothing else is in flight.
    `message_router` overrides `routing_mode`; `round_robin_partitions_max` keeps messages without
    key to that many partitions.
    """

    producer_name: str | None = None
    initial_sequence_id: int | None = None
    send_timeout_s: float = 30.0
    max_pending_messages: int = 50_000
    compression_type: CompressionType = CompressionType.NONE
    batching_enabled: bool = True
    batching_max_messages: int = 1000
    batching_max_bytes: int = 128 * 1024
    batching_max_publish_delay_s: float = 0.001
    routing_mode: RoutingMode = RoutingMode.ROUND_ROBIN
    round_robin_partitions_max: int | None = None
    message_router: MessageRouter | None = None
    hashing_scheme: HashingScheme = HashingScheme.JAVA_STRING_HASH
    access_mode: ProducerAccessMode = ProducerAccessMode.SHARED
    initial_subscription_name: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _not_negative(self, "send_timeout_s", "batching_max_publish_delay_s")
        _positive(self, "max_pending_messages", "batching_max_messages", "batching_max_bytes")
        if self.initial_sequence_id is not None:
            _not_negative(self, "initial_sequence_id")
        if self.round_robin_partitions_max is not None:
            _positive(self, "round_robin_partitions_max")
        _of_enum(self, "compression_type", CompressionType)
        _of_enum(self, "routing_mode", RoutingMode)
        _of_enum(self, "hashing_scheme", HashingScheme)
        _of_enum(self, "access_mode", ProducerAccessMode)
        _texts(self.properties, "properties")


class ProducerKeywords(TypedDict, total=False):
    """Keywords of `Client.create_producer`."""

    producer_name: str | None
    initial_sequence_id: int | None
    send_timeout_s: float
    max_pending_messages: int
    compression_type: CompressionType
    batching_enabled: bool
    batching_max_messages: int
    batching_max_bytes: int
    batching_max_publish_delay_s: float
    routing_mode: RoutingMode
    round_robin_partitions_max: int | None
    message_router: MessageRouter | None
    hashing_scheme: HashingScheme
    access_mode: ProducerAccessMode
    initial_subscription_name: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True)
class ConsumerOptions:
    """Options of `Client.subscribe`.

    `receiver_queue_size` messages are prefetched per partition, at most
    `receiver_queue_total_max` over all partitions; 0 fetches a message only when one is asked for.
    Acknowledgements are sent in groups: every `ack_grouping_time_s` (0: at once) or when
    `ack_grouping_max` have come together.
    """

    consumer_type: ConsumerType = ConsumerType.EXCLUSIVE
    initial_position: InitialPosition = InitialPosition.LATEST
    consumer_name: str | None = None
    receiver_queue_size: int = 1000
    receiver_queue_total_max: int = 50_000
    ack_grouping_time_s: float = 0.1
    ack_grouping_max: int = 1000
    ack_receipt_enabled: bool = False
    batch_index_ack_enabled: bool = False
    negative_ack_redelivery_delay_s: float = 60.0
    negative_ack_backoff: MultiplierBackoff | None = None
    priority_level: int = 0
    durable: bool = True
    start_message_id_inclusive: bool = False
    key_shared_policy: KeySharedPolicy | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _not_negative(self, "receiver_queue_size", "ack_grouping_time_s", "priority_level")
        _not_negative(self, "negative_ack_redelivery_delay_s")
        _positive(self, "receiver_queue_total_max", "ack_grouping_max")
        _of_enum(self, "consumer_type", ConsumerType)
        _of_enum(self, "initial_position", InitialPosition)
        if self.key_shared_policy and self.consumer_type is not ConsumerType.KEY_SHARED:
            raise InvalidArgument("key_shared_policy needs consumer_type KEY_SHARED")
        _texts(self.properties, "properties")
        _texts(self.subscription_properties, "subscription_properties")


class ConsumerKeywords(TypedDict, total=False):
    """Keywords of `Client.subscribe`."""

    consumer_type: ConsumerType
    initial_position: InitialPosition
    consumer_name: str | None
    receiver_queue_size: int
    receiver_queue_total_max: int
    ack_grouping_time_s: float
    ack_grouping_max: int
    ack_receipt_enabled: bool
    batch_index_ack_enabled: bool
    negative_ack_redelivery_delay_s: float
    negative_ack_backoff: MultiplierBackoff | None
    priority_level: int
    durable: bool
    start_message_id_inclusive: bool
    key_shared_policy: KeySharedPolicy | None
    properties: Mapping[str, str]
    subscription_properties: Mapping[str, str]


@dataclass(frozen=True)
class ReaderOptions:
    """Options of `Client.create_reader`."""

    reader_name: str | None = None
    subscription_name: str | None = None
    subscription_role_prefix: str = ""
    receiver_queue_size: int = 1000
    start_message_id_inclusive: bool = False

    def __post_init__(self) -> None:
        _positive(self, "receiver_queue_size")


class ReaderKeywords(TypedDict, total=False):
    """Keywords of `Client.create_reader`."""

    reader_name: str | None
    subscription_name: str | None
    subscription_role_prefix: str
    receiver_queue_size: int
    start_message_id_inclusive: bool


def make(kind: type[O], keywords: Mapping[str, object]) -> O:
    """The options of a call. Raises InvalidArgument, naming an unknown keyword or a bad value."""
    known = {item.name for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in keywords:
        if name not in known:
            raise InvalidArgument(f"unknown option {name!r}; known are {', '.join(sorted(known))}")
    return kind(**keywords)


def _number(options: object, name: str) -> float:
    value = getattr(options, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{name} must be a number, not {value!r}")
    return value


def _positive(options: object, *names: str) -> None:
    for name in names:
        if _number(options, name) <= 0:
            raise InvalidArgument(f"{name} must be above 0, not {getattr(options, name)!r}")


def _not_negative(options: object, *names: str) -> None:
    for name in names:
        if _number(options, name) < 0:
            raise InvalidArgument(f"{name} must not be negative: {getattr(options, name)!r}")


def _of_enum(options: object, name: str, kind: type[enum.Enum]) -> None:
    if not isinstance(getattr(options, name), kind):
        raise InvalidArgument(f"{name} must be a {kind.__name__}, not {getattr(options, name)!r}")


def _texts(values: Mapping[str, str], name: str) -> None:
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgument(f"{name} must be texts, not {key!r}: {value!r}")
