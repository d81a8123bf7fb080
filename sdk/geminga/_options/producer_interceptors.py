"""Interceptors of sending (spec SDK-11; ProducerInterceptor of the Java client)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from geminga.errors import GemingaError
from geminga_protocol.message_id import MessageId


@dataclass(frozen=True, slots=True)
class ProducerMessage:
    """A message to be sent, as passed to interceptors; `dataclasses.replace` makes a changed copy.

    Times are in ms since 1970. `sequence_id` is None unless set by the program. `topic` is the
    message's partition, even if the key is changed. A key given as bytes is in Base64, and is still
    sent as bytes unless changed.
    """

    data: bytes
    topic: str
    producer_name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_key: str | None = None
    ordering_key: bytes | None = None
    event_time_ms: int | None = None
    deliver_at_ms: int | None = None
    replication_clusters: Sequence[str] = ()
    sequence_id: int | None = None


class ProducerInterceptor:
    """Gets, and may change, each message before it is sent, and gets its result. Subclass it, and
    pass it as `interceptors=[...]` to `create_producer`; several are called in that order.

    All methods are called in the event loop (of `geminga.blocking` and `geminga.aio`: in the
    client's own thread) and must be short. Their errors are logged and have no effect.
    """

    def eligible(self, message: ProducerMessage) -> bool:
        """Whether to call the other methods for that message."""
        return True

    def before_send(self, message: ProducerMessage) -> ProducerMessage:
        """Returns the message to send: a changed one, or the same. The next interceptor gets it.
        Changes of `topic` and `producer_name`, and invalid messages, are ignored.
        """
        return message

    def on_send_acknowledgement(
        self, message: ProducerMessage, message_id: MessageId | None, error: GemingaError | None
    ) -> None:
        """The sent message is stored with that id, or has failed with that error."""

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """The topic has more partitions now."""

    def close(self) -> None:
        """The producer is closed."""
