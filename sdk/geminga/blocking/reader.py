"""`Reader` of `geminga.blocking`. Made by tools/faces.py from `aio`: don't edit."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Generic

import geminga.reader
from geminga._bridge.threads import ThreadBlock, ThreadReceiver, ThreadSession
from geminga._consuming.statistics import ConsumerStatistics as ConsumerStatistics
from geminga.entry_batch import EntryBatch as EntryBatch
from geminga.message import Message, V_co
from geminga.reader import consumer_of
from geminga_protocol.message_id import MessageId


class Reader(ThreadBlock, Generic[V_co]):
    """Reads a topic's messages from a start id on. Made by `Client.create_reader`.

    The broker remembers nothing of it: after a lost connection it goes on behind the last message
    that the program took.
    """

    def __init__(self, session: ThreadSession, inner: geminga.reader.Reader[V_co]) -> None:
        self._session = session
        self._inner = inner
        self._receiver = ThreadReceiver(session, consumer_of(inner))

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def topics(self) -> list[str]:
        """Full names of the topics, each partition by itself."""
        return self._inner.topics

    @property
    def is_connected(self) -> bool:
        """Whether the brokers of all partitions know the reader now."""
        return self._inner.is_connected

    @property
    def reached_end_of_topic(self) -> bool:
        """Whether the topic is terminated and everything in it was read."""
        return self._inner.reached_end_of_topic

    def read_next(self, timeout_s: float | None = None) -> Message[V_co]:
        """The next message. Raises OperationTimeoutError after `timeout_s` seconds, and what
        `receive` does.
        """
        message = self._receiver.receive(timeout_s)
        self._receiver.acknowledge_read(message)
        return message

    def read_batches(
        self, timeout_s: float | None = None, *, bytes_max: float = math.inf
    ) -> list[EntryBatch]:
        """Wait for an entry, then take all that are there, whole: up to `bytes_max` bytes of
        payload, but one in any case. For programs that work on many messages at a time: it costs
        something per batch, and next to nothing per message.

        Raises OperationTimeoutError after `timeout_s` seconds, and what `receive` does.
        """
        return self._receiver.read_batches(timeout_s, bytes_max)

    def last_message_ids(self) -> list[MessageId]:
        """Id of the last message of each partition; -1:-1 for one without messages."""
        return self._receiver.call(lambda: self._inner.last_message_ids())

    def received_ids(self) -> list[MessageId]:
        """The last entry of each partition that the broker sent, also one that no message came out
        of: a chunk that isn't its message's last, or one that can't be decoded. -1:-1 before the
        first one, and after a lost connection or a seek until the next one.
        """
        return self._inner.received_ids()

    def incomplete_message_ids(self) -> list[MessageId]:
        """Last chunks that came since the reader was opened, or since this was asked, and whose
        messages couldn't be put together: they begin before the reader's start, or were given up
        (`max_pending_chunked_messages`, `expire_time_of_incomplete_chunked_message_s`). Of each
        partition the latest 10 000.
        """
        return self._inner.incomplete_message_ids()

    def statistics(self) -> ConsumerStatistics:
        """What the reader did."""
        return self._inner.statistics()

    def has_message_available(self) -> bool:
        """Whether there is a message after those that were read."""
        return self._session.call(self._receiver.has_message_available)

    def seek(
        self, to: MessageId | datetime | int | Callable[[str], MessageId | datetime | int | None]
    ) -> None:
        """Go on at a message id, at a time (a datetime with its time zone, or ms since 1970), or at
        what a function tells for each partition (see `Consumer.seek`).
        """
        self._receiver.call(lambda: self._inner.seek(to))

    def close(self) -> None:
        """Leave the topic. Idempotent."""
        self._receiver.close()

    def __iter__(self) -> Reader[V_co]:
        return self

    def __next__(self) -> Message[V_co]:
        message = self._receiver.next()
        self._receiver.acknowledge_read(message)
        return message
