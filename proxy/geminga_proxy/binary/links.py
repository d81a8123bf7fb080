"""A client's connections to brokers for requests (spec PX-01).

Each client has its own connections, so that a broker knows whose request it is, and request ids
pass through unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from geminga_protocol.commands import connection
from geminga_protocol.frames import Frame, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand
from geminga_proxy.addresses import Address
from geminga_proxy.binary.connecting import BrokerConnection, BrokerUnavailable, Client, Connector
from geminga_proxy.binary.requests import ANSWERS, ClientRequest
from geminga_runtime.errors import ConnectionLost, RequestTimeout, TooManyRequests
from geminga_runtime.requests import RequestTable

_log = logging.getLogger(__name__)

PENDING_MAX = 5000
"""Pending requests of one client at one broker."""

WaitWritable = Callable[[], Awaitable[None]]

_C = BaseCommand.Type


class Link:
    """One client's connection to one broker."""

    def __init__(
        self,
        address: Address,
        broker: BrokerConnection,
        fresh_response: Callable[[], Awaitable[bytes]],
        wait_writable: WaitWritable,
    ) -> None:
        """`fresh_response` makes the AUTH_RESPONSE to a broker that asks for fresh credentials."""
        self.address = address
        self._broker = broker
        self._fresh_response = fresh_response
        self._wait_writable = wait_writable
        self._requests: RequestTable[Frame] = RequestTable(requests_max=PENDING_MAX)
        self._refreshing = False

    @property
    def lost(self) -> bool:
        """Whether the connection is lost."""
        return self._broker.stream.lost

    async def ask(self, request: ClientRequest, timeout_s: float) -> Frame:
        """The broker's response. Raises BrokerUnavailable."""
        stream, data = self._broker.stream, request.encoded()
        if self.lost or not stream.writable or request.id in self._requests:
            raise BrokerUnavailable(f"{self.address} takes no request now")
        try:
            return await self._requests.call(
                lambda _id: stream.write(data),
                timeout_s=timeout_s,
                request_id=request.id,
            )
        except TooManyRequests:
            raise BrokerUnavailable(f"{self.address} takes no request now") from None
        except RequestTimeout:
            raise BrokerUnavailable(f"{self.address} did not answer in time") from None
        except ConnectionLost:
            raise BrokerUnavailable(f"{self.address} closed the connection") from None

    async def run(self) -> None:
        """Read responses until the connection is lost; pending requests fail then."""
        stream, reader = self._broker.stream, self._broker.reader
        try:
            async with trio.open_nursery() as nursery:
                for frame in self._broker.then:
                    self._take(frame, nursery)
                while data := await stream.receive():
                    for frame in reader.feed(data):
                        self._take(frame, nursery)
                    await self._wait_writable()
                nursery.cancel_scope.cancel()
        except* (ConnectionLost, FramingError) as group:
            _log.debug("%s: %s", self.address, group.exceptions[0])
        finally:
            self._requests.fail_all(ConnectionLost(str(self.address)))
            await stream.aclose()

    def _take(self, frame: Frame, nursery: trio.Nursery) -> None:
        kind = frame.type
        if kind == _C.PING:
            self._broker.stream.write(connection.PONG)
        elif kind == _C.AUTH_CHALLENGE:
            if not self._refreshing:
                self._refreshing = True
                nursery.start_soon(self._refresh)
        elif kind in ANSWERS:
            self._requests.resolve(getattr(frame.command, ANSWERS[kind]).request_id, frame)

    async def _refresh(self) -> None:
        self._broker.stream.write(await self._fresh_response())
        self._refreshing = False


class Links:
    """All links of one client."""

    def __init__(
        self,
        connector: Connector,
        client: Client,
        nursery: trio.Nursery,
        timeout_s: float,
        wait_writable: WaitWritable,
    ) -> None:
        """Links run in the client's nursery. `wait_writable` returns when the client's send buffer
        has room: until then no broker is read.
        """
        self._connector = connector
        self._client = client
        self._nursery = nursery
        self._timeout_s = timeout_s
        self._wait_writable = wait_writable
        self._any: Link | None = None
        self._links: dict[Address, Link] = {}
        self._connecting = trio.Lock()

    async def ask(self, request: ClientRequest, broker: Address | None) -> tuple[Address, Frame]:
        """The response of `broker`, or of any, with its address. Raises BrokerUnavailable."""
        link = await (self._link_to_any() if broker is None else self._link_to(broker))
        return link.address, await link.ask(request, self._timeout_s)

    async def _link_to_any(self) -> Link:
        async with self._connecting:
            if self._any is None or self._any.lost:
                address, broker = await self._connector.connect_any(self._client, self._nursery)
                self._any = self._run(address, broker)
            return self._any

    async def _link_to(self, address: Address) -> Link:
        async with self._connecting:
            link = self._links.get(address)
            if link is None or link.lost:
                broker = await self._connector.connect(address, self._client, self._nursery)
                link = self._run(address, broker)
            return link

    def _run(self, address: Address, broker: BrokerConnection) -> Link:
        async def fresh_response() -> bytes:
            return await self._connector.answer_refresh(self._client)

        link = Link(address, broker, fresh_response, self._wait_writable)
        self._links[address] = link
        self._nursery.start_soon(link.run)
        return link
