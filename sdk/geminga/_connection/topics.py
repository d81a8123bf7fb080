"""Requests about topics (spec SDK-26, SDK-40, SDK-41)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from re import Pattern

import trio

from geminga._connection.core import Core
from geminga._connection.schema_lookup import schema_of
from geminga._connection.together import gathered
from geminga._connection.topic_pattern import Listed, TopicPattern, listed_matching, parse_pattern
from geminga.errors import (
    GemingaError,
    InvalidArgumentError,
    InvalidTopicNameError,
    TopicNotFoundError,
)
from geminga.options import RegexSubscriptionMode
from geminga.schema._info import SchemaInfo
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.topic_name import TopicName

LOOKUPS_AT_ONCE = 16
"""Concurrent requests for numbers of partitions."""


def parse_topic(topic: str) -> TopicName:
    """The full name. Raises InvalidArgumentError and InvalidTopicNameError."""
    if not isinstance(topic, str):
        raise InvalidArgumentError(f"topic must be a text, not {topic!r}")
    try:
        return TopicName.parse(topic)
    except LocalProtocolError as error:
        raise InvalidTopicNameError(f"topic: {error}") from error


class Topics:
    """Requests about topics; `check_open` raises an error if the client is closed."""

    def __init__(self, core: Core, check_open: Callable[[], None]) -> None:
        self._core = core
        self._check_open = check_open

    async def partitions_of(self, topic: TopicName) -> int:
        """Number of partitions; 0 for an unpartitioned topic. A missing topic is created if the
        brokers' policies allow it.
        """
        self._check_open()
        if topic.is_partition:
            await trio.lowlevel.checkpoint()
            return 0
        return await self._ask_for_partitions(topic, auto_create=True)

    async def partitions_if_there(self, topic: TopicName) -> int:
        """Number of partitions, without creating the topic. Raises TopicNotFoundError."""
        self._check_open()
        return await self._ask_for_partitions(topic, auto_create=False)

    async def _ask_for_partitions(self, topic: TopicName, *, auto_create: bool) -> int:
        core = self._core
        try:
            # A failover may change the lookup between two tries.
            return await core.with_retries(
                lambda: core.lookup.partitions_of(str(topic), auto_create=auto_create)
            )
        except GemingaError as error:
            raise error.of_topic(str(topic)) from error.__cause__

    async def expand(
        self, topics: Iterable[TopicName], *, auto_create: bool = True
    ) -> list[tuple[str, int]]:
        """All partitions of the topics by full name and index, each once. Without `auto_create`
        raises TopicNotFoundError instead of creating a topic.
        """
        ask = self.partitions_of if auto_create else self.partitions_if_there

        async def parts_of(topic: TopicName) -> dict[str, int]:
            # Whether a single partition exists is found out by subscribing.
            return _parts(topic, 0 if topic.is_partition else await ask(topic))

        return _joined(await gathered(parts_of, topics, LOOKUPS_AT_ONCE))

    async def expand_if_there(self, topics: Iterable[TopicName]) -> list[tuple[str, int]]:
        """All partitions of existing topics; none is created."""
        return _joined(await self.parts_if_there(topics))

    async def parts_if_there(self, topics: Iterable[TopicName]) -> list[dict[str, int]]:
        """The partitions of each topic; empty for a missing one."""

        async def parts_of(topic: TopicName) -> dict[str, int]:
            try:
                return _parts(
                    topic, 0 if topic.is_partition else await self.partitions_if_there(topic)
                )
            except TopicNotFoundError:
                return {}

        return await gathered(parts_of, topics, LOOKUPS_AT_ONCE)

    async def listed(
        self, pattern: TopicPattern, flags: int, mode: RegexSubscriptionMode
    ) -> Listed:
        """The topics whose whole names match, each with the names in the broker's list."""
        self._check_open()
        core = self._core
        names, filtered = await core.with_retries(lambda: core.lookup.topics_of(pattern, mode))
        return listed_matching(pattern, names, flags=flags, filtered=filtered)

    async def names_matching(self, pattern: Pattern[str], mode: RegexSubscriptionMode) -> list[str]:
        """Full names of matching topics. Raises InvalidArgumentError."""
        if not isinstance(pattern, Pattern):
            raise InvalidArgumentError(
                f"pattern must be a compiled regular expression, not {pattern!r}"
            )
        if not isinstance(mode, RegexSubscriptionMode):
            raise InvalidArgumentError(f"mode must be a RegexSubscriptionMode, not {mode!r}")
        return sorted(map(str, await self.listed(parse_pattern(pattern), pattern.flags, mode)))

    async def schema_of(self, topic: TopicName, version: bytes | None) -> SchemaInfo | None:
        """A version of the topic's schema, by default the latest; None if there is none. Raises
        InvalidArgumentError and TopicNotFoundError.
        """
        if version is not None and not isinstance(version, bytes):
            raise InvalidArgumentError(f"version must be bytes, not {version!r}")
        asked = topic
        if await self.partitions_if_there(topic):
            # Ask for a partition, which has the topic's schema: no broker owns the topic itself.
            asked = topic.partition(0)
        try:
            return await schema_of(self._core, str(asked), version)
        except GemingaError as error:
            raise error.of_topic(str(topic)) from error.__cause__


def _joined(parts: Iterable[dict[str, int]]) -> list[tuple[str, int]]:
    found: dict[str, int] = {}
    for each in parts:
        found |= each
    return list(found.items())


def _parts(topic: TopicName, count: int) -> dict[str, int]:
    if count:
        return {str(topic.partition(n)): n for n in range(count)}
    return {str(topic): topic.partition_index}
