"""Finds out which topics and partitions a consumer has to be on (spec SDK-26;
PatternMultiTopicsConsumerImpl and PartitionsChangedListener of the Java client).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from geminga._connection import Connection
from geminga._core import Core
from geminga._topic_pattern import TopicPattern
from geminga.errors import GemingaError
from geminga_protocol.commands import lookup as commands
from geminga_runtime.backoff import Backoff
from geminga_runtime.waiters import Wakeup

logger = logging.getLogger("geminga")

Partition = tuple[str, int]
Find = Callable[[], Awaitable[list[Partition]]]
Apply = Callable[[list[Partition]], Awaitable[None]]


class Discovery:
    """Looks every `period_s`, and for a pattern whenever the broker says that its topics changed.

    What the broker tells only wakes it: the whole list is asked for, so that no change is missed
    when the connection was lost.
    """

    def __init__(
        self, core: Core, find: Find, period_s: float, pattern: TopicPattern | None = None
    ) -> None:
        self.pattern = pattern
        self._core = core
        self._find = find
        self._period_s = period_s
        self._wakeup = Wakeup()
        self._watch_lost = Wakeup()
        self._scope = trio.CancelScope()
        self._finished: trio.Event | None = None

    def start(self, apply: Apply) -> None:
        """Begin; `apply` gets what was found each time."""
        self._finished = trio.Event()
        self._core.nursery.start_soon(self._run, apply, self._finished)

    async def stop(self) -> None:
        """Until nothing is found any more. Idempotent."""
        self._scope.cancel()
        if self._finished is not None:
            await self._finished.wait()

    async def _run(self, apply: Apply, finished: trio.Event) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    if self.pattern is not None:
                        nursery.start_soon(self._watch, self.pattern)
                    await self._look(apply)
        finally:
            finished.set()

    async def _look(self, apply: Apply) -> None:
        while True:
            with trio.move_on_after(self._period_s):
                await self._wakeup.wait()
            try:
                await apply(await self._find())
            except GemingaError as error:
                logger.warning("looking for topics: %s", error)

    # ---- watching a pattern's topics ----

    async def _watch(self, pattern: TopicPattern) -> None:
        options = self._core.options
        backoff = Backoff(options.initial_backoff_s, options.max_backoff_s, rng=self._core.chance)
        while True:
            try:
                connection = await self._core.lookup.service_connection()
                if not connection.supports_topic_watchers:
                    return
                await self._watch_on(connection, pattern)
                backoff.reset()
            except GemingaError as error:
                logger.info("watching topics of %s: %s", pattern.namespace, error)
            await trio.sleep(backoff.next_s(trio.current_time()))

    async def _watch_on(self, connection: Connection, pattern: TopicPattern) -> None:
        watcher_id = self._core.next_consumer_id()
        self._watch_lost = Wakeup()
        connection.add_watcher(watcher_id, self)
        try:
            await connection.request(
                lambda n: commands.watch_topic_list(n, watcher_id, pattern.namespace, pattern.text),
                timeout_s=self._core.options.operation_timeout_s,
            )
            # What changed before the broker began to watch.
            self._wakeup.set()
            await self._watch_lost.wait()
        finally:
            connection.remove_watcher(watcher_id)
            request_id = connection.next_request_id()
            connection.write(commands.watch_topic_list_close(request_id, watcher_id))

    def on_topics_changed(self) -> None:
        """The broker says so."""
        self._wakeup.set()

    def on_watch_lost(self) -> None:
        """The connection is gone."""
        self._watch_lost.set()
