"""The WebSocket service beside the admin API: checks, then a handler for each kind (spec PX-09).

Refusals before the upgrade are HTTP responses, with Apache's statuses and `{"reason": ...}`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl

import msgspec
import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

import geminga
from geminga_broker.admin.guard import headers_of, identify
from geminga_broker.admin.rest import RestError
from geminga_broker.authz.authorizer import Caller
from geminga_broker.service import BrokerService
from geminga_broker.websocket.clients import client_as
from geminga_broker.websocket.consuming import serve_consumer, serve_reader
from geminga_broker.websocket.errors import (
    CLOSE_BAD_COMMAND,
    CLOSE_POLICY,
    BadCommand,
    Refused,
    refusal,
)
from geminga_broker.websocket.parameters import (
    Endpoint,
    Query,
    consumer_options,
    dead_letters_of,
    parse_path,
    producer_options,
    reader_options,
)
from geminga_broker.websocket.producing import serve_producer
from geminga_broker.websocket.text_socket import Ended, TextSocket
from geminga_runtime.logs import shown

_log = logging.getLogger(__name__)

QUERY_FIELDS_MAX = 100


class OpenSockets:
    """WebSockets of a broker, by role."""

    def __init__(self, per_role_max: int) -> None:
        """`per_role_max` 0 is no limit."""
        self._per_role_max = per_role_max
        self._open: Counter[str] = Counter()

    @contextmanager
    def one_more(self, role: str) -> Iterator[None]:
        """Count a WebSocket while the context is open. Raises Refused 429."""
        if self._per_role_max and self._open[role] >= self._per_role_max:
            _log.warning("%s has %d WebSockets open: refused", shown(role), self._open[role])
            raise Refused(429, "Too many WebSockets of this role")
        self._open[role] += 1
        try:
            yield
        finally:
            self._open[role] -= 1
            if not self._open[role]:
                del self._open[role]


class WebSocketService:
    """The WebSockets of a broker, as an ASGI application."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._open = OpenSockets(service.config.websockets.per_role_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one WebSocket."""
        websocket = WebSocket(scope, receive, send)
        try:
            await websocket.receive()  # websocket.connect
            await _Handler(self._service, self._open, websocket).run()
        except Refused as refused:
            await _refuse(websocket, refused)
        except Ended:
            pass


async def _refuse(websocket: WebSocket, refused: Refused) -> None:
    body = msgspec.json.encode({"reason": refused.reason})
    answer = Response(body, status_code=refused.status, media_type="application/json")
    await websocket.send_denial_response(answer)


class _Handler:
    """One WebSocket. All checks come before it is accepted."""

    def __init__(self, service: BrokerService, open_: OpenSockets, websocket: WebSocket) -> None:
        self._service = service
        self._open = open_
        self._websocket = websocket
        self._settings = service.config.websockets
        self._socket = TextSocket(websocket, self._settings)

    async def run(self) -> None:
        """Raises Refused, Ended."""
        if not self._settings.enabled:
            raise Refused(404, "The WebSocket service is off: webSocketServiceEnabled=false")
        raw: bytes = self._websocket.scope.get("raw_path") or b""
        endpoint = parse_path(raw.decode("latin-1").partition("?")[0])
        query = self._query()
        caller, expires_at_s = await self._identify(query)
        left_s = float("inf") if expires_at_s is None else expires_at_s - time.time()
        client = self._websocket.client
        who = caller.original or caller.role or (client.host if client else "")
        with self._open.one_more(who), trio.move_on_after(max(0.0, left_s)) as life:
            await self._serve(endpoint, query, caller)
        if life.cancelled_caught:
            _log.warning("address=%s credentials expired", self._address)
            await self._socket.close(CLOSE_POLICY, "The credentials have expired")

    @property
    def _address(self) -> str:
        client = self._websocket.client
        return f"{client.host}:{client.port}" if client else "websocket"

    def _query(self) -> Query:
        text = self._websocket.scope["query_string"].decode("latin-1")
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError:
            raise Refused(400, "Invalid query params: too many") from None
        found: dict[str, str] = {}
        for name, value in pairs:
            found.setdefault(name, value)
        return found

    async def _identify(self, query: Query) -> tuple[Caller, float | None]:
        """Raises Refused 401."""
        if self._service.authenticator is None:
            return Caller(None), None
        headers = headers_of(self._websocket)
        if token := query.get("token"):
            # Browsers can't send headers with a WebSocket.
            headers["authorization"] = f"Bearer {token}"
        try:
            identity, caller = await identify(self._service, self._websocket, headers)
        except RestError as error:
            raise Refused(error.status, error.reason) from None
        return caller, identity.expires_at_s

    async def _serve(self, endpoint: Endpoint, query: Query, caller: Caller) -> None:
        """Raises Refused, Ended."""
        open_ = {"producer": self._produce, "consumer": self._consume, "reader": self._read}
        try:
            dead = dead_letters_of(query, endpoint)
            as_caller = client_as(self._service, caller, endpoint, self._address, dead)
            async with as_caller as client:
                await open_[endpoint.kind](client, endpoint, query)
        except* Refused as group:
            raise _first(group) from None
        except* Ended:
            pass
        except* BadCommand as group:
            text = str(_first(group))
            _log.warning("address=%s %s: %s", self._address, endpoint.topic, text)
            await self._socket.close(CLOSE_BAD_COMMAND, text)
        except* geminga.GemingaError as group:
            text = str(_first(group))
            _log.warning("address=%s %s: %s", self._address, endpoint.topic, text)
            await self._socket.close(CLOSE_BAD_COMMAND, text)

    async def _produce(self, client: geminga.Client, endpoint: Endpoint, query: Query) -> None:
        options = producer_options(query)
        try:
            producer = await client.create_producer(str(endpoint.topic), **options)
        except geminga.GemingaError as error:
            raise refusal(error, "producer/consumer") from None
        async with trio.open_nursery() as nursery:
            await self._accept(nursery)
            await serve_producer(self._socket, producer)

    async def _consume(self, client: geminga.Client, endpoint: Endpoint, query: Query) -> None:
        topic = str(endpoint.topic)
        wanted = consumer_options(query, topic, endpoint.subscription)
        try:
            consumer = await client.subscribe(topic, endpoint.subscription, **wanted.options)
        except geminga.GemingaError as error:
            raise refusal(error, "producer/consumer") from None
        async with trio.open_nursery() as nursery:
            await self._accept(nursery)
            await serve_consumer(
                self._socket, consumer, pending_max=wanted.pending_max, pull_mode=wanted.pull_mode
            )

    async def _read(self, client: geminga.Client, endpoint: Endpoint, query: Query) -> None:
        wanted = reader_options(query)
        try:
            reader = await client.create_reader(
                str(endpoint.topic),
                wanted.start,
                receiver_queue_size=wanted.queue_size,
                reader_name=wanted.name,
            )
        except geminga.GemingaError as error:
            raise refusal(error, "reader") from None
        async with trio.open_nursery() as nursery:
            await self._accept(nursery)
            await serve_reader(self._socket, reader, pending_max=max(1, wanted.queue_size))

    async def _accept(self, nursery: trio.Nursery) -> None:
        await self._websocket.accept()
        nursery.start_soon(self._end_when_idle)

    async def _end_when_idle(self) -> None:
        await self._socket.watch_idle()
        raise Ended


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
