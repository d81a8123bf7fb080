"""The parts shared by all producers and consumers of a client."""

from __future__ import annotations

import itertools
import logging
import os
import random
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import trio

from geminga._connection.access import Access
from geminga._connection.background import Background
from geminga._connection.http_lookup import HttpLookup
from geminga._connection.lookup import Lookup
from geminga._connection.opening import Block
from geminga._connection.pool import ConnectionPool, Connector
from geminga._connection.service_url import Address, parse
from geminga._connection.statistics import Intervals
from geminga._connection.timed_lookup import TimedHttpLookup, TimedLookup
from geminga.errors import ForkError, GemingaError
from geminga.failover import FailoverCluster, watch
from geminga.options import ClientOptions
from geminga_runtime.backoff import Backoff

if TYPE_CHECKING:
    from geminga._telemetry.metrics import ClientMetrics

T = TypeVar("T")
logger = logging.getLogger("geminga")


class MemoryLimit:
    """Bytes of pending messages over all producers of a client (PIP-74; MemoryLimitController).

    One message may exceed the limit, so that a larger message can be sent at all.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        """Producers add the size of their messages."""
        self._lot = trio.lowlevel.ParkingLot()
        self._is_waited_for = False

    @property
    def has_room(self) -> bool:
        """Whether a message may be added."""
        return self.used_bytes < self.limit_bytes

    def release(self, size_bytes: int) -> None:
        """Messages are done: wake the waiters."""
        self.used_bytes -= size_bytes
        if self._is_waited_for and self.used_bytes < self.limit_bytes:
            self._is_waited_for = False
            self._lot.unpark_all()

    def wake_all(self) -> None:
        """Wake all waiters: they may wait in vain."""
        self._lot.unpark_all()

    async def wait_for_room(self) -> None:
        """Wait until there may be room."""
        self._is_waited_for = True
        await self._lot.park()


def _metrics_of(
    options: ClientOptions, pool: ConnectionPool, memory: MemoryLimit
) -> ClientMetrics | None:
    if options.meter_provider is None:
        return None
    from geminga._telemetry.metrics import ClientMetrics

    return ClientMetrics(options.meter_provider, pool, memory)


class Core:
    """The client's options, tasks, connections and counters."""

    def __init__(
        self,
        addresses: tuple[Address, ...],
        options: ClientOptions,
        nursery: Background,
        connector: Connector,
    ) -> None:
        self.options = options
        self.nursery = nursery
        self.chance = random.Random()
        self.memory = MemoryLimit(options.memory_limit_bytes)
        self._clusters = [Access(addresses, options.authentication, options)]
        if options.failover is not None:
            self._clusters += [self._secondary(each) for each in options.failover.secondary]
        self.pool = ConnectionPool(options, nursery, connector, self._clusters)
        self.metrics = _metrics_of(options, self.pool, self.memory)
        """None without a `meter_provider`."""
        self.intervals = Intervals(options.stats_interval_s, nursery)
        self.is_forked = False
        """Whether this is a copy in a forked child, without a running loop."""
        _all.add(self)
        self.open: dict[Block, None] = {}
        """Producers, consumers and readers, closed by the client's end."""
        self.producer_ids = itertools.count(0)
        self.consumer_ids = itertools.count(0)
        self.lookup = self._lookup_at(0)
        if options.failover is not None:
            nursery.start_soon(watch, options.failover, self._probe, self._switch)

    def forked(self) -> None:
        """This is now a child's copy: there is no room, and the check for it raises ForkError."""
        self.is_forked = True
        self.memory.limit_bytes = -1
        if self.metrics is not None:
            self.metrics.forget()

    def check_fork(self, topic: str | None = None) -> None:
        """Raises ForkError in a child process."""
        if self.is_forked:
            raise ForkError(
                "the client was made before the fork: make one in this process", topic=topic
            )

    def _secondary(self, where: str | FailoverCluster) -> Access:
        """A plain service URL has the primary cluster's authentication and TLS."""
        if isinstance(where, str):
            return Access(parse(where), self.options.authentication, self.options)
        return Access(parse(where.service_url), where.authentication, where)

    def _lookup_at(self, cluster: int) -> Lookup:
        access = self._clusters[cluster]
        is_http = access.addresses[0].http
        if self.metrics is None:
            kind = HttpLookup if is_http else Lookup
            return kind(access, cluster, self.options, self.pool)
        timed = TimedHttpLookup if is_http else TimedLookup
        lookup = timed(access, cluster, self.options, self.pool)
        lookup.timer = self.metrics
        return lookup

    async def _probe(self, cluster: int) -> bool:
        """Whether any host of that cluster's service URL accepts a connection."""
        for address in self._clusters[cluster].addresses:
            deadline = trio.current_time() + self.options.connection_timeout_s
            try:
                stream = await self.pool.open_stream(address, deadline, cluster)
            except GemingaError:
                continue
            await stream.aclose()
            return True
        return False

    def _switch(self, cluster: int) -> None:
        self.lookup = self._lookup_at(cluster)
        self.pool.go_to(cluster)

    async def with_retries(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The result of a repeatable call, retried after retryable errors, with back-off, until the
        operation timeout, as long as the client is open.
        """
        backoff = Backoff(
            self.options.initial_backoff_s, self.options.max_backoff_s, rng=self.chance
        )
        deadline_s = trio.current_time() + self.options.operation_timeout_s
        while True:
            try:
                return await ask()
            except GemingaError as error:
                if self.pool.is_closed:
                    raise
                delay_s = backoff.next_s(trio.current_time())
                if not error.retryable or trio.current_time() + delay_s >= deadline_s:
                    raise
                logger.warning("%s; trying again in %.1f s", error, delay_s)
            await trio.sleep(delay_s)


_all: weakref.WeakSet[Core] = weakref.WeakSet()


def _after_fork() -> None:
    for core in list(_all):
        core.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
