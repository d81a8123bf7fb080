"""One client's connection: ids and lifetimes (spec PR-04 to PR-07, PR-12).

The session owns the connection's producers, consumers and watchers, and its bounds. The handlers of
commands are functions of this package, found through `table.ROUTES`. One task reads; commands that
need storage run in tasks of the session's nursery, so that reading continues.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import trio

from geminga_bookie.errors import BookkeeperError
from geminga_broker.authz.authorizer import Caller
from geminga_broker.authz.commands import COMMANDS
from geminga_broker.authz.grants import SubscriptionRefused
from geminga_broker.authz.needs import Place
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogError
from geminga_broker.service import BrokerService
from geminga_broker.session.backpressure import Backpressure
from geminga_broker.session.liveness import Liveness
from geminga_broker.session.registry import Registry
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.topic.moving import Moving
from geminga_broker.topic.producer import Producer
from geminga_protocol.commands import consuming, producing
from geminga_protocol.errors import ProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, FeatureFlags, ServerError
from geminga_runtime.json_text import BadJson
from geminga_runtime.logs import LineBudget, shown
from geminga_runtime.metadata.api import MetadataError
from geminga_runtime.stream import FramedStream

_log = logging.getLogger(__name__)

TEXT_CHARACTERS_MAX = 16 * 1024
"""Limit of an error's text: some quote schemas."""

REFUSALS_LOGGED_MAX = 30
"""Unauthorized commands of one connection that are logged in REFUSALS_PERIOD_S; more are counted.
"""

REFUSALS_PERIOD_S = 60.0

CLOSES_A_TURN = 64
"""Producers and consumers of an ended connection that are closed in a turn of the loop, a few ms.
"""

NO_REQUEST = (1 << 64) - 1
"""Request id -1, of commands from the broker."""


class _Close(Protocol):
    """CLOSE_PRODUCER or CLOSE_CONSUMER."""

    def __call__(
        self,
        key: int,
        request_id: int,
        /,
        *,
        assigned_broker_url: str | None = None,
        assigned_broker_url_tls: str | None = None,
    ) -> bytes: ...


Refuse = Callable[[ServerError, str], bytes]
"""Makes the response to a refused command."""


class SessionClosed(Exception):
    """Raised by a handler to close the connection; the text is logged."""


def refusal_of(error: Exception) -> tuple[ServerError, str]:
    """Code and text for the client; the text of an internal error has no details."""
    text = str(error) or type(error).__name__
    if len(text) > TEXT_CHARACTERS_MAX:
        text = text[:TEXT_CHARACTERS_MAX] + "..."
    if isinstance(error, BrokerError | ProtocolError):
        return error.code, text
    if isinstance(error, MetadataError):
        return ServerError.MetadataError, text
    if isinstance(error, LogError | BookkeeperError):
        return ServerError.PersistenceError, text
    if isinstance(error, trio.TooSlowError):
        return ServerError.ServiceNotReady, "the broker took too long"
    return ServerError.UnknownError, "internal error"


async def run_request(
    write: Callable[[bytes], None],
    ended: Callable[[], None],
    refuse: Refuse,
    run: Callable[..., Awaitable[None]],
    *args: Any,
) -> None:
    """Await `run(*args)`; on an error, write the response from `refuse`."""
    try:
        await run(*args)
    except Exception as error:
        write(refused(refuse, run, error))
    finally:
        ended()


def refused(refuse: Refuse, run: Callable[..., object], error: Exception) -> bytes:
    """The response to an error of `run`, which is logged if it isn't the client's."""
    code, text = refusal_of(error)
    if code == ServerError.UnknownError and not isinstance(error, BrokerError):
        _log.error("command failed: %s", getattr(run, "__name__", run), exc_info=error)
    elif not isinstance(error, BrokerError | ProtocolError):
        _log.warning("command %s: %r", getattr(run, "__name__", run), error)
    return refuse(code, text)


class Session:
    """A client's connection, for handlers and topics (`topic.api.ClientConnection`)."""

    def __init__(
        self,
        stream: FramedStream,
        service: BrokerService,
        nursery: trio.Nursery,
        caller: Caller | None = None,
    ) -> None:
        """If `caller` is given, the client is authenticated: CONNECT needs no credentials."""
        self.stream = stream
        self.service = service
        self.nursery = nursery
        self.address = stream.name
        self.connected = False
        self.preauthenticated = caller is not None
        self.caller = caller or Caller(None)
        """The client's roles, for authorization."""
        self.client_version = ""
        self.protocol_version = 0
        self.features = FeatureFlags()
        self.respond: Callable[[str, bytes], None] | None = None
        """Handles AUTH_RESPONSE, after CONNECT has begun an authentication."""
        self.producers: Registry[Producer] = Registry()
        self.consumers: Registry[Consumer] = Registry()
        self.watchers: dict[int, trio.CancelScope] = {}
        self.read_scope = trio.CancelScope()
        self.liveness = Liveness(stream)
        self.backpressure = Backpressure(stream, service.connections, self.liveness)
        self.started = 0
        self.write = stream.write
        self.write_now = stream.write_now
        self.on_writable = stream.on_writable
        self.long_answer = trio.Lock()
        self.refusals = LineBudget(REFUSALS_LOGGED_MAX, REFUSALS_PERIOD_S)

    def __repr__(self) -> str:
        return (
            f"<Session {self.address} client={self.client_version!r} "
            f"producers={len(self.producers)} consumers={len(self.consumers)}>"
        )

    # ---- for topics ----

    @property
    def writable(self) -> bool:
        """Whether the send buffer has room."""
        return self.stream.writable

    @property
    def supports_broker_entry_metadata(self) -> bool:
        """Whether the client wants entries with their broker entry metadata (PR-03)."""
        return self.features.supports_broker_entry_metadata

    @property
    def principal(self) -> str | None:
        """The role of the peer: the client's own, or its proxy's."""
        return self.caller.role

    async def is_alive(self) -> bool:
        """Ping the peer; drop a connection that is silent for
        `connectionLivenessCheckTimeoutMillis`.
        """
        return await self.liveness.is_alive(self.service.config.network.liveness_timeout_ms / 1000)

    def drop_producer(self, producer_id: int) -> None:
        """The broker closes a producer: notify the client and forget it."""
        if self.producers.forget(producer_id) is not None:
            self.write(producing.close_producer(producer_id, NO_REQUEST))

    def drop_consumer(self, consumer_id: int) -> None:
        """The broker closes a consumer: notify the client and forget it."""
        if self.consumers.forget(consumer_id) is not None:
            self.write(consuming.close_consumer(consumer_id, NO_REQUEST))

    def move_producer(self, producer_id: int, moving: Moving) -> None:
        """The producer's topic goes to another broker: forget it, notify the client then."""
        if self.producers.forget(producer_id) is not None:
            moving.tell(partial(self._moved, producing.close_producer, producer_id))

    def move_consumer(self, consumer_id: int, moving: Moving) -> None:
        """The consumer's topic goes to another broker: forget it, notify the client then."""
        if self.consumers.forget(consumer_id) is not None:
            moving.tell(partial(self._moved, consuming.close_consumer, consumer_id))

    def _moved(self, close: _Close, key: int, where: Addresses) -> None:
        self.write(
            close(
                key,
                NO_REQUEST,
                assigned_broker_url=where.broker_url or None,
                assigned_broker_url_tls=where.broker_url_tls or None,
            )
        )

    # ---- commands in tasks ----

    def spawn(
        self,
        refuse: Refuse,
        run: Callable[..., Awaitable[None]],
        *args: Any,
        size_bytes: int = 0,
    ) -> None:
        """Run a command of that size in a task; on a failure, send the response from `refuse`."""
        self.backpressure.request_started(size_bytes)
        ended = partial(self.backpressure.request_ended, size_bytes)
        self.nursery.start_soon(run_request, self.write, ended, refuse, run, *args)

    # ---- revoked grants ----

    def require_recheck(self) -> None:
        """Grants were revoked: check the client's right again for what it is opening now."""
        self.producers.require_recheck()
        self.consumers.require_recheck()

    async def recheck(self, concerned: Callable[[Place], bool]) -> None:
        """After a grant was revoked, close the client's producers and consumers for which it lost
        the right, of those in places that `concerned` selects. Raises MetadataError.
        """
        for kind, registry, drop in (
            (BaseCommand.Type.PRODUCER, self.producers, self.drop_producer),
            (BaseCommand.Type.SUBSCRIBE, self.consumers, self.drop_consumer),
        ):
            for key, place in registry.places(concerned):
                try:
                    allowed = await self.service.authorizer.allows(
                        self.caller, COMMANDS[kind], place
                    )
                except (SubscriptionRefused, BadJson):  # a broken record grants nothing
                    allowed = False
                opened = registry.get(key)
                if not allowed and opened is not None:
                    _log.warning(
                        "address=%s %s may no longer use %s",
                        self.address,
                        self.caller,
                        shown(place.topic),
                    )
                    drop(key)
                    opened.close()

    # ---- life ----

    def stop(self) -> None:
        """The broker ends the connection: stop reading, but send written frames."""
        self.read_scope.cancel()

    async def release(self) -> None:
        """Close all the connection's producers and consumers, many of them in turns, also when
        cancelled. No checkpoint for a few.
        """
        self.liveness.heard()
        self.backpressure.release()
        with trio.CancelScope(shield=True):
            for number, each in enumerate((*self.consumers, *self.producers), 1):
                each.close()
                if not number % CLOSES_A_TURN:
                    await trio.lowlevel.checkpoint()
