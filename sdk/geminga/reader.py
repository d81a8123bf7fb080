"""Reading a topic from a chosen position, without a subscription (spec SDK-28)."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Generic

import trio

from geminga._connection.opening import Block
from geminga._consuming.entry_reading import read_batches, received_ids, take_incomplete
from geminga._consuming.statistics import ConsumerStatistics
from geminga._options.arguments import duration, positive_size
from geminga.consumer import Consumer, receiving_of
from geminga.entry_batch import EntryBatch
from geminga.errors import AlreadyClosedError, OperationTimeoutError
from geminga.message import Message, V_co
from geminga_protocol.message_id import MessageId


class Reader(Block, Generic[V_co]):
    """Reads a topic's messages from a start id on. Created by `Client.create_reader`.

    The broker stores no position: after a lost connection it continues after the last message that
    the program took.
    """

    def __init__(self, consumer: Consumer[V_co]) -> None:
        self._consumer = consumer
        self._receiving = receiving_of(consumer)

    def __repr__(self) -> str:
        return f"<Reader {self._consumer.consumer_name!r} on {self.topics}>"

    @property
    def topics(self) -> list[str]:
        """Full names of the topics; each partition is listed."""
        return self._consumer.topics

    @property
    def is_connected(self) -> bool:
        """Whether the reader is connected to the brokers of all partitions."""
        return self._consumer.is_connected

    @property
    def reached_end_of_topic(self) -> bool:
        """Whether the topic is terminated and everything in it was read."""
        return self._consumer.reached_end_of_topic

    @trio.lowlevel.enable_ki_protection
    async def read_next(self, timeout_s: float | None = None) -> Message[V_co]:
        """The next message. Raises OperationTimeoutError after `timeout_s` seconds, and the errors
        of `Consumer.receive`.
        """
        message = await self._consumer.receive(timeout_s)
        await self._note(message)
        return message

    async def _note(self, message: Message[V_co]) -> None:
        """Acknowledge, so that the broker's statistics show the reader's position."""
        with suppress(AlreadyClosedError):
            await self._consumer.acknowledge_cumulative(message)

    @trio.lowlevel.enable_ki_protection
    async def read_batches(
        self, timeout_s: float | None = None, *, bytes_max: float = math.inf
    ) -> list[EntryBatch]:
        """Wait for an entry, then take all available whole entries, up to `bytes_max` bytes of
        payload, at least one. For programs that process many messages at a time: the cost is per
        batch, with almost none per message.

        Raises OperationTimeoutError after `timeout_s` seconds, and errors of `Consumer.receive`.
        """
        if timeout_s is not None:
            duration(timeout_s, "timeout_s")
        positive_size(bytes_max, "bytes_max")
        entries = await read_batches(self._receiving, bytes_max, timeout_s)
        if not entries:
            raise OperationTimeoutError(f"no message within {timeout_s} s")
        return entries

    async def last_message_ids(self) -> list[MessageId]:
        """Id of the last message of each partition; -1:-1 for one without messages."""
        return await self._consumer.last_message_ids()

    def received_ids(self) -> list[MessageId]:
        """The last entry of each partition that the broker sent, even without a complete message:
        a chunk that isn't the last one, or an undecodable entry. -1:-1 before the first one, and
        after a lost connection or a seek until the next one.
        """
        return received_ids(self._receiving)

    def incomplete_message_ids(self) -> list[MessageId]:
        """Ids of last chunks, received since the last call, of messages that couldn't be assembled:
        they begin before the reader's start, or were dropped (`max_pending_chunked_messages`,
        `expire_time_of_incomplete_chunked_message_s`). The latest 10 000 of each partition.
        """
        return take_incomplete(self._receiving)

    def statistics(self) -> ConsumerStatistics:
        """The reader's counters."""
        return self._consumer.statistics()

    async def has_message_available(self) -> bool:
        """Whether there is a message after the last read one."""
        return await self._consumer.has_message_available()

    async def seek(
        self, to: MessageId | datetime | int | Callable[[str], MessageId | datetime | int | None]
    ) -> None:
        """Continue at a message id, at a time (a datetime with a time zone, or ms since 1970), or
        at the result of a function called for each partition (see `Consumer.seek`).
        """
        await self._consumer.seek(to)

    async def aclose(self) -> None:
        """Leave the topic. Idempotent."""
        await self._consumer.aclose()

    def __aiter__(self) -> Reader[V_co]:
        return self

    @trio.lowlevel.enable_ki_protection
    async def __anext__(self) -> Message[V_co]:
        message = await self._consumer.__anext__()
        await self._note(message)
        return message


def consumer_of(reader: Reader[V_co]) -> Consumer[V_co]:
    """A reader's consumer, for the package's own use."""
    return reader._consumer
