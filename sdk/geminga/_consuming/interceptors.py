"""Calls the program's interceptors of a consumer (spec SDK-11; ConsumerInterceptors of the Java
client). A consumer without interceptors has none of this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from geminga._entries.entry import Entry
from geminga._options.callbacks import FAILURES
from geminga._options.consumer_hooks import OwnInterceptor
from geminga.errors import GemingaError, InvalidArgumentError
from geminga.message import Message
from geminga.options import ConsumerInterceptor
from geminga_protocol.message_id import MessageId

logger = logging.getLogger("geminga")

Position = tuple[int, int]


class ConsumerInterceptors:
    """All interceptors of a consumer, in order."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)
        self._begun: list[OwnInterceptor] = []
        try:
            for each in self._interceptors:
                if issubclass(type(each), OwnInterceptor):
                    own = cast(OwnInterceptor, each)
                    own.begin()
                    self._begun.append(own)
        except InvalidArgumentError:
            self.abandon()
            raise

    def abandon(self) -> None:
        """The consumer can't be opened: another one may take those that are its own."""
        for each in self._begun:
            each.close()

    @classmethod
    def of(cls, interceptors: Sequence[ConsumerInterceptor]) -> ConsumerInterceptors | None:
        """None if there are none."""
        return cls(interceptors) if interceptors else None

    def before_consume(self, message: Message) -> Message:
        """The message for the program."""
        topic = message.topic_name
        for each in self._interceptors:
            try:
                answer: object = each.before_consume(topic, message)
                if not isinstance(answer, Message) or _which(answer) != _which(message):
                    raise TypeError(f"before_consume must return the message, not {answer!r}")
            except FAILURES:
                logger.exception("%s: an interceptor failed", topic)
            else:
                message = answer
        return message

    def acknowledged(
        self, topic: str, message_id: MessageId, error: GemingaError | None = None
    ) -> None:
        """A message was acknowledged, or with an error a whole entry was not."""
        self._tell(topic, lambda each: each.on_acknowledge(topic, message_id, error))

    def acknowledged_cumulative(
        self, topic: str, message_id: MessageId, error: GemingaError | None = None
    ) -> None:
        """All messages up to this one were acknowledged."""
        self._tell(topic, lambda each: each.on_acknowledge_cumulative(topic, message_id, error))

    def refused(self, topic: str, partition: int, positions: Iterable[Position]) -> None:
        """These are to be redelivered after negative acknowledgements."""
        ids = _ids(positions, partition)
        self._tell(topic, lambda each: each.on_negative_acks_send(topic, ids))

    def timed_out(self, topic: str, partition: int, positions: Iterable[Position]) -> None:
        """These are to be redelivered after the ack timeout."""
        ids = _ids(positions, partition)
        self._tell(topic, lambda each: each.on_ack_timeout_send(topic, ids))

    def partitions_changed(self, topic: str, partitions: int) -> None:
        """A topic's number of partitions changed."""
        self._tell(topic, lambda each: each.on_partitions_change(topic, partitions))

    def close(self) -> None:
        """The consumer is closed."""
        self._tell("closing", lambda each: each.close())

    def _tell(self, topic: str, call: Callable[[ConsumerInterceptor], object]) -> None:
        for each in self._interceptors:
            try:
                call(each)
            except FAILURES:
                logger.exception("%s: an interceptor failed", topic)


def _ids(positions: Iterable[Position], partition: int) -> frozenset[MessageId]:
    return frozenset(MessageId(ledger_id, entry_id, partition) for ledger_id, entry_id in positions)


def _which(message: Message) -> tuple[Entry, int]:
    return message._entry, message._index
