"""Finds the ends of topics for each micro-batch of a stream (spec SP-05).

Keeps a consumer for each topic, which receives and retains nothing, so that a look takes one
request. Never creates a topic: a deleted one stays deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable

import geminga
import geminga.blocking
from geminga import GemingaError, MessageId, TopicNotFoundError
from pyspark_pulsar._clients import for_each
from pyspark_pulsar._names import partition_of
from pyspark_pulsar._options import ReadOptions
from pyspark_pulsar._positions import BEGIN, Position

logger = logging.getLogger("pyspark_pulsar")

KEPT_MAX = 1000
"""Consumers that are kept; those of further topics are opened for each look."""


class _Watcher:
    """A consumer of one topic, used only to find its end."""

    def __init__(self, consumer: geminga.blocking.Consumer[bytes]) -> None:
        self._consumer = consumer
        self._passed = BEGIN

    def last(self) -> Position:
        """The last entry, BEGIN if the topic has no messages. Raises GemingaError."""
        last = max(self._consumer.last_message_ids())
        found = Position(last.ledger_id, last.entry_id)
        if last.entry_id < 0:
            return BEGIN
        if found != self._passed:
            # Else the broker would report a backlog for it.
            self._consumer.acknowledge_cumulative(MessageId(*found[:2]))
            self._passed = found
        return found

    def close(self) -> None:
        """Leave the topic."""
        with contextlib.suppress(GemingaError):
            self._consumer.close()


class TopicEnds:
    """Finds the ends of topics, a few at a time."""

    def __init__(self, client: geminga.blocking.Client, options: ReadOptions) -> None:
        self._client = client
        self._options = options
        prefix = options.subscription_role_prefix
        self._prefix = f"{prefix}-spark-ends" if prefix else "spark-ends"
        self._kept: dict[str, _Watcher] = {}
        self._missing: set[str] = set()
        """Partitions that were reported missing."""

    def present(self, topics: Iterable[str]) -> list[str]:
        """The topics that exist. Raises GemingaError."""
        names = list(topics)
        found = for_each(lambda name: name in self._kept or self._last(name) is not None, names)
        return [name for name, is_there in zip(names, found, strict=True) if is_there]

    def last(self, topics: Iterable[str]) -> dict[str, Position]:
        """The last entry of each topic, BEGIN if it has no messages; missing topics are left out.
        Raises GemingaError.
        """
        names = list(topics)
        lasts = for_each(self._last, names)
        return {name: at for name, at in zip(names, lasts, strict=True) if at is not None}

    def close(self) -> None:
        """Leave all topics."""
        while self._kept:
            self._kept.popitem()[1].close()

    def _last(self, topic: str) -> Position | None:
        kept = self._kept.get(topic)
        if kept is not None:
            try:
                return kept.last()
            except GemingaError as error:
                del self._kept[topic]
                kept.close()
                if error.retryable:
                    raise
                # The topic was deleted, and perhaps created again.
        try:
            opened = self._open(topic)
        except TopicNotFoundError:
            self._tell_missing(topic)
            return None
        if len(self._kept) < KEPT_MAX:
            self._kept[topic] = opened
            return self._last_of_new(topic, opened)
        try:
            return opened.last()
        finally:
            opened.close()

    def _last_of_new(self, topic: str, opened: _Watcher) -> Position:
        self._missing.discard(topic)
        try:
            return opened.last()
        except GemingaError:
            del self._kept[topic]
            opened.close()
            raise

    def _open(self, topic: str) -> _Watcher:
        options = self._options
        consumer = self._client.subscribe(
            topic,
            f"{self._prefix}-{os.urandom(5).hex()}",
            durable=False,
            auto_create=False,
            # Without permits the broker sends nothing.
            receiver_queue_size=0,
            read_compacted=options.read_compacted,
            consumer_name=options.reader_name,
        )
        return _Watcher(consumer)

    def _tell_missing(self, topic: str) -> None:
        if partition_of(topic)[1] >= 0 and topic not in self._missing:
            self._missing.add(topic)
            logger.info(
                "topic %s: doesn't exist, though it is one of a topic's partitions: it was deleted "
                "with its messages (as partitions without a subscription are once they are idle), "
                "or never used",
                topic,
            )
