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
    """Receives the messages of a subscription, over all partitions of its topics. Made by
    `Client.subscribe`.

    Messages come in order within a partition. A message must be acknowledged, or it comes again:
    after a negative acknowledgement, or when the consumer is connected again. A `receive` that is
    cancelled or interrupted (KeyboardInterrupt) loses no message.
    """

    def __init__(self, session: ThreadSession, inner: geminga.consumer.Consumer[V_co]) -> None:
        self._session = session
        self._inner = inner
        self._receiver = ThreadReceiver(session, inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def topics(self) -> list[str]:
        """Full names of the topics, each partition by itself."""
        return self._inner.topics

    @property
    def subscription_name(self) -> str:
        """Name of the subscription."""
        return self._inner.subscription_name

    @property
    def consumer_name(self) -> str:
        """The name that the program gave, or one made up."""
        return self._inner.consumer_name

    @property
    def is_connected(self) -> bool:
        """Whether the brokers of all partitions know the consumer now."""
        return self._inner.is_connected

    @property
    def reached_end_of_topic(self) -> bool:
        """Whether all topics are terminated and everything in them was delivered."""
        return self._inner.reached_end_of_topic

    def receive(self, timeout_s: float | None = None) -> Message[V_co]:
        """The next message.

        Raises OperationTimeoutError after `timeout_s` seconds, AlreadyClosedError, and what ended
        the subscription. Messages are taken ahead of the program, up to half the receiver queue;
        KeyboardInterrupt loses none of them.
        """
        receiver = self._receiver
        if timeout_s is not None:
            duration(timeout_s, "timeout_s")
        if not receiver.is_stale:
            try:
                # By iteration: KeyboardInterrupt can't come between taking and returning.
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
        """Wait for a message, then take what is there, up to `max_messages` (1000) and `max_bytes`
        (10 MiB), at least one message. An empty list after `wait_s` seconds without any.

        With a `batch_receive_policy` it waits for as many as the policy says, or takes what came
        before its time was over, maybe nothing; an argument replaces the policy's own bound. That
        needs a receiver queue. Raises what `receive` does otherwise.
        """
        return self._receiver.receive_batch(max_messages, max_bytes, wait_s)

    def __iter__(self) -> Consumer[V_co]:
        return self

    def __next__(self) -> Message[V_co]:
        """The next message; the iteration ends when the consumer is closed."""
        return self._receiver.next()

    def pause(self) -> None:
        """Ask the broker for no more messages; what was asked for may still come."""
        self._session.portal.post(self._inner.pause)

    def resume(self) -> None:
        """Ask for messages again."""
        self._session.portal.post(self._inner.resume)

    def acknowledge(self, message: MessageOrId) -> None:
        """The message is done. Sent in groups; waits for the broker's receipt only if
        `ack_receipt_enabled`, and raises then what it says.

        The broker hears of a batch when all its messages are done. If the connection is lost before
        that, all of them come again, unless `batch_index_ack_enabled`. Raises AlreadyClosedError
        when the consumer is closed: the message comes again then.
        """
        receiver = self._receiver
        if receiver.waits_for_receipts:
            receiver.acknowledge_for_receipts(receiver.receiving.runs([message]))
        else:
            receiver.acknowledge(message)

    def acknowledge_all(self, messages: Iterable[MessageOrId]) -> None:
        """The messages are done: `acknowledge` for each, with one wait for receipts."""
        several(messages, "messages")
        runs = self._receiver.receiving.runs(messages)
        if self._receiver.waits_for_receipts:
            self._receiver.acknowledge_for_receipts(runs)
        else:
            self._receiver.acknowledge_runs(runs)

    def acknowledge_cumulative(self, message: MessageOrId) -> None:
        """The message and everything before it in its partition is done.

        Raises InvalidArgumentError on a Shared or Key_Shared subscription.
        """
        self._receiver.call(lambda: self._inner.acknowledge_cumulative(message))

    def negative_acknowledge(self, message: MessageOrId) -> None:
        """The message isn't done: have it redelivered after `negative_ack_redelivery_delay_s`, or
        as `negative_ack_backoff` says. Its whole batch comes again, but for what is acknowledged.
        """
        self._receiver.refuse(message)

    def reconsume_later(
        self,
        message: Message[object],
        delay_s: float,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Have the message again after that many seconds: it is sent to the retry-letter topic,
        with those properties besides its own, and acknowledged. After the policy's
        `max_redeliver_count` times it goes to the dead-letter topic instead.

        Needs `retry_enabled`. Raises InvalidArgumentError, and the GemingaError with which it
        couldn't be sent: it isn't acknowledged then.
        """
        self._receiver.call(
            lambda: self._inner.reconsume_later(message, delay_s, properties=properties)
        )

    def redeliver_unacknowledged_messages(self) -> None:
        """Have everything redelivered that was received and not acknowledged."""
        self._receiver.forget()
        self._session.portal.post(self._receiver.redeliver)

    def seek(
        self, to: MessageId | datetime | int | Callable[[str], MessageId | datetime | int | None]
    ) -> None:
        """Move the subscription, in all partitions: to a message id, `MessageId.EARLIEST` or
        `LATEST`, or to the first message published at or after a time: a datetime with its time
        zone, or ms since 1970. A function is asked for each topic or partition by its full name;
        None leaves that where it is.

        With an id the next message is the one after it, or itself if `start_message_id_inclusive`.
        Everything received and not taken is dropped. Raises GemingaError.
        """
        self._receiver.call(lambda: self._inner.seek(to))

    def last_message_ids(self) -> list[MessageId]:
        """Id of the last message of each partition; -1:-1 for one without messages."""
        return self._receiver.call(lambda: self._inner.last_message_ids())

    def has_message_available(self) -> bool:
        """Whether there is a message after those that were received."""
        return self._session.call(self._receiver.has_message_available)

    def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription in all partitions, with `force` while others use it too, and
        close the consumer. Raises GemingaError. Cancelled, it closes the consumer, and the
        subscription may be deleted or not.
        """
        self._receiver.stop_listening()
        self._receiver.call(lambda: self._inner.unsubscribe(force=force))

    def statistics(self) -> ConsumerStatistics:
        """What the consumer did."""
        return self._inner.statistics()

    def close(self) -> None:
        """Send the acknowledgements that wait, and leave. Idempotent. What was received and not
        acknowledged goes to other consumers, or comes again. Calls of a `message_listener` that run
        are waited for, unless it is the listener that closes.
        """
        self._receiver.close()
