"""`Consumer` of `geminga.blocking`. Made by tools/faces.py from `aio`: don't edit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Generic

import geminga.consumer
from geminga._bridge.threads import ThreadBlock, ThreadReceiver, ThreadSession
from geminga._consuming.statistics import ConsumerStatistics as ConsumerStatistics
from geminga._options.arguments import duration, several
from geminga.consumer import MessageOrId
from geminga.message import Message, V_co
from geminga_protocol.message_id import MessageId


class Consumer(ThreadBlock, Generic[V_co]):
    """Receives the messages of a subscription, over all partitions of its topics. Created by
    `Client.subscribe`.

    Messages of a partition are in order. An unacknowledged message is redelivered after a negative
    acknowledgement, or when the consumer reconnects. A cancelled or interrupted
    (KeyboardInterrupt) `receive` loses no message.
    """

    def __init__(self, session: ThreadSession, inner: geminga.consumer.Consumer[V_co]) -> None:
        self._session = session
        self._inner = inner
        self._receiver = ThreadReceiver(session, inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def topics(self) -> list[str]:
        """Full names of the topics; each partition is listed."""
        return self._inner.topics

    @property
    def subscription_name(self) -> str:
        """Name of the subscription."""
        return self._inner.subscription_name

    @property
    def consumer_name(self) -> str:
        """The name given by the program, or a generated one."""
        return self._inner.consumer_name

    @property
    def is_connected(self) -> bool:
        """Whether the consumer is connected to the brokers of all partitions."""
        return self._inner.is_connected

    @property
    def reached_end_of_topic(self) -> bool:
        """Whether all topics are terminated and everything in them was delivered."""
        return self._inner.reached_end_of_topic

    def receive(self, timeout_s: float | None = None) -> Message[V_co]:
        """The next message.

        Raises OperationTimeoutError after `timeout_s` seconds, AlreadyClosedError, and the error
        that ended the subscription. Messages are prefetched, up to half the receiver queue;
        KeyboardInterrupt loses none of them.
        """
        receiver = self._receiver
        if timeout_s is not None:
            duration(timeout_s, "timeout_s")
        if not receiver.is_stale:
            try:
                # Iterate: KeyboardInterrupt can't occur between taking and returning.
                for message in receiver.pops:
                    return message
            except IndexError:
                pass
        return receiver.receive_slowly(timeout_s)

    def receive_batch(
        self,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        wait_s: float | None = None,
    ) -> list[Message[V_co]]:
        """Wait for a message, then take all available ones, up to `max_messages` (1000) and
        `max_bytes` (10 MiB), at least one. Returns an empty list after `wait_s` seconds without
        any.

        With a `batch_receive_policy` it waits until the policy's bounds or its timeout are reached,
        and may return an empty list; an argument overrides the policy's bound. That needs a
        receiver queue. Otherwise raises what `receive` does.
        """
        return self._receiver.receive_batch(max_messages, max_bytes, wait_s)

    def __iter__(self) -> Consumer[V_co]:
        return self

    def __next__(self) -> Message[V_co]:
        """The next message; the iteration ends when the consumer is closed."""
        return self._receiver.next()

    def pause(self) -> None:
        """Request no more messages; requested ones may still arrive."""
        self._session.portal.post(self._inner.pause)

    def resume(self) -> None:
        """Request messages again."""
        self._session.portal.post(self._inner.resume)

    def acknowledge(self, message: MessageOrId) -> None:
        """Acknowledge a message. Acknowledgements are sent in groups; with `ack_receipt_enabled`
        this waits for the broker's receipt, and raises its error.

        A batch is acknowledged to the broker once all its messages are. If the connection is lost
        before, all of them are redelivered, unless `batch_index_ack_enabled`. Raises
        AlreadyClosedError if the consumer is closed: then the message is redelivered.
        """
        receiver = self._receiver
        if receiver.waits_for_receipts:
            receiver.acknowledge_for_receipts(receiver.receiving.runs([message]))
        else:
            receiver.acknowledge(message)

    def acknowledge_all(self, messages: Iterable[MessageOrId]) -> None:
        """`acknowledge` each of the messages, with one wait for receipts."""
        several(messages, "messages")
        runs = self._receiver.receiving.runs(messages)
        if self._receiver.waits_for_receipts:
            self._receiver.acknowledge_for_receipts(runs)
        else:
            self._receiver.acknowledge_runs(runs)

    def acknowledge_cumulative(self, message: MessageOrId) -> None:
        """Acknowledge the message and all before it in its partition.

        Raises InvalidArgumentError on a Shared or Key_Shared subscription.
        """
        self._receiver.call(lambda: self._inner.acknowledge_cumulative(message))

    def negative_acknowledge(self, message: MessageOrId) -> None:
        """Request redelivery of the message after `negative_ack_redelivery_delay_s`, or as
        `negative_ack_backoff` says. Its whole batch is redelivered, except acknowledged messages.
        """
        self._receiver.refuse(message)

    def reconsume_later(
        self,
        message: Message[object],
        delay_s: float,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Receive the message again after a delay in seconds: it is sent to the retry-letter topic,
        with the additional properties, and acknowledged. After the policy's `max_redeliver_count`
        times it goes to the dead-letter topic instead.

        Needs `retry_enabled`. Raises InvalidArgumentError, and the GemingaError of a failed send:
        then the message isn't acknowledged.
        """
        self._receiver.call(
            lambda: self._inner.reconsume_later(message, delay_s, properties=properties)
        )

    def redeliver_unacknowledged_messages(self) -> None:
        """Request redelivery of all received messages that are not acknowledged."""
        self._receiver.forget()
        self._session.portal.post(self._receiver.redeliver)

    def seek(
        self, to: MessageId | datetime | int | Callable[[str], MessageId | datetime | int | None]
    ) -> None:
        """Move the subscription, in all partitions, to a message id, `MessageId.EARLIEST` or
        `LATEST`, or to the first message published at or after a time: a datetime with a time
        zone, or ms since 1970. A function is called with the full name of each topic or partition;
        if it returns None, that one is not moved.

        With an id the next message is the one after it, or itself if `start_message_id_inclusive`.
        Received messages that the program has not taken are dropped. Raises GemingaError.
        """
        self._receiver.call(lambda: self._inner.seek(to))

    def last_message_ids(self) -> list[MessageId]:
        """Id of the last message of each partition; -1:-1 for one without messages."""
        return self._receiver.call(lambda: self._inner.last_message_ids())

    def has_message_available(self) -> bool:
        """Whether there is a message after the last received one."""
        return self._session.call(self._receiver.has_message_available)

    def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription in all partitions, with `force` even if it has other consumers,
        and close this consumer. Raises GemingaError: then it is deleted in some partitions or in
        none, and the consumer receives from the others, until it is closed or this is called again.
        If cancelled, the consumer is closed; the subscription may be deleted or not.
        """
        self._receiver.call(lambda: self._inner.unsubscribe(force=force))
        self._receiver.stop_listening()  # not before: the listener goes on if that fails

    def statistics(self) -> ConsumerStatistics:
        """The consumer's counters."""
        return self._inner.statistics()

    def close(self) -> None:
        """Send pending acknowledgements, and leave the subscription. Idempotent. Unacknowledged
        messages are redelivered, to other consumers or later. Waits for running calls of a
        `message_listener`, unless called by a listener.
        """
        self._receiver.close()
