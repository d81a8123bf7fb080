"""The consumers of all topics and partitions of one subscription (spec SDK-26)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial

import trio

from geminga._connection.core import Core
from geminga._connection.together import gathered, together
from geminga._consuming.context import ConsumerContext
from geminga._consuming.discovery import Discovery
from geminga._consuming.interceptors import ConsumerInterceptors
from geminga._consuming.partition_consumer import PartitionConsumer
from geminga._consuming.statistics import ConsumerStatistics, MeasuredPart, log_interval, summed
from geminga._options.arguments import known_id, place
from geminga.errors import GemingaError, InvalidArgumentError, TopicNotFoundError
from geminga_protocol.message_id import MessageId
from geminga_protocol.topic_name import TopicName

logger = logging.getLogger("geminga")

STARTS_AT_ONCE = 16
"""Concurrent subscriptions of topics and partitions that are found later."""
Partition = tuple[str, int]
Seek = MessageId | datetime | int


class ConsumerParts:
    """One consumer for each topic or partition, in `each`; follows their changes."""

    def __init__(
        self, context: ConsumerContext, partitions: list[Partition], discovery: Discovery | None
    ) -> None:
        self._context = context
        self._discovery = discovery
        self._counts = _counted(partitions)
        self.each = [PartitionConsumer(context, *at) for at in partitions]
        self.error: GemingaError | None = None
        """The error that ended the consumer."""
        self._is_paused = False
        self._changing = trio.Lock()
        """Held while topics are added or removed, and while the subscription is deleted."""
        self._unsubscribes = 0
        """Calls of `unsubscribe` that aren't over."""
        self._is_unsubscribed = False

    @property
    def _core(self) -> Core:
        return self._context.core

    async def start(self) -> None:
        """Wait until all are connected. Raises the first GemingaError."""
        await together(part.start for part in self.each)
        self._core.intervals.add(self._roll)
        if self._core.metrics is not None:
            name = self._context.subscription.name
            self._core.metrics.add_consumer(self, self._measured, name)
        if self._discovery is not None:
            self._discovery.start(self._update)

    async def _update(self, found: list[Partition]) -> None:
        async with self._changing:
            if not self._is_unsubscribed:
                await self._follow(found)

    async def _follow(self, found: list[Partition]) -> None:
        """Add these topics and partitions, and with a pattern remove others."""
        if self._discovery is not None and self._discovery.pattern is not None:
            wanted = dict(found)
            gone = [part for part in self.each if part.topic not in wanted]
            self.each = [part for part in self.each if part.topic in wanted]
            await together(part.aclose for part in gone)
        known = {part.topic for part in self.each}
        new = [at for at in found if at[0] not in known]
        subscription = self._context.subscription
        total_max = subscription.options.receiver_queue_total_max
        share = max(1, total_max // max(1, len(known) + len(new)))
        later = subscription.for_later(min(subscription.queue_size, share))
        context = replace(self._context, subscription=later)
        await gathered(partial(self._join, context), new, STARTS_AT_ONCE)
        order = {topic: n for n, (topic, _) in enumerate(found)}
        # Earlier ones stay before new ones.
        self.each.sort(key=lambda part: -1 if part.topic in known else order[part.topic])
        self._tell_of_growth(_counted(found), self._context.interceptors)

    async def _join(self, context: ConsumerContext, at: Partition) -> None:
        if self._unsubscribes:  # which waits for those that have begun
            return  # found again by the next search, if it fails
        part = PartitionConsumer(context, *at)
        if self._is_paused:
            part.flow.pause()
        try:
            await part.start()
        except GemingaError as error:
            # Retried after the next search for topics.
            logger.warning("%s: %s", at[0], error)
        else:
            self.each.append(part)

    def _tell_of_growth(
        self, counts: dict[str, int], interceptors: ConsumerInterceptors | None
    ) -> None:
        before, self._counts = self._counts, counts
        if interceptors is not None:
            for topic, count in counts.items():
                if count != before.get(topic, count):
                    interceptors.partitions_changed(topic, count)

    def settle(self) -> None:
        """After the end of one, note its error. With a pattern, forget consumers of deleted topics:
        they are found again if recreated.
        """
        if self._discovery is not None and self._discovery.pattern is not None:
            self.each = [p for p in self.each if not isinstance(p.error, TopicNotFoundError)]
        for part in self.each:
            self.error = self.error or part.error

    def of_id(self, message_id: MessageId) -> PartitionConsumer:
        """The consumer of a message id's partition. Raises InvalidArgumentError."""
        known_id(message_id, "message")
        if len(self.each) == 1:
            return self.each[0]
        topic = getattr(message_id, "topic", "")  # an id of a program that knows it
        found = [
            part
            for part in self.each
            if (part.topic == topic if topic else part.partition == message_id.partition)
        ]
        if len(found) != 1:
            raise InvalidArgumentError(
                f"message: {message_id!r} has no topic: pass the message itself"
            )
        return found[0]

    def check(self) -> None:
        """Raises the error that ended the consumer, if any."""
        error = self.error
        if error is not None:
            raise type(error)(str(error), code=error.code, topic=error.topic)

    def demand(self) -> None:
        """A caller waits for a message."""
        for part in self.each:
            part.flow.demand()

    def top_up(self) -> None:
        """A caller waits for many messages."""
        for part in self.each:
            part.flow.top_up()

    def pause(self) -> None:
        """Request no more messages."""
        self._is_paused = True
        for part in self.each:
            part.flow.pause()

    def resume(self) -> None:
        """Request messages again."""
        self._is_paused = False
        for part in self.each:
            part.flow.resume()

    async def seek(self, to: Seek | Callable[[str], Seek | None]) -> None:
        """Move all, or the one of the id's partition. Raises GemingaError."""
        if callable(to):
            found = [(part, to(part.topic)) for part in self.each]
            moves = [(part, place(each)) for part, each in found if each is not None]
            await together(partial(part.seek, each) for part, each in moves)
            return
        at = place(to)
        parts = self.each
        if isinstance(at, MessageId) and 0 <= at.entry_id < (1 << 63) - 1:
            parts = [self.of_id(at)]
        await together(partial(part.seek, at) for part in parts)

    async def last_message_ids(self) -> list[MessageId]:
        """The id for each partition; -1:-1 for one without messages."""
        return [(await part.last_message_id())[0] for part in self.each]

    async def has_message_available(self) -> bool:
        """Whether any has an unreceived message."""
        if self._context.inbox.messages:
            await trio.lowlevel.checkpoint()
            return True
        for part in self.each:
            if await part.has_message_available():
                return True
        return False

    async def unsubscribe(self, force: bool) -> None:
        """Delete the subscription; then the consumer must be closed. Raises GemingaError."""
        if not isinstance(force, bool):
            raise InvalidArgumentError(f"force must be True or False, not {force!r}")
        self._unsubscribes += 1
        try:
            async with self._changing:  # or it would stay in a topic that is found meanwhile
                for part in self.each:
                    await part.unsubscribe(force)
                self._is_unsubscribed = True
        finally:
            self._unsubscribes -= 1

    def _roll(self) -> None:
        length_s = self._core.intervals.length_s
        for part in self.each:
            part.counts.roll(length_s)
        subscription = self._context.subscription
        if logger.isEnabledFor(logging.INFO):
            log_interval(subscription.name, subscription.consumer_name, self.statistics())

    def statistics(self) -> ConsumerStatistics:
        """The counters of all."""
        return summed({part.topic: part.statistics() for part in self.each})

    def _measured(self) -> list[MeasuredPart]:
        queued = self._context.inbox.waiting_bytes_of
        return [
            MeasuredPart(part, part.topic, part.statistics(), part.counts, queued(part))
            for part in self.each
        ]

    async def aclose(self) -> None:
        """Leave all topics."""
        self._core.intervals.remove(self._roll)
        if self._core.metrics is not None:
            # Before its queue is emptied: it knows what was taken.
            self._core.metrics.remove(self)
        try:
            if self._discovery is not None:
                await self._discovery.stop()
        finally:
            # Even if cancelled, each notifies its broker.
            await together(part.aclose for part in self.each)  # noqa: ASYNC102


def _counted(partitions: Iterable[Partition]) -> dict[str, int]:
    """Number of partitions of each topic that has any."""
    counts: dict[str, int] = {}
    for topic, index in partitions:
        if index >= 0:
            base = str(TopicName.parse(topic).partitioned_base)
            counts[base] = counts.get(base, 0) + 1
    return counts
