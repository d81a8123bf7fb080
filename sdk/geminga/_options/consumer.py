"""Options of consumers and readers; public in `geminga.options`."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from geminga._options import checks as check
from geminga._options.consumer_hooks import (
    BatchReceivePolicy,
    ConsumerEventListener,
    ConsumerInterceptor,
)
from geminga.encryption import ConsumerCryptoOptions, check_key_names
from geminga.errors import InvalidArgumentError
from geminga.schema._base import Schema, check_reading


class ConsumerType(enum.IntEnum):
    """Distribution of a subscription's messages over its consumers; the values are the wire's."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3

    @property
    def is_shared(self) -> bool:
        """Whether single messages can be redelivered (Shared and Key_Shared)."""
        return self in (ConsumerType.SHARED, ConsumerType.KEY_SHARED)


class InitialPosition(enum.IntEnum):
    """Start of a new subscription; the values are the wire's."""

    LATEST = 0
    EARLIEST = 1


class RegexSubscriptionMode(enum.IntEnum):
    """The topics of a pattern (RegexSubscriptionMode)."""

    PERSISTENT_ONLY = 0
    NON_PERSISTENT_ONLY = 1
    ALL_TOPICS = 2


@dataclass(frozen=True)
class MultiplierBackoff:
    """A delay that grows with each redelivery (MultiplierRedeliveryBackoff):
    `min_delay_s * multiplier ** redelivery_count`, at most `max_delay_s`.
    """

    min_delay_s: float = 1.0
    max_delay_s: float = 60.0
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        check.not_negative(self, "min_delay_s")
        check.positive(self, "max_delay_s", "multiplier")
        if self.min_delay_s > self.max_delay_s:
            raise InvalidArgumentError("min_delay_s must not be above max_delay_s")

    def delay_s(self, redelivery_count: int) -> float:
        """Seconds to wait before the next redelivery."""
        # 64 doublings exceed every sensible maximum; more would overflow a float.
        power = self.multiplier ** min(redelivery_count, 64)
        return min(self.min_delay_s * power, self.max_delay_s)


@dataclass(frozen=True)
class DeadLetterPolicy:
    """Messages that are redelivered, or reconsumed, more often than `max_redeliver_count` are sent
    to `dead_letter_topic`, and acknowledged (DeadLetterPolicy).

    Without names the topics are `<topic>-<subscription>-DLQ` and `-RETRY`, derived from the first
    topic with `retry_enabled`, else from each topic or partition. The broker creates the
    subscription `initial_subscription_name` on a new dead-letter topic (PIP-124).

    Letters are encrypted with `encryption_keys` of the consumer's `crypto_key_reader`; without
    them they are unencrypted, even if the messages were encrypted.
    """

    max_redeliver_count: int = 16
    dead_letter_topic: str | None = None
    retry_letter_topic: str | None = None
    initial_subscription_name: str | None = None
    encryption_keys: Sequence[str] = ()

    def __post_init__(self) -> None:
        check.whole(self, "max_redeliver_count", least=1)
        check_key_names(self.encryption_keys)
        check.text_or_none(
            self, "dead_letter_topic", "retry_letter_topic", "initial_subscription_name"
        )


@dataclass(frozen=True)
class KeySharedPolicy:
    """Distribution of keys in Key_Shared: split by the broker, or fixed `sticky_ranges` (both ends
    inclusive, within 0..65535) of this consumer.
    """

    sticky_ranges: tuple[tuple[int, int], ...] = ()
    allow_out_of_order_delivery: bool = False

    def __post_init__(self) -> None:
        check.booleans(self, "allow_out_of_order_delivery")
        for each in self.sticky_ranges:
            if not isinstance(each, tuple) or [type(n) for n in each] != [int, int]:
                raise InvalidArgumentError(f"sticky_ranges must be pairs of numbers, not {each!r}")
        last = -1
        for start, end in sorted(self.sticky_ranges):
            if not 0 <= start <= end <= 65535:
                raise InvalidArgumentError(f"sticky_ranges: {start}..{end} is not within 0..65535")
            if start <= last:
                raise InvalidArgumentError(f"sticky_ranges: {start}..{end} overlaps another range")
            last = end


@dataclass(frozen=True)
class ConsumerOptions(ConsumerCryptoOptions):
    """Options of `Client.subscribe`; `crypto_failure_action` applies to messages that can't be
    decrypted.

    With `auto_update_partitions`, new partitions are searched every
    `auto_update_partitions_interval_s`; topics of a pattern every `pattern_auto_discovery_period_s`
    and after changes reported by the broker. Those found later are read from their beginning.

    A message that isn't acknowledged within `ack_timeout_s` (0: no timeout) after the program took
    it is redelivered, with its whole batch; `ack_timeout_backoff` adds a delay that grows with each
    redelivery. Messages that are only prefetched don't time out. `retry_enabled` also subscribes to
    the retry-letter topic, for `reconsume_later`. With `dead_letter_policy`, messages that are
    redelivered too often go to another topic; only Shared and Key_Shared count redeliveries. With
    the other types `dead_letter_policy` needs `retry_enabled`, and bounds `reconsume_later` only.

    `receiver_queue_size` messages are prefetched per partition, at most `receiver_queue_total_max`
    over all partitions; 0 fetches a message on request only. With
    `auto_scaled_receiver_queue_size_enabled` the queue begins with 1 and doubles up to that size
    while the program is faster than the messages arrive. `message_listener` of `subscribe` has at
    most `message_listener_concurrency` concurrent calls; `batch_receive_policy` is that of
    `receive_batch`. `interceptors` are called in order. `read_compacted` needs an Exclusive or
    Failover subscription of a persistent topic; `replicate_subscription_state` synchronizes the
    subscription over replicated clusters.

    Acknowledgements are sent in groups: every `ack_grouping_time_s` (0: at once) or when there are
    `ack_grouping_max`. Chunks of at most `max_pending_chunked_messages` incomplete messages (0: any
    number) are kept; above it the oldest is dropped, and acknowledged if
    `auto_ack_oldest_chunked_message_on_queue_full`. A message still incomplete after
    `expire_time_of_incomplete_chunked_message_s` (0: never) is dropped and acknowledged.

    Without `auto_create` a missing topic raises TopicNotFoundError: the consumer never creates it,
    and ends with that error if the topic is deleted.
    """

    consumer_type: ConsumerType = ConsumerType.EXCLUSIVE
    initial_position: InitialPosition = InitialPosition.LATEST
    consumer_name: str | None = None
    receiver_queue_size: int = 1000
    receiver_queue_total_max: int = 50_000
    auto_scaled_receiver_queue_size_enabled: bool = False
    ack_grouping_time_s: float = 0.1
    ack_grouping_max: int = 1000
    ack_receipt_enabled: bool = False
    batch_index_ack_enabled: bool = False
    negative_ack_redelivery_delay_s: float = 60.0
    negative_ack_backoff: MultiplierBackoff | None = None
    ack_timeout_s: float = 0.0
    ack_timeout_backoff: MultiplierBackoff | None = None
    regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PERSISTENT_ONLY
    pattern_auto_discovery_period_s: float = 60.0
    auto_update_partitions: bool = True
    auto_update_partitions_interval_s: float = 60.0
    retry_enabled: bool = False
    consumer_event_listener: ConsumerEventListener | None = None
    interceptors: Sequence[ConsumerInterceptor] = ()
    message_listener_concurrency: int = 1
    batch_receive_policy: BatchReceivePolicy | None = None
    read_compacted: bool = False
    replicate_subscription_state: bool = False
    dead_letter_policy: DeadLetterPolicy | None = None
    priority_level: int = 0
    durable: bool = True
    auto_create: bool = True
    start_message_id_inclusive: bool = False
    key_shared_policy: KeySharedPolicy | None = None
    max_pending_chunked_messages: int = 10
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    expire_time_of_incomplete_chunked_message_s: float = 60.0
    properties: Mapping[str, str] = field(default_factory=dict)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    schema: Schema | None = None
    """An argument of `subscribe` itself."""

    def __post_init__(self) -> None:
        check.of_enum(self, "consumer_type", ConsumerType)
        check.of_enum(self, "initial_position", InitialPosition)
        check.of_enum(self, "regex_subscription_mode", RegexSubscriptionMode)
        check.text_or_none(self, "consumer_name")
        check.whole(self, "receiver_queue_size", "priority_level", "max_pending_chunked_messages")
        check.whole(self, "receiver_queue_total_max", "ack_grouping_max", least=1)
        check.whole(self, "message_listener_concurrency", least=1)
        check.not_negative(self, "ack_grouping_time_s", "negative_ack_redelivery_delay_s")
        check.not_negative(self, "ack_timeout_s", "expire_time_of_incomplete_chunked_message_s")
        check.positive(self, "pattern_auto_discovery_period_s", "auto_update_partitions_interval_s")
        check.booleans(self, *_BOOLEANS)
        for name, kind in _KINDS.items():
            check.of_kind(self, name, kind)
        policy = self.batch_receive_policy
        if policy is not None and not isinstance(policy, BatchReceivePolicy):
            raise InvalidArgumentError("batch_receive_policy must be a BatchReceivePolicy")
        for name in ("properties", "subscription_properties"):
            check.texts(getattr(self, name), name)
            check.fits(name, chain(*getattr(self, name).items()))
        check_reading(self.schema)
        self._check_together()

    def _check_together(self) -> None:
        kind = self.consumer_type
        if self.key_shared_policy and kind is not ConsumerType.KEY_SHARED:
            raise InvalidArgumentError("key_shared_policy needs consumer_type KEY_SHARED")
        if self.read_compacted and kind.is_shared:
            raise InvalidArgumentError("read_compacted needs consumer_type EXCLUSIVE or FAILOVER")
        policy = self.dead_letter_policy
        if policy is not None and policy.retry_letter_topic and not self.retry_enabled:
            raise InvalidArgumentError("retry_letter_topic needs retry_enabled")
        check.instances(self.interceptors, "interceptors", ConsumerInterceptor)
        self.check_crypto()
        if policy is not None and policy.encryption_keys and self.crypto_key_reader is None:
            raise InvalidArgumentError(
                "encryption_keys of dead_letter_policy need a crypto_key_reader"
            )
        if policy is not None and not (kind.is_shared or self.retry_enabled):
            raise InvalidArgumentError(
                "dead_letter_policy needs consumer_type SHARED or KEY_SHARED, as only these count "
                "redeliveries; with retry_enabled, for reconsume_later, it works with all"
            )


_BOOLEANS = (
    "auto_scaled_receiver_queue_size_enabled",
    "ack_receipt_enabled",
    "batch_index_ack_enabled",
    "auto_update_partitions",
    "retry_enabled",
    "read_compacted",
    "replicate_subscription_state",
    "durable",
    "auto_create",
    "start_message_id_inclusive",
    "auto_ack_oldest_chunked_message_on_queue_full",
)
_KINDS: Mapping[str, type[object]] = {
    "negative_ack_backoff": MultiplierBackoff,
    "ack_timeout_backoff": MultiplierBackoff,
    "consumer_event_listener": ConsumerEventListener,
    "dead_letter_policy": DeadLetterPolicy,
    "key_shared_policy": KeySharedPolicy,
}


def check_subscription(name: object, options: ConsumerOptions) -> None:
    """Raises InvalidArgumentError unless a subscription may have that name, with these options."""
    check.text(name, "subscription_name")
    properties = options.properties, options.subscription_properties
    names = str(name), options.consumer_name
    check.fits("names and properties", names, properties, check.COMMAND_BYTES_MAX)


@dataclass(frozen=True)
class ReaderOptions(ConsumerCryptoOptions):
    """Options of `Client.create_reader`. With `read_compacted` the compacted part of the topic has
    only the latest message of each key. An incomplete chunked message is dropped if there are more
    than `max_pending_chunked_messages` (0: any number), or after
    `expire_time_of_incomplete_chunked_message_s` (0: never). Without `auto_create` a missing topic
    raises TopicNotFoundError, as for `ConsumerOptions`.
    """

    reader_name: str | None = None
    subscription_name: str | None = None
    subscription_role_prefix: str = ""
    read_compacted: bool = False
    auto_create: bool = True
    receiver_queue_size: int = 1000
    start_message_id_inclusive: bool = False
    max_pending_chunked_messages: int = 10
    expire_time_of_incomplete_chunked_message_s: float = 60.0
    schema: Schema | None = None
    """An argument of `create_reader` itself."""

    def __post_init__(self) -> None:
        check.text_or_none(self, "reader_name", "subscription_name")
        if not isinstance(self.subscription_role_prefix, str):
            raise InvalidArgumentError("subscription_role_prefix must be a text")
        check.fits("subscription_role_prefix", (self.subscription_role_prefix,))
        check.booleans(self, "read_compacted", "auto_create", "start_message_id_inclusive")
        check.whole(self, "receiver_queue_size", least=1)
        check.whole(self, "max_pending_chunked_messages")
        check.not_negative(self, "expire_time_of_incomplete_chunked_message_s")
        check_reading(self.schema)
        self.check_crypto()

    def as_consumer(self) -> ConsumerOptions:
        """The options of the reader's consumer."""
        return ConsumerOptions(
            consumer_type=ConsumerType.EXCLUSIVE,
            initial_position=InitialPosition.LATEST,
            consumer_name=self.reader_name,
            receiver_queue_size=self.receiver_queue_size,
            durable=False,
            auto_create=self.auto_create,
            read_compacted=self.read_compacted,
            start_message_id_inclusive=self.start_message_id_inclusive,
            max_pending_chunked_messages=self.max_pending_chunked_messages,
            expire_time_of_incomplete_chunked_message_s=(
                self.expire_time_of_incomplete_chunked_message_s
            ),
            schema=self.schema,
            crypto_key_reader=self.crypto_key_reader,
            crypto_failure_action=self.crypto_failure_action,
        )
