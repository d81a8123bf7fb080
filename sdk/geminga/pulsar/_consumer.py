"""`Consumer` of the official client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import geminga.blocking
from geminga.errors import AlreadyClosedError, InvalidArgumentError, OperationTimeoutError
from geminga.pulsar._checks import check_type, closing_of
from geminga.pulsar._enums import ConsumerType
from geminga.pulsar._errors import officially
from geminga.pulsar._ids import MessageId
from geminga.pulsar._listening import Lane
from geminga.pulsar._message import Message, target
from geminga.pulsar.exceptions import (
    AlreadyClosed,
    CumulativeAcknowledgementNotAllowedError,
    InvalidConfiguration,
    OperationNotSupported,
    Timeout,
)
from geminga.pulsar.schema.schema import Schema


class Consumer:
    """Receives the messages of a subscription. Created by `Client.subscribe`."""

    _consumer: geminga.blocking.Consumer[Any]
    _schema: Schema
    _topic: str
    _type: ConsumerType
    _has_queue = True
    _lane: Lane | None = None
    """Of its message listener."""
    _is_closed = False
    _may_close = False
    """Whether it is unsubscribed, and `close` was not called since."""
    _forget: Callable[[], object]
    """Take it out of the client's list."""

    def topic(self) -> str:
        """Full name of its topic; for several the pattern, or the names with commas between."""
        return self._topic

    def subscription_name(self) -> str:
        """Name of the subscription."""
        return self._consumer.subscription_name

    def consumer_name(self) -> str:
        """The name given by the program, or a generated one."""
        return self._consumer.consumer_name

    @officially
    def unsubscribe(self) -> None:
        """Delete the subscription, and close this consumer. If it fails, it can be called again."""
        self._check_open()
        receiver = self._consumer._receiver
        # Not closed before: if that fails, the listener gets what waits for its turn, and what it
        # has said of messages meanwhile counts.
        receiver.call(self._consumer._inner.unsubscribe)
        self._is_closed = self._may_close = True
        self._forget()
        if self._lane is not None:
            self._lane.end()
        receiver.stop_listening()

    @officially
    def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message. Raises Timeout, AlreadyClosed, and InvalidConfiguration if there is a
        `message_listener`.
        """
        if timeout_millis is not None:
            check_type(int, timeout_millis, "timeout_millis")
        if self._lane is not None:
            raise InvalidConfiguration("all messages go to message_listener")
        if timeout_millis is None:
            return self._made(self._consumer.receive())
        if not self._has_queue:
            raise InvalidConfiguration("receive with a timeout needs a receiver_queue_size")
        try:
            return self._made(self._consumer.receive(max(0, timeout_millis) / 1000))
        except OperationTimeoutError:
            raise Timeout(f"Pulsar error: TimeOut: no message within {timeout_millis} ms") from None

    @officially
    def batch_receive(self) -> list[Message]:
        """Messages as `batch_receive_policy` says: by default up to 10 MiB, or what came within
        100 ms. Empty if the consumer is closed, has a listener or no queue.
        """
        if self._lane is not None or not self._has_queue or self._is_closed:
            return []
        try:
            return [self._made(each) for each in self._consumer.receive_batch()]
        except AlreadyClosedError:
            return []

    @officially
    def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledge a message. Acknowledgements are sent in groups, within 100 ms. Raises
        AlreadyClosed, and OperationNotSupported for an id that doesn't tell which of several topics
        it is of.
        """
        found = target(message, self._consumer)
        try:
            self._consumer.acknowledge(found)
        except InvalidArgumentError as error:
            raise OperationNotSupported(str(error)) from error

    @officially
    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge the message and all before it in its partition. Raises
        CumulativeAcknowledgementNotAllowedError on a Shared or KeyShared subscription.
        """
        found = target(message, self._consumer)
        if self._type in (ConsumerType.Shared, ConsumerType.KeyShared):
            raise CumulativeAcknowledgementNotAllowedError(
                f"{self._type} has no cumulative acknowledgement: acknowledge each message"
            )
        self._consumer.acknowledge_cumulative(found)

    @officially
    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Have the message redelivered after `negative_ack_redelivery_delay_ms`."""
        found = target(message, self._consumer)
        if not self._is_closed:
            self._consumer.negative_acknowledge(found)

    def pause_message_listener(self) -> None:
        """Call the listener no more until `resume_message_listener`; a running call goes on. Raises
        InvalidConfiguration without a listener.
        """
        self._listener().pause()

    def resume_message_listener(self) -> None:
        """Call the listener again. Raises InvalidConfiguration without a listener."""
        self._listener().resume()

    @officially
    def redeliver_unacknowledged_messages(self) -> None:
        """Have all received messages that are not acknowledged redelivered."""
        self._consumer.redeliver_unacknowledged_messages()

    @officially
    def seek(self, messageid: MessageId | int) -> None:
        """Move the subscription behind a message, or to a publish time in ms since 1970. Raises
        ValueError for another type, and OperationNotSupported as `acknowledge`.
        """
        place = place_of(messageid)
        self._check_open()
        try:
            self._consumer.seek(place)
        except InvalidArgumentError as error:
            raise OperationNotSupported(str(error)) from error

    @officially
    def close(self) -> None:
        """Leave the subscription. Raises AlreadyClosed the second time; after `unsubscribe` the
        first call does nothing.
        """
        if self._may_close:
            self._may_close = False
            return
        self._check_open()
        with closing_of(self, [self._lane]):
            self._consumer.close()
        self._forget()

    def is_connected(self) -> bool:
        """Whether it is connected to the brokers of all partitions."""
        return not self._is_closed and self._consumer.is_connected

    @officially
    def get_last_message_id(self) -> MessageId:
        """Id of the topic's last message. Raises OperationNotSupported for several topics or
        partitions: there is one of each.
        """
        found = self._consumer.last_message_ids()
        if len(found) != 1:
            raise OperationNotSupported(
                "there are several topics or partitions: consume each by itself"
            )
        return MessageId._of(found[0])

    def _made(self, message: Any) -> Message:
        return Message._made(message, self._schema, self._consumer)

    def _listener(self) -> Lane:
        if self._lane is None:
            raise InvalidConfiguration("the consumer has no message_listener")
        return self._lane

    def _check_open(self) -> None:
        if self._is_closed:
            raise AlreadyClosed("Pulsar error: AlreadyClosed: the consumer is closed")


def place_of(to: object) -> Any:
    """What `seek` of `geminga` takes for a message id or a time. Raises ValueError."""
    if isinstance(to, MessageId):
        return to._place
    if isinstance(to, int):
        return to
    raise ValueError(f"messageid must be a MessageId or ms since 1970, not {type(to).__name__}")
