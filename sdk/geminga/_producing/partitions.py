"""The partitions of one producer: routing, starting, and new ones (spec SDK-03;
PartitionedProducerImpl of the Java client).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import trio

from geminga._connection.core import Core
from geminga._connection.retry import FATAL
from geminga._connection.together import together, undone_on_error
from geminga._entries.encode import Extras
from geminga._options.arguments import several
from geminga._producing.intercepted import InterceptedProducer, Interceptors
from geminga._producing.outbox import Placed
from geminga._producing.partition_producer import PartitionProducer
from geminga._producing.receipt import Receipt
from geminga._producing.routing import Router
from geminga._producing.schema_encoding import prepared
from geminga.errors import GemingaError, InvalidArgumentError, TopicNotFoundError
from geminga.options import (
    BatchingType,
    ProducerAccessMode,
    ProducerOptions,
    RoutedMessage,
)
from geminga_protocol.topic_name import TopicName

logger = logging.getLogger("geminga")

RUN_BYTES_MAX = 1024 * 1024
"""Bound of messages added at once, which together may exceed the memory limit."""


class Partitions:
    """Producers of all partitions; `parts` only grows, but a failed one may be replaced."""

    def __init__(self, core: Core, topic: TopicName, count: int, options: ProducerOptions) -> None:
        """`count` is 0 for an unpartitioned topic."""
        self.core = core
        self._topic = topic
        self.options = options
        self._count = count
        given = options.interceptors
        self._interceptors = Interceptors(given) if given else None
        if count:
            self.parts = [self._make(n) for n in range(count)]
        else:
            self.parts = [self._new(str(topic), topic.partition_index)]
        self._router = Router(options, len(self.parts), core.chance)
        self._sealed_seen = 0
        self._watch_scope = trio.CancelScope()

    def _make(self, index: int) -> PartitionProducer:
        return self._new(str(self._topic.partition(index)), index)

    def _new(self, topic: str, index: int) -> PartitionProducer:
        interceptors = self._interceptors
        if interceptors is None:
            return PartitionProducer(self.core, topic, index, self.options)
        return InterceptedProducer(self.core, topic, index, self.options, interceptors)

    @property
    def is_partitioned(self) -> bool:
        """Whether the topic has partitions."""
        return self._count > 0

    @property
    def is_lazy(self) -> bool:
        """Whether partitions are started by their first message. One is always started at once, so
        that a refusal is raised then; exclusive producers need all.
        """
        options = self.options
        return (
            options.lazy_start_partitioned_producers
            and options.access_mode is ProducerAccessMode.SHARED
        )

    @property
    def started(self) -> list[PartitionProducer]:
        """The started ones."""
        return [part for part in self.parts if part.is_started]

    async def start(self) -> None:
        """Wait until all that are to be started are connected. Raises the first GemingaError."""
        if self.is_lazy:
            await self.parts[self._router.current].start()
        else:
            await self._start_first_ones()
        if self._count and self.options.auto_update_partitions:
            self.core.nursery.start_soon(self._watch)

    async def _start_first_ones(self) -> None:
        rest = self.parts
        if self.options.access_mode is not ProducerAccessMode.SHARED:
            # First the first one: otherwise two producers that wait for access might hold some
            # partitions each, and wait for each other for ever.
            await rest[0].start()
            rest = rest[1:]
        await together(part.start for part in rest)

    def stop(self) -> None:
        """Stop the search for new partitions."""
        self._watch_scope.cancel()

    def closed(self) -> None:
        """All are closed: close the interceptors."""
        interceptors, self._interceptors = self._interceptors, None
        if interceptors is not None:
            interceptors.close(str(self._topic))

    def choose(self, data: bytes, extras: Extras | None) -> PartitionProducer:
        """The partition for a message. Raises InvalidArgumentError for a router's bad result."""
        parts = self.parts
        if len(parts) == 1:
            return parts[0]
        part = self._route(data, extras)
        if part.error is not None:
            part = self._anew(part)
        if not part.is_started:
            part.start_soon()
        return part

    # ---- sending checked messages ----

    @property
    def takes_bytes(self) -> bool:
        """Whether bytes are sent without encoding."""
        schema = self.options.schema
        return schema is None or schema._passes_bytes

    @property
    def joins(self) -> bool:
        """Whether messages may join an open batch: unseen by interceptors, whatever their keys."""
        options = self.options
        return (
            self.takes_bytes
            and options.batching_enabled
            and options.batching_type is BatchingType.DEFAULT
            and not options.interceptors
        )

    @property
    def pending_max(self) -> int:
        """Bound of pending messages, over all partitions."""
        return self.options.max_pending_messages * len(self.parts)

    @property
    def settled_messages(self) -> int:
        """Number of messages that have got their receipt or failed."""
        return sum(part.counts.messages + part.counts.failed for part in self.parts)

    def all_prepared(self, values: Iterable[Any]) -> list[tuple[bytes, Extras | None]]:
        """The messages of `submit_many`. Raises InvalidArgumentError and MessageTooBigError."""
        several(values, "payloads")
        ready = [prepared(self.options.schema, each, None, {}) for each in values]
        largest = max((len(payload) for payload, _ in ready), default=0)
        for part in self.parts:
            part.check_size(largest)
        return ready

    def send_checked(self, data: bytes, extras: Extras | None, sequence_id: int | None) -> Receipt:
        """Add a message if there is room. Raises ProducerQueueFullError, MemoryLimitError, and the
        error that ended the producer.
        """
        part = self.choose(data, extras)
        if not part.has_room():
            part.check_room(len(data))
        return part.add(data, extras, sequence_id)

    async def send_checked_soon(
        self, data: bytes, extras: Extras | None, sequence_id: int | None
    ) -> Receipt:
        """`send_checked`, waiting for room."""
        part = self.choose(data, extras)
        await part.wait_for_room(len(data))
        return part.add(data, extras, sequence_id)

    def send_run(self, payloads: Sequence[bytes]) -> list[Placed]:
        """Send messages with a payload only, as far as there is room; none if they must be sent
        singly.
        """
        return self.parts[0].add_run(payloads) if len(self.parts) == 1 else []

    def send_plain(self, messages: Sequence[tuple[bytes, Extras | None]]) -> list[Receipt]:
        """Send the first of these at once, as far as there is room; none if they are large, or have
        options.
        """
        payloads = [data for data, extras in messages if extras is None]
        if len(payloads) < len(messages) or sum(map(len, payloads)) > RUN_BYTES_MAX:
            return []
        placed = self.send_run(payloads)
        return [Receipt(each, first + n) for each, first, count in placed for n in range(count)]

    def _anew(self, part: PartitionProducer) -> PartitionProducer:
        """A new producer in place of one that failed to start in time: its broker may be reachable
        now. (One that was connected before retries by itself.)
        """
        if isinstance(part.error, FATAL) or self._watch_scope.cancel_called:
            return part
        index = self.parts.index(part)
        fresh = self.parts[index] = self._make(index)
        fresh.counts = part.counts
        return fresh

    def _route(self, data: bytes, extras: Extras | None) -> PartitionProducer:
        parts = self.parts
        key = None if extras is None else extras.partition_key
        if self.options.message_router is not None:
            routed = RoutedMessage(
                data,
                key,
                None if extras is None else extras.ordering_key,
                (extras.properties or {}) if extras is not None else {},
            )
            chosen = self.options.message_router(routed, len(parts))
            if not isinstance(chosen, int) or not 0 <= chosen < len(parts):
                raise InvalidArgumentError(
                    f"message_router returned {chosen!r} for {len(parts)} partitions",
                    topic=str(self._topic),
                )
            return parts[chosen]
        if key is not None:
            return parts[self._router.by_key(key)]
        part = parts[self._router.current]
        if part.outbox.sealed_batches == self._sealed_seen and part.error is None:
            return part
        return self._next_in_turn()

    def _next_in_turn(self) -> PartitionProducer:
        """The next partition that has not ended (deleted, terminated, fenced); if all have, any."""
        router = self._router
        router.rotate()
        part = self.parts[router.current]
        for _ in range(router.turns - 1):
            if not isinstance(part.error, FATAL):
                break
            router.rotate()
            part = self.parts[router.current]
        self._sealed_seen = part.outbox.sealed_batches
        return part

    async def _watch(self) -> None:
        with self._watch_scope:
            while True:
                await trio.sleep(self.options.auto_update_partitions_interval_s)
                try:
                    # Don't recreate a deleted topic.
                    count = await self.core.lookup.partitions_of(
                        str(self._topic), auto_create=False
                    )
                    await self._revive(count)
                    await self._grow(count)
                except GemingaError as error:
                    logger.warning("%s: checking for new partitions failed: %s", self._topic, error)

    async def _revive(self, count: int) -> None:
        """Add recreated partitions that had been deleted."""
        for index, part in enumerate(self.parts[:count]):
            if not isinstance(part.error, TopicNotFoundError):
                continue
            fresh = self._make(index)
            if not self.is_lazy or len(self.parts) == 1:
                try:
                    await self._start_all([fresh])
                except TopicNotFoundError as error:
                    logger.debug("%s: %s", fresh.topic, error)
                    continue
            fresh.counts = part.counts
            self.parts[index] = fresh
            logger.info("%s: the partition exists again", fresh.topic)

    async def _grow(self, count: int) -> None:
        """Add new partitions once all of them are connected; then keys move."""
        if count <= len(self.parts):
            if count < len(self.parts):
                logger.warning("%s: %d partitions are left", self._topic, count)
            return
        added = [self._make(n) for n in range(len(self.parts), count)]
        if not self.is_lazy:
            await self._start_all(added)
        self.parts += added
        self._router.grow(count)
        if self._interceptors is not None:
            self._interceptors.partitions_changed(str(self._topic), count)
        logger.info("%s: %d partitions now", self._topic, count)

    @staticmethod
    async def _start_all(added: list[PartitionProducer]) -> None:
        async with undone_on_error(lambda: together(part.aclose for part in added)):
            await together(part.start for part in added)
            # A concurrent `aclose` has closed only the earlier ones.
            await trio.lowlevel.checkpoint_if_cancelled()
