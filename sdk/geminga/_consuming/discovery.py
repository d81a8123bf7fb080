"""Finds the topics and partitions of a consumer (spec SDK-26; PatternMultiTopicsConsumerImpl and
PartitionsChangedListener of the Java client).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

import trio

from geminga._connection.connection import Connection
from geminga._connection.core import Core
from geminga._connection.topic_pattern import TopicPattern
from geminga._connection.topics import Topics
from geminga._consuming.pattern_topics import PatternTopics
from geminga.errors import BrokerError, GemingaError
from geminga_protocol.commands import lookup as commands
from geminga_protocol.topic_name import TopicName
from geminga_runtime.backoff import Backoff
from geminga_runtime.waiters import Wakeup

logger = logging.getLogger("geminga")

Partition = tuple[str, int]
Apply = Callable[[list[Partition]], Awaitable[None]]


class NamedTopics:
    """The partitions of topics named by the program."""

    pattern = None

    def __init__(self, topics: Topics, names: list[TopicName]) -> None:
        self._topics = topics
        self._names = names

    async def find(self, *, whole: bool) -> list[Partition]:
        """All partitions of existing topics, by full name and index. Raises GemingaError."""
        return await self._topics.expand_if_there(self._names)


class Discovery:
    """Searches every `period_s`, and for a pattern also when the broker reports changes.

    A periodic search, and the first one over a connection, covers all topics, so that none is
    missed; a reported change leads to a search of the changed topics only.
    """

    def __init__(self, core: Core, topics: NamedTopics | PatternTopics, period_s: float) -> None:
        self._core = core
        self._topics = topics
        self._period_s = period_s
        self._wakeup = Wakeup()
        self._watch_lost = Wakeup()
        self._scope = trio.CancelScope()
        self._finished: trio.Event | None = None

    @property
    def pattern(self) -> TopicPattern | None:
        """The pattern of the topics; None if they are named."""
        return self._topics.pattern

    def start(self, apply: Apply) -> None:
        """Begin; `apply` is called with the result of each search."""
        self._finished = trio.Event()
        self._core.nursery.start_soon(self._run, apply, self._finished)

    async def stop(self) -> None:
        """Stop, and wait for the end of a search. Idempotent."""
        self._scope.cancel()
        if self._finished is not None:
            await self._finished.wait()

    async def _run(self, apply: Apply, finished: trio.Event) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    if isinstance(self._topics, PatternTopics):
                        nursery.start_soon(self._watch, self._topics)
                    await self._look(apply)
        finally:
            finished.set()

    async def _look(self, apply: Apply) -> None:
        while True:
            with trio.move_on_after(self._period_s) as timer:
                await self._wakeup.wait()
            try:
                await apply(await self._topics.find(whole=timer.cancelled_caught))
            except GemingaError as error:
                logger.warning("topic discovery failed: %s", error)

    # ---- watching a pattern's topics ----

    async def _watch(self, topics: PatternTopics) -> None:
        options, told = self._core.options, ""
        backoff = Backoff(options.initial_backoff_s, options.max_backoff_s, rng=self._core.chance)
        while True:
            try:
                connection = await self._core.lookup.service_connection()
                if not connection.supports_topic_watchers:
                    return
                await self._watch_on(connection, topics)
                backoff.reset()
                told = ""
            except GemingaError as error:
                if str(error) != told:
                    told = str(error)
                    self._tell_unwatched(topics.pattern, error)
            await trio.sleep(backoff.next_s(trio.current_time()))

    def _tell_unwatched(self, pattern: TopicPattern, error: GemingaError) -> None:
        level = logging.WARNING if isinstance(error, BrokerError) else logging.INFO
        logger.log(
            level,
            "watching topics of %s failed; until it is possible, new ones are found every %g s: %s",
            pattern.text,
            self._period_s,
            error,
        )

    async def _watch_on(self, connection: Connection, topics: PatternTopics) -> None:
        pattern = topics.pattern
        watcher_id = next(self._core.consumer_ids)
        self._watch_lost = Wakeup()
        connection.watchers[watcher_id] = self
        try:
            await connection.request(
                lambda n: commands.watch_topic_list(n, watcher_id, pattern.namespace, pattern.text),
                timeout_s=self._core.options.operation_timeout_s,
            )
            # Changes before the broker's watch began.
            topics.changed_unseen()
            self._wakeup.set()
            await self._watch_lost.wait()
        finally:
            connection.watchers.pop(watcher_id, None)
            request_id = connection.next_request_id()
            connection.write(commands.watch_topic_list_close(request_id, watcher_id))

    def on_topics_changed(self, new: Iterable[str], gone: Iterable[str]) -> None:
        """The broker reports changed topics."""
        if isinstance(self._topics, PatternTopics):
            self._topics.changed(new, gone)
        self._wakeup.set()

    def on_watch_lost(self) -> None:
        """The connection is lost."""
        self._watch_lost.set()
