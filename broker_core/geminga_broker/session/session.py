"""One client's connection: ids, lifetimes and limits (spec PR-04 to PR-07, PR-12).

The session owns what the connection holds (producers, consumers, watchers) and its bounds. What a
command does stands in the handler functions of this package, reached through `table.ROUTES`. One
task reads; what needs storage runs in tasks of the session's nursery, so that reading goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from geminga_broker.authz.authorizer import Caller
from geminga_broker.session.registry import Registry
from geminga_broker.session.requests import Refuse, run_request
from geminga_protocol.commands import connection, consuming, producing
from geminga_protocol.pb.pulsar_api_pb2 import FeatureFlags
from geminga_runtime.logs import LineBudget

if TYPE_CHECKING:
    from geminga_broker.service import BrokerService
    from geminga_broker.session.authentication import Authentication
    from geminga_broker.topic.api import TopicConsumer, TopicProducer
    from geminga_runtime.stream import FramedStream

_log = logging.getLogger(__name__)

PENDING_PUBLISH_BYTES_MAX = 16 << 20
"""Entries of one connection that wait for storage; above it the socket isn't read until half is
stored. (Apache bounds their number, `maxPendingPublishRequestsPerConnection`.)
"""

PENDING_ENTRY_BYTES = 512
"""What each of these entries counts beside its own bytes, so that many small ones are bounded too.
"""

REQUESTS_MAX = 5000
"""Commands of one connection that run at once; above it the socket isn't read until half ended."""

PONGS_PER_INTERVAL = 3
"""A client that isn't read gets so many PONGs in a keep-alive interval: its PINGs can't be
answered, and it would give the connection up.
"""

REQUEST_BYTES_MAX = 4 << 20
"""What these may take together before the socket isn't read until half of it ended."""

REQUEST_BYTES_SHARE = 64 * 1024
"""What a connection may have of them whatever the others have."""

REFUSALS_LOGGED_MAX = 30
"""Commands of one connection that are refused for want of a grant, each with a line in the log, in
REFUSALS_PERIOD_S; the others are counted.
"""

REFUSALS_PERIOD_S = 60.0

NO_REQUEST = (1 << 64) - 1
"""Request id -1 of commands that the broker starts."""


class SessionClosed(Exception):
    """A handler found that the connection must be closed; the text goes to the log."""


class Session:
    """A client's connection, as handlers and topics see it (`connection.ClientConnection`)."""

    def __init__(self, stream: FramedStream, service: BrokerService, nursery: trio.Nursery) -> None:
        self.stream = stream
        self.service = service
        self.nursery = nursery
        self.address = stream.name
        self.tls_peer_certificate = stream.peer_certificate
        self.connected = False
        self.preauthenticated = False
        self.client_version = ""
        self.protocol_version = 0
        self.server_version = ""
        self.principal: str | None = None
        self.original_principal: str | None = None
        self.authentication: Authentication | None = None
        self.features = FeatureFlags()
        self.producers: Registry[TopicProducer] = Registry()
        self.consumers: Registry[TopicConsumer] = Registry()
        self.watchers: dict[int, trio.CancelScope] = {}
        self.read_scope = trio.CancelScope()
        self.heard_s = trio.current_time()
        self.reading = True
        self.started = 0
        self.write = stream.write
        self.write_now = stream.write_now
        self.on_writable = stream.on_writable
        self.listing = trio.Lock()
        self.refusals = LineBudget(REFUSALS_LOGGED_MAX, REFUSALS_PERIOD_S)
        self._requests = 0
        self._request_bytes = 0
        self._pending_publish_bytes = 0
        self._paused_until_s = 0.0
        self._resume: trio.Event | None = None
        self._listening: trio.Event | None = None
        self._held_back = False

    def __repr__(self) -> str:
        return (
            f"<Session {self.address} client={self.client_version!r} "
            f"producers={len(self.producers)} consumers={len(self.consumers)}>"
        )

    # ---- what topics ask of a connection ----

    @property
    def writable(self) -> bool:
        """Whether more may be written before the client reads some."""
        return self.stream.writable

    @property
    def supports_broker_entry_metadata(self) -> bool:
        """Whether the client wants entries with their broker entry metadata (PR-03)."""
        return self.features.supports_broker_entry_metadata

    def publish_pending(self, messages: int, size_bytes: int) -> None:
        """Entries were handed to storage, or (negative) came back."""
        size_bytes += messages * PENDING_ENTRY_BYTES
        self._pending_publish_bytes += size_bytes
        self.service.publish_pending(size_bytes)
        if self._resume is not None:
            self.check_resume()

    @property
    def caller(self) -> Caller:
        """The client's roles, for authorization."""
        return Caller(self.principal, self.original_principal)

    def set_identity(self, caller: Caller) -> None:
        """The client was authenticated elsewhere: its CONNECT needs no credentials."""
        self.preauthenticated = True
        self.principal, self.original_principal = caller

    def throttle(self, pause_s: float) -> None:
        """A rate limit is reached (BR-22): read nothing for so long."""
        self._paused_until_s = max(self._paused_until_s, trio.current_time() + pause_s)

    def drop_producer(self, producer_id: int) -> None:
        """The broker closes a producer: tell the client and forget it."""
        if self.producers.forget(producer_id) is not None:
            self.write(producing.close_producer(producer_id, NO_REQUEST))

    def drop_consumer(self, consumer_id: int) -> None:
        """The broker closes a consumer: tell the client and forget it."""
        if self.consumers.forget(consumer_id) is not None:
            self.write(consuming.close_consumer(consumer_id, NO_REQUEST))

    # ---- commands in tasks ----

    def spawn(
        self,
        refuse: Refuse,
        run: Callable[..., Awaitable[None]],
        *args: Any,
        size_bytes: int = 0,
    ) -> None:
        """Run a command of that size in a task; its failure is answered with what `refuse` makes
        of it.
        """
        self._count_request(1, size_bytes)
        ended = partial(self._ended, size_bytes)
        self.nursery.start_soon(run_request, self.write, ended, refuse, run, *args)

    def _count_request(self, requests: int, size_bytes: int) -> None:
        self._requests += requests
        self._request_bytes += size_bytes
        self.service.request_bytes += size_bytes

    def _ended(self, size_bytes: int) -> None:
        self._count_request(-1, -size_bytes)
        if self._resume is not None:
            self.check_resume()

    # ---- bounds ----

    @property
    def overloaded(self) -> bool:
        """Whether nothing more may be read from the client for now."""
        return (
            self._pending_publish_bytes > PENDING_PUBLISH_BYTES_MAX
            or not self.stream.writable
            or self._requests > REQUESTS_MAX
            or self._request_bytes > REQUEST_BYTES_MAX
            or (self._request_bytes > REQUEST_BYTES_SHARE and self.service.requests_full)
            or self.service.publish_buffer_full
            or self._paused_until_s > trio.current_time()
        )

    async def wait_ready(self) -> None:
        """Return when the client's work has gone down to half of the bounds."""
        self.reading = False
        self._held_back = True
        while self.overloaded:
            if self._paused_until_s > trio.current_time():
                await trio.sleep_until(self._paused_until_s)
                continue
            self._resume = trio.Event()
            self.stream.on_writable(self.check_resume)
            self.service.on_publish_buffer_drained(self.check_resume)
            await self._resume.wait()
        self._resume = None
        self.reading = True
        self.heard()

    async def until_writable(self) -> None:
        """Return when the client has read enough for a large answer to be written."""
        while not self.stream.writable:
            room = trio.Event()
            self.stream.on_writable(room.set)
            await room.wait()

    def check_resume(self) -> None:
        """Wake the reader if it waits and all is below half of the bounds."""
        if (
            self._resume is not None
            and self._pending_publish_bytes <= PENDING_PUBLISH_BYTES_MAX // 2
            and self._requests <= REQUESTS_MAX // 2
            and self._request_bytes <= REQUEST_BYTES_MAX // 2
            and (self._request_bytes <= REQUEST_BYTES_SHARE or not self.service.requests_full)
            and self.stream.writable
            and not self.service.publish_buffer_full
        ):
            self._resume.set()

    # ---- life ----

    async def keep_alive(self, interval_s: float) -> None:
        """Ping every interval; return when the peer was silent for two of them (PR-12), or has
        not sent CONNECT within the first (PulsarHandler.handleKeepAliveTimeout).

        A peer that isn't read, because it is at its bounds, can't be heard and is kept. Nor is its
        own PING: it gets PONGs unasked.
        """
        limit_s = 2 * interval_s
        while True:
            for _ in range(PONGS_PER_INTERVAL):
                await trio.sleep(interval_s / PONGS_PER_INTERVAL)
                if self._held_back and self.stream.writable:
                    self._held_back = not self.reading
                    self.write(connection.PONG)
            silent = trio.current_time() - self.heard_s >= limit_s
            if not self.connected or (self.reading and silent):
                break
            self.write(connection.PING)
        _log.info("address=%s silent for %g s or without CONNECT, dropped", self.address, limit_s)

    def heard(self) -> None:
        """The peer sent something."""
        self.heard_s = trio.current_time()
        if self._listening is not None:
            self._listening.set()
            self._listening = None

    async def is_alive(self) -> bool:
        """Ask the peer; one that is silent for `connectionLivenessCheckTimeoutMillis` is given up
        (ServerCnx.checkConnectionLiveness). A peer that isn't read counts as alive.
        """
        timeout_s = self.service.config.network.liveness_timeout_ms / 1000
        if not self.stream.lost and self.reading and timeout_s > 0:
            if self._listening is None:
                self._listening = trio.Event()
            self.write(connection.PING)
            with trio.move_on_after(timeout_s) as scope:
                await self._listening.wait()
            if scope.cancelled_caught and self.reading:
                _log.info("address=%s does not answer, dropped", self.address)
                self.stream.abort("the peer does not answer")
        return not self.stream.lost

    def stop(self) -> None:
        """The broker ends the connection: nothing more is read, what was written is still sent."""
        self.read_scope.cancel()

    def release(self) -> None:
        """Close all that the connection holds; topics go on without it."""
        self.heard()
        self._count_request(-self._requests, -self._request_bytes)
        for consumer in self.consumers:
            consumer.close()
        for producer in self.producers:
            producer.close()
