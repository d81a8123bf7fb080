"""Policies of consumers and sources of keys, with the names of the official client."""

from __future__ import annotations

import geminga.encryption
import geminga.options
from geminga.pulsar._checks import check_type
from geminga.pulsar._enums import KeySharedMode

SLOTS = 65536
"""Size of Key_Shared's hash range."""


class BatchReceivePolicy:
    """When `Consumer.batch_receive` returns; a number below 0 (bytes, messages: or 0) is no bound.
    Raises ValueError without any bound.
    """

    def __init__(self, max_num_message: int, max_num_bytes: int, timeout_ms: int) -> None:
        for bound in (max_num_message, max_num_bytes, timeout_ms):
            if not isinstance(bound, int):
                raise TypeError(f"the bounds must be numbers, not {type(bound).__name__}")
        if max_num_message <= 0 and max_num_bytes <= 0 and timeout_ms <= 0:
            raise ValueError("one of max_num_message, max_num_bytes and timeout_ms is needed")
        self._bounds = max_num_message, max_num_bytes, timeout_ms

    def getMaxNumMessages(self) -> int:
        """Bound of the messages."""
        return self._bounds[0]

    def getMaxNumBytes(self) -> int:
        """Bound of their bytes."""
        return self._bounds[1]

    def getTimeoutMs(self) -> int:
        """Bound of the wait."""
        return self._bounds[2]

    def _policy(self) -> geminga.options.BatchReceivePolicy:
        messages, size_bytes, timeout_ms = (bound if bound > 0 else None for bound in self._bounds)
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        return geminga.options.BatchReceivePolicy(messages, size_bytes, timeout_s)


class ConsumerBatchReceivePolicy:
    """When `Consumer.batch_receive` returns; see BatchReceivePolicy."""

    def __init__(self, max_num_message: int, max_num_bytes: int, timeout_ms: int) -> None:
        self._policy = BatchReceivePolicy(max_num_message, max_num_bytes, timeout_ms)

    def policy(self) -> BatchReceivePolicy:
        """The bounds."""
        return self._policy


class KeySharedPolicy:
    """Distribution of keys in Key_Shared."""

    def __init__(self) -> None:
        self._mode = KeySharedMode.AutoSplit
        self._out_of_order = False
        self._ranges: list[tuple[int, int]] = []

    def set_key_shared_mode(self, key_shared_mode: KeySharedMode) -> KeySharedPolicy:
        """Set the mode."""
        self._mode = KeySharedMode(key_shared_mode)
        return self

    def get_key_shared_mode(self) -> KeySharedMode:
        """The mode."""
        return self._mode

    def set_allow_out_of_order_delivery(self, allow_out_of_order_delivery: bool) -> KeySharedPolicy:
        """Set whether a key's order may be lost when consumers come and go."""
        self._out_of_order = bool(allow_out_of_order_delivery)
        return self

    def is_allow_out_of_order_delivery(self) -> bool:
        """Whether a key's order may be lost."""
        return self._out_of_order

    def set_sticky_ranges(self, ranges: list[tuple[int, int]]) -> KeySharedPolicy:
        """Set the ranges, both ends inclusive. Raises ValueError."""
        found = [(int(start), int(end)) for start, end in ranges]
        if any(not 0 <= each < SLOTS for pair in found for each in pair):
            raise ValueError(f"sticky_ranges must be within 0..{SLOTS - 1}")
        for (_, end), (start, _) in zip(sorted(found), sorted(found)[1:], strict=False):
            if start <= end:
                raise ValueError("sticky_ranges must not overlap")
        self._ranges = found
        return self

    def get_sticky_ranges(self) -> list[tuple[int, int]]:
        """The ranges."""
        return list(self._ranges)

    def _policy(self) -> geminga.options.KeySharedPolicy:
        ranges = tuple(self._ranges) if self._mode is KeySharedMode.Sticky else ()
        return geminga.options.KeySharedPolicy(ranges, self._out_of_order)


class ConsumerKeySharedPolicy:
    """Distribution of keys in Key_Shared: by the broker, or the consumer's fixed ranges."""

    def __init__(
        self,
        key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit,
        allow_out_of_order_delivery: bool = False,
        sticky_ranges: list[tuple[int, int]] | None = None,
    ) -> None:
        if key_shared_mode == KeySharedMode.Sticky and sticky_ranges is None:
            raise ValueError("KeySharedMode.Sticky needs sticky_ranges")
        self._policy = KeySharedPolicy()
        self._policy.set_key_shared_mode(key_shared_mode)
        self._policy.set_allow_out_of_order_delivery(allow_out_of_order_delivery)
        if sticky_ranges is not None:
            self._policy.set_sticky_ranges(sticky_ranges)

    @property
    def key_shared_mode(self) -> KeySharedMode:
        """The mode."""
        return self._policy.get_key_shared_mode()

    @property
    def allow_out_of_order_delivery(self) -> bool:
        """Whether a key's order may be lost."""
        return self._policy.is_allow_out_of_order_delivery()

    @property
    def sticky_ranges(self) -> list[tuple[int, int]]:
        """The ranges."""
        return self._policy.get_sticky_ranges()

    def policy(self) -> KeySharedPolicy:
        """The policy."""
        return self._policy


class DeadLetterPolicy:
    """A built policy; see DeadLetterPolicyBuilder."""

    def __init__(self, count: int, topic: str, subscription: str) -> None:
        self._count, self._topic, self._subscription = count, topic, subscription

    def getDeadLetterTopic(self) -> str:
        """The topic, or an empty text."""
        return self._topic

    def getMaxRedeliverCount(self) -> int:
        """The number of redeliveries."""
        return self._count

    def getInitialSubscriptionName(self) -> str:
        """The subscription to be made, or an empty text."""
        return self._subscription

    def _policy(self) -> geminga.options.DeadLetterPolicy:
        return geminga.options.DeadLetterPolicy(
            max_redeliver_count=self._count,
            dead_letter_topic=self._topic or None,
            initial_subscription_name=self._subscription or None,
        )


class DeadLetterPolicyBuilder:
    """Makes a DeadLetterPolicy, step by step."""

    def __init__(self) -> None:
        self._count, self._topic, self._subscription = 0, "", ""

    def deadLetterTopic(self, dead_letter_topic: str) -> DeadLetterPolicyBuilder:
        """Set the topic."""
        self._topic = dead_letter_topic
        return self

    def maxRedeliverCount(self, max_redeliver_count: int) -> DeadLetterPolicyBuilder:
        """Set the number of redeliveries."""
        self._count = max_redeliver_count
        return self

    def initialSubscriptionName(self, initial_subscription_name: str) -> DeadLetterPolicyBuilder:
        """Set the subscription to be made on a new dead-letter topic."""
        self._subscription = initial_subscription_name
        return self

    def build(self) -> DeadLetterPolicy:
        """The policy."""
        return DeadLetterPolicy(self._count, self._topic, self._subscription)


class ConsumerDeadLetterPolicy:
    """Messages that are redelivered more often than `max_redeliver_count` go to another topic, by
    default `<topic>-<subscription>-DLQ`. Raises ValueError for a count below 1.
    """

    def __init__(
        self,
        max_redeliver_count: int,
        dead_letter_topic: str | None = None,
        initial_subscription_name: str | None = None,
    ) -> None:
        given: int | None = max_redeliver_count
        if given is None or given < 1:
            raise ValueError("max_redeliver_count must be above 0")
        made = DeadLetterPolicyBuilder().maxRedeliverCount(max_redeliver_count)
        made.deadLetterTopic(dead_letter_topic or "")
        self._policy = made.initialSubscriptionName(initial_subscription_name or "").build()

    @property
    def dead_letter_topic(self) -> str:
        """The topic, or an empty text."""
        return self._policy.getDeadLetterTopic()

    @property
    def max_redeliver_count(self) -> int:
        """The number of redeliveries."""
        return self._policy.getMaxRedeliverCount()

    @property
    def initial_subscription_name(self) -> str:
        """The subscription to be made, or an empty text."""
        return self._policy.getInitialSubscriptionName()

    def policy(self) -> DeadLetterPolicy:
        """The policy."""
        return self._policy


class CryptoKeyReader:
    """A public and a private key in files, for end-to-end encryption."""

    def __init__(self, public_key_path: str, private_key_path: str) -> None:
        check_type(str, public_key_path, "public_key_path")
        check_type(str, private_key_path, "private_key_path")
        self.cryptoKeyReader = geminga.encryption.DefaultCryptoKeyReader(
            public_key_path, private_key_path
        )
