"""What a program may give a consumer to be called, and how it takes batches; public in
`geminga.options`.
"""

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
    """What happens to a consumer; a program overrides what it wants to hear of.

    Called in the thread of the client's event loop, with the full name of the topic or partition:
    it must be short and not wait. What it raises is logged.
    """

    def became_active(self, topic: str) -> None:
        """Failover: messages of the topic come to this consumer from now on."""

    def became_inactive(self, topic: str) -> None:
        """Failover: another consumer gets them, or the connection is lost."""

    def reached_end_of_topic(self, topic: str) -> None:
        """The topic is terminated, and everything in it was delivered."""


class ConsumerInterceptor:
    """Sees messages on their way to the program and acknowledgements on their way to the broker
    (ConsumerInterceptor of the Java client); a program overrides what it wants.

    Several are called in the order in which they were given. All are called in the thread of the
    client's event loop, with the full name of the topic or partition: they must be short and not
    wait. What they raise is logged and changes nothing.
    """

    def before_consume(self, topic: str, message: Message) -> Message:
        """A message is about to be handed to the program, or taken ahead for it. Returns the
        message to hand over: this one, or what `message.replace` makes of it.
        """
        return message

    def on_acknowledge(self, topic: str, message_id: MessageId, error: GemingaError | None) -> None:
        """The program has acknowledged a message. With `ack_receipt_enabled` it is called again,
        with the error, for each entry whose receipt says that it failed.
        """

    def on_acknowledge_cumulative(
        self, topic: str, message_id: MessageId, error: GemingaError | None
    ) -> None:
        """The same for a message and all before it."""

    def on_negative_acks_send(self, topic: str, message_ids: frozenset[MessageId]) -> None:
        """These entries are redelivered now, since the program has refused messages of them."""

    def on_ack_timeout_send(self, topic: str, message_ids: frozenset[MessageId]) -> None:
        """These entries are redelivered now, since `ack_timeout_s` has passed."""

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """A topic that the consumer is on has another number of partitions."""

    def close(self) -> None:
        """The consumer is closed."""


@dataclass(frozen=True)
class BatchReceivePolicy:
    """When `receive_batch` returns (BatchReceivePolicy): as soon as `max_messages` or `max_bytes`
    of payload are there, or after `timeout_s` seconds. None leaves a bound out; one is needed.

    `max_messages` is at most `receiver_queue_size`: no more than that is ever there at once.
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
        """Messages, bytes and seconds with that receiver queue; infinity for what has no bound."""
        return (
            min(self.max_messages or queue_size, queue_size),
            math.inf if self.max_bytes is None else self.max_bytes,
            math.inf if self.timeout_s is None else self.timeout_s,
        )
