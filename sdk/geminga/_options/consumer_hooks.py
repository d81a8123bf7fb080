"""A consumer's event listener, interceptors and batch policy; public in `geminga.options`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geminga._options.checks import number
from geminga.errors import GemingaError, InvalidArgumentError

if TYPE_CHECKING:
    from geminga.message import Message
    from geminga_protocol.message_id import MessageId


class ConsumerEventListener:
    """Events of a consumer; a program overrides the methods that it needs.

    Called in the thread of the client's event loop, with the full name of the topic or partition:
    methods must be short and not wait. Their errors are logged.
    """

    def became_active(self, topic: str) -> None:
        """Failover: this consumer gets the topic's messages from now on."""

    def became_inactive(self, topic: str) -> None:
        """Failover: another consumer gets the messages, or the connection is lost."""

    def reached_end_of_topic(self, topic: str) -> None:
        """The topic is terminated, and everything in it was delivered."""


class ConsumerInterceptor:
    """Intercepts received messages and acknowledgements (ConsumerInterceptor of the Java client); a
    program overrides the methods that it needs.

    Several are called in the given order. All are called in the thread of the client's event loop,
    with the full name of the topic or partition: methods must be short and not wait. Their errors
    are logged and have no effect.
    """

    def before_consume(self, topic: str, message: Message) -> Message:
        """A message is about to be delivered to the program, or prefetched. Returns the message to
        deliver: this one, or a result of `message.replace`.
        """
        return message

    def on_acknowledge(self, topic: str, message_id: MessageId, error: GemingaError | None) -> None:
        """The program has acknowledged a message. With `ack_receipt_enabled` it is called again for
        each entry with an error receipt, with the error.
        """

    def on_acknowledge_cumulative(
        self, topic: str, message_id: MessageId, error: GemingaError | None
    ) -> None:
        """The program has acknowledged a message and all before it."""

    def on_negative_acks_send(self, topic: str, message_ids: frozenset[MessageId]) -> None:
        """Redelivery of these entries is requested now, after negative acknowledgements."""

    def on_ack_timeout_send(self, topic: str, message_ids: frozenset[MessageId]) -> None:
        """Redelivery of these entries is requested now, after `ack_timeout_s`."""

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """The number of partitions of a subscribed topic has changed."""

    def close(self) -> None:
        """The consumer is closed."""


class OwnInterceptor(ConsumerInterceptor):
    """One that keeps something of its consumer; our own only."""

    def begin(self) -> None:
        """A consumer takes it. Raises InvalidArgumentError if another one has it."""


@dataclass(frozen=True)
class BatchReceivePolicy:
    """When `receive_batch` returns (BatchReceivePolicy): with `max_messages` or `max_bytes` of
    payload available, or after `timeout_s` seconds. None: no such bound; at least one is needed.

    `receiver_queue_size` bounds `max_messages`: never more are available.
    """

    max_messages: int | None = None
    max_bytes: int | None = 10 * 1024 * 1024
    timeout_s: float | None = 0.1

    def __post_init__(self) -> None:
        for name in ("max_messages", "max_bytes", "timeout_s"):
            if getattr(self, name) is not None and number(self, name) <= 0:
                raise InvalidArgumentError(f"{name} must be above 0, or None")
        if self.max_messages is None and self.max_bytes is None and self.timeout_s is None:
            raise InvalidArgumentError("one of max_messages, max_bytes and timeout_s is needed")

    def limits(self, queue_size: int) -> tuple[int, float, float]:
        """Messages, bytes and seconds with that receiver queue; infinity if unbounded."""
        return (
            min(self.max_messages or queue_size, queue_size),
            math.inf if self.max_bytes is None else self.max_bytes,
            math.inf if self.timeout_s is None else self.timeout_s,
        )
