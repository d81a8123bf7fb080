"""What programs may do around sending (spec SDK-11; ProducerInterceptor of the Java client)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from geminga.errors import GemingaError
from geminga_protocol.message_id import MessageId


@dataclass(frozen=True, slots=True)
class ProducerMessage:
    """A message on its way out, as interceptors see it; `dataclasses.replace` makes another one.

    Times are in ms since 1970. `sequence_id` is None unless the program chose it. `topic` is the
    partition that the message goes to, whatever becomes of its key. A key that was given as bytes
    is their Base64 text, and still goes as bytes while it isn't changed.
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
    """Sees, and may change, each message before it is sent, and hears what became of it. Subclass
    it and give it as `interceptors=[...]` to `create_producer`; several are called in that order.

    All is called in the event loop (of `geminga.blocking` and `geminga.aio`: in the client's own
    thread) and must be short. What it raises is logged, and sending goes on without it.
    """

    def eligible(self, message: ProducerMessage) -> bool:
        """Whether the other functions are called for that message."""
        return True

    def before_send(self, message: ProducerMessage) -> ProducerMessage:
        """The message to send instead, or the same. The next interceptor sees what this answers;
        changed `topic`, `producer_name` and what can't be sent are not heeded.
        """
        return message

    def on_send_acknowledgement(
        self, message: ProducerMessage, message_id: MessageId | None, error: GemingaError | None
    ) -> None:
        """The message as it was sent is stored under that id, or has failed with that error."""

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """The topic has more partitions now."""

    def close(self) -> None:
        """The producer is closed."""
