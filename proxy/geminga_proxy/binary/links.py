"""Lookups of a client, answered by a broker (spec PX-01).

Each client has connections of its own to brokers, so that a broker sees whose request it is and
request ids need no mapping. All but the answers to LOOKUP go through as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from geminga_protocol.commands import answers, connection, lookup, schemas
from geminga_protocol.encode import frame as encode
from geminga_protocol.frames import Frame, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    ServerError,
)
from geminga_proxy.addresses import Address, BadAddress, parse_url
from geminga_proxy.brokers import BrokerConnection, Brokers, BrokerUnavailable, Client
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.logs import shown

_log = logging.getLogger(__name__)

REDIRECTS_MAX = 20
PENDING_MAX = 5000
"""Requests of one client that wait for a broker."""

UNAVAILABLE = "No broker can be reached now"

WaitWritable = Callable[[], Awaitable[None]]

_C = BaseCommand.Type


class Kind(NamedTuple):
    """A command that is passed on."""

    counted_as: str
    field: str
    refuse: Callable[[int, ServerError, str], bytes]


PASSED_ON: dict[int, Kind] = {
    _C.LOOKUP: Kind("lookup", "lookupTopic", lookup.lookup_error),
    _C.PARTITIONED_METADATA: Kind(
        "partitions", "partitionMetadata", lookup.partitioned_metadata_error
    ),
    _C.GET_TOPICS_OF_NAMESPACE: Kind("topics", "getTopicsOfNamespace", answers.error),
    _C.GET_SCHEMA: Kind("schema", "getSchema", schemas.get_schema_error),
    _C.GET_OR_CREATE_SCHEMA: Kind(
        "schema", "getOrCreateSchema", schemas.get_or_create_schema_error
    ),
}
"""What a proxy answers without a tunnel, and how it says that it can't."""

_ANSWERS: dict[int, str] = {
    _C.LOOKUP_RESPONSE: "lookupTopicResponse",
    _C.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    _C.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    _C.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    _C.GET_OR_CREATE_SCHEMA_RESPONSE: "getOrCreateSchemaResponse",
    _C.ERROR: "error",
}


class Link:
    """One client's connection to one broker, for requests."""

    def __init__(
        self,
        brokers: Brokers,
        address: Address,
        greeted: BrokerConnection,
        client: Client,
        wait_writable: WaitWritable,
    ) -> None:
        self.address = address
        self._wait_writable = wait_writable
        self._brokers = brokers
        self._greeted = greeted
        self._client = client
        self._waiting: dict[int, trio.Event] = {}
        self._answers: dict[int, Frame] = {}
        self._refreshing = False

    @property
    def lost(self) -> bool:
        """Whether the broker is gone."""
        return self._greeted.stream.lost

    async def ask(self, request: bytes, request_id: int, timeout_s: float) -> Frame:
        """The broker's answer. Raises BrokerUnavailable."""
        takes = not self.lost and self._greeted.stream.writable
        if not takes or request_id in self._waiting or len(self._waiting) >= PENDING_MAX:
            raise BrokerUnavailable(f"{self.address} takes no request now")
        self._waiting[request_id] = answered = trio.Event()
        try:
            self._greeted.stream.write(request)
            with trio.fail_after(timeout_s):
                await answered.wait()
        except trio.TooSlowError:
            raise BrokerUnavailable(f"{self.address} did not answer in time") from None
        finally:
            del self._waiting[request_id]
        answer = self._answers.pop(request_id, None)
        if answer is None:
            raise BrokerUnavailable(f"{self.address} is gone")
        return answer

    async def run(self) -> None:
        """Read answers until the broker is gone; whoever waits hears of that."""
        stream, reader = self._greeted.stream, self._greeted.reader
        try:
            async with trio.open_nursery() as nursery:
                for frame in self._greeted.then:
                    self._take(frame, nursery)
                while data := await stream.receive():
                    for frame in reader.feed(data):
                        self._take(frame, nursery)
                    await self._wait_writable()
                nursery.cancel_scope.cancel()
        except* (ConnectionLost, FramingError) as group:
            _log.debug("%s: %s", self.address, group.exceptions[0])
        finally:
            await stream.aclose()
            for waiting in self._waiting.values():
                waiting.set()

    def _take(self, frame: Frame, nursery: trio.Nursery) -> None:
        kind = frame.type
        if kind == _C.PING:
            self._greeted.stream.write(connection.PONG)
        elif kind == _C.AUTH_CHALLENGE:
            if not self._refreshing:
                self._refreshing = True
                nursery.start_soon(self._refresh)
        elif kind in _ANSWERS:
            request_id = getattr(frame.command, _ANSWERS[kind]).request_id
            waiting = self._waiting.get(request_id)
            if waiting is not None:
                self._answers[request_id] = frame
                waiting.set()

    async def _refresh(self) -> None:
        self._greeted.stream.write(await self._brokers.answer_refresh(self._client))
        self._refreshing = False


class Lookups:
    """A client's requests. One for each client; `nursery` is the client's."""

    def __init__(
        self,
        brokers: Brokers,
        client: Client,
        nursery: trio.Nursery,
        timeout_s: float,
        wait_writable: WaitWritable,
    ) -> None:
        """`wait_writable` returns when the client takes answers: until then no broker is read."""
        self._wait_writable = wait_writable
        self._brokers = brokers
        self._client = client
        self._nursery = nursery
        self._timeout_s = timeout_s
        self._any: Link | None = None
        self._links: dict[Address, Link] = {}
        self._connecting = trio.Lock()

    async def answer(self, frame: Frame) -> bytes:
        """What to tell the client."""
        kind = PASSED_ON[frame.type]
        request_id = getattr(frame.command, kind.field).request_id
        try:
            if frame.type == _C.LOOKUP:
                return await self._look_up(frame.command.lookupTopic)
            link = await self._any_link()
            answer = await link.ask(encode(frame.command), request_id, self._timeout_s)
        except BrokerUnavailable as error:
            _log.warning("address=%s: %s", self._client.address, shown(str(error)))
            return kind.refuse(request_id, error.code, UNAVAILABLE)
        return encode(answer.command)

    async def _any_link(self) -> Link:
        async with self._connecting:
            if self._any is None or self._any.lost:
                address, greeted = await self._brokers.connect_any(self._client, self._nursery)
                self._any = self._run(address, greeted)
            return self._any

    async def _link_to(self, address: Address) -> Link:
        async with self._connecting:
            link = self._links.get(address)
            if link is None or link.lost:
                greeted = await self._brokers.connect(address, self._client, self._nursery)
                link = self._run(address, greeted)
            return link

    def _run(self, address: Address, greeted: BrokerConnection) -> Link:
        link = Link(self._brokers, address, greeted, self._client, self._wait_writable)
        self._links[address] = link
        self._nursery.start_soon(link.run)
        return link

    async def _look_up(self, command: CommandLookupTopic) -> bytes:
        """Follow redirects here: the client can't reach the brokers that they name."""
        request = CommandLookupTopic()
        request.CopyFrom(command)
        link = await self._any_link()
        for _ in range(REDIRECTS_MAX):
            body = BaseCommand(type=_C.LOOKUP, lookupTopic=request)
            frame = await link.ask(encode(body), request.request_id, self._timeout_s)
            if frame.type != _C.LOOKUP_RESPONSE:
                return encode(frame.command)
            answer = frame.command.lookupTopicResponse
            if answer.response == CommandLookupTopicResponse.Redirect:
                link = await self._link_to(self._trusted(link, self._address(answer)))
                request.authoritative = answer.authoritative
                continue
            if answer.response == CommandLookupTopicResponse.Connect:
                self._brokers.targets.learn(self._address(answer))
                # Whether the client or the proxy uses TLS, it is the proxy that goes there.
                url = self._url(answer)
                answer.brokerServiceUrl = answer.brokerServiceUrlTls = url
                answer.proxy_through_service_url = True
            return encode(frame.command)
        raise BrokerUnavailable(f"more than {REDIRECTS_MAX} redirects")

    def _trusted(self, link: Link, address: Address) -> Address:
        """The address, if the proxy's credentials may go there. Raises BrokerUnavailable."""
        if not self._brokers.targets.allows(address):
            raise BrokerUnavailable(
                f"{link.address} redirects to {address}, which is neither listed in "
                "brokerServiceURL (or -TLS), discovered, nor allowed by "
                "brokerProxyAllowedHostNames or -IPAddresses"
            )
        return address

    def _url(self, answer: CommandLookupTopicResponse) -> str:
        by_tls = self._brokers.tls is not None
        return answer.brokerServiceUrlTls if by_tls else answer.brokerServiceUrl

    def _address(self, answer: CommandLookupTopicResponse) -> Address:
        try:
            return parse_url(self._url(answer))
        except BadAddress as error:
            raise BrokerUnavailable(f"the broker named no usable address: {error}") from None
