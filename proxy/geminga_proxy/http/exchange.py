"""One request to a broker, and the response to the client (spec PX-06).

One task sends the body up while another waits for the response. Each holds one read at most, beside
the part of the body that is kept for another broker (`httpInputMaxReplayBufferSize`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import h11
import trio

from geminga_proxy.addresses import Address
from geminga_proxy.bounds import HeldBytes
from geminga_proxy.http.client_side import BodyEnd, BodyPart, ClientSide, Event, RequestHead
from geminga_proxy.http.errors import BrokerFailed, ExchangeBroken, HttpError
from geminga_proxy.http.headers import (
    Follow,
    Header,
    RefuseRedirect,
    Rewrite,
    plan_redirect,
    to_client,
)
from geminga_proxy.http.upstreams import Upstreams, WebConnection
from geminga_proxy.http.wire import Wire
from geminga_runtime.errors import ConnectionLost

_log = logging.getLogger(__name__)

HOPS_MAX = 8
"""Brokers tried for one request, as Jetty's client follows redirects."""
REPLAY_BYTES = 64 * 1024
"""Bytes of one part when a body is sent again."""
REDIRECT_REFUSED = "The broker redirects to an address that is no known broker"
REPEATED_METHODS = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"})
"""Idempotent methods (RFC 9110, 9.2.2)."""


class RequestBody:
    """The client's body, read on demand. While it is small it is kept, to be sent again to
    another broker.
    """

    def __init__(
        self,
        next_event: Callable[[], Awaitable[Event]],
        held: HeldBytes,
        *,
        has_body: bool,
        kept_bytes_max: int,
    ) -> None:
        """`held` counts the kept bytes of all requests, until `release`."""
        self._held = held
        self._next_event = next_event
        self._kept = bytearray()
        """One buffer, not a list: clients may send tiny chunks."""
        self._kept_bytes_max = kept_bytes_max
        self._is_whole = not has_body
        self.is_repeatable = True

    async def part(self, at: int) -> bytes | None:
        """Bytes from `at` on, None at the end. Bytes that aren't kept can be read once.

        Raises BadRequest, ConnectionLost.
        """
        if self.is_repeatable and at < len(self._kept):
            return bytes(self._kept[at : at + REPLAY_BYTES])
        if self._is_whole:
            return None
        event = await self._next_event()
        if isinstance(event, BodyEnd):
            self._is_whole = True
            return None
        assert isinstance(event, BodyPart)
        if self.is_repeatable:
            size = len(event.data)
            if len(self._kept) + size <= self._kept_bytes_max and self._held.take(size):
                self._kept += event.data
            else:
                self.is_repeatable = False
                self.release()
        return event.data

    def release(self) -> None:
        """Drop the kept bytes."""
        self._held.give(len(self._kept))
        self._kept.clear()


@dataclass(frozen=True, slots=True)
class Outbound:
    """A request for a broker, without Host."""

    head: RequestHead
    target: bytes
    headers: list[Header]
    timeout_s: float


class Exchange:
    """Sends one request to a broker, to others if it fails or redirects, and the response back."""

    def __init__(
        self, client: ClientSide, wire: Wire, upstreams: Upstreams, outbound: Outbound
    ) -> None:
        self._client = client
        self._wire = wire
        self._upstreams = upstreams
        self._outbound = outbound
        self._upload_failure: Exception | None = None
        self.upgraded: WebConnection | None = None
        """The connection to a broker that switched protocols. The owner closes it."""

    async def run(self, body: RequestBody) -> None:
        """Raises HttpError before the response has begun, ExchangeBroken after that, ConnectionLost
        for the client's connection.
        """
        outbound = self._outbound
        address: Address | None = None
        fresh = False
        for _ in range(HOPS_MAX):
            connection = await self._connect(address, fresh=fresh)
            try:
                follow = await self._ask(connection, outbound, body)
            except BrokerFailed as error:
                if not connection.is_reused:
                    self._upstreams.rotation.is_dead(connection.address)
                self._must_repeat(connection, body, error)
                _log.info("%s; trying another connection", error)
                # Forget the redirect: the broker that it named may be down.
                address, outbound, fresh = None, self._outbound, True
                continue
            if follow is None:
                return
            address = follow.address
            outbound = replace(outbound, target=follow.target)
        raise HttpError(502, f"More than {HOPS_MAX} brokers were asked")

    async def _connect(self, address: Address | None, *, fresh: bool) -> WebConnection:
        try:
            if address is None:
                return await self._upstreams.open_any(fresh=fresh)
            return await self._upstreams.open(address, fresh=fresh)
        except BrokerFailed as error:
            raise _client_error(error) from error

    def _must_repeat(
        self, connection: WebConnection, body: RequestBody, error: BrokerFailed
    ) -> None:
        """Raises the client's error unless the request can be repeated."""
        if self._client.answered:
            _log.warning("response cut short: %s", error)
            raise ExchangeBroken(str(error)) from error
        method = self._outbound.head.method
        again = connection.is_reused or method in (b"GET", b"HEAD")
        if error.timed_out or not (again and method in REPEATED_METHODS and body.is_repeatable):
            raise _client_error(error) from error

    async def _ask(
        self, connection: WebConnection, outbound: Outbound, body: RequestBody
    ) -> Follow | None:
        """The redirect to follow, None if the client has its response.

        Raises BrokerFailed, HttpError, ConnectionLost (the client's).
        """
        try:
            method = outbound.head.method
            head = connection.encode_head(method, outbound.target, outbound.headers)
        except h11.LocalProtocolError:
            # The text from h11 quotes the header, which may be the proxy's own token.
            await connection.wire.aclose()
            raise HttpError(400, "Bad request: a header can't be passed on") from None
        follow: Follow | None = None
        failure: BrokerFailed | HttpError | None = None
        lost: ConnectionLost | ExchangeBroken | None = None
        try:
            async with trio.open_nursery() as nursery:
                deadline = trio.CancelScope()
                nursery.start_soon(
                    self._send_up, connection, head, body, nursery.cancel_scope, deadline
                )
                try:
                    follow = await self._answer(connection, outbound, body, deadline)
                except (BrokerFailed, HttpError) as error:
                    failure = error
                except (ConnectionLost, ExchangeBroken) as error:
                    lost = error
                nursery.cancel_scope.cancel()
        finally:
            if self.upgraded is None:
                with trio.CancelScope(shield=True):
                    await self._upstreams.give_back(connection)
        for broke in (self._upload_failure, failure, lost):
            if broke is not None:
                raise broke
        return follow

    async def _send_up(
        self,
        connection: WebConnection,
        head: bytes,
        body: RequestBody,
        both: trio.CancelScope,
        deadline: trio.CancelScope,
    ) -> None:
        try:
            await connection.send_bytes(head)
        except ConnectionLost:
            return  # the task that waits for the response fails too
        at = 0
        while True:
            try:
                part = await body.part(at)
            except (HttpError, ConnectionLost) as error:
                self._upload_failure = error
                both.cancel()
                return
            at += len(part or b"")
            deadline.deadline = trio.current_time() + self._outbound.timeout_s
            try:
                if part is None:
                    await connection.send(h11.EndOfMessage())
                    return
                await connection.send(h11.Data(data=part))
            except ConnectionLost:
                return

    async def _answer(
        self,
        connection: WebConnection,
        outbound: Outbound,
        body: RequestBody,
        deadline: trio.CancelScope,
    ) -> Follow | None:
        """Raises BrokerFailed, ConnectionLost (the client's), ExchangeBroken, HttpError."""
        deadline.deadline = trio.current_time() + outbound.timeout_s
        with deadline:
            response = await self._head(connection)
        if deadline.cancelled_caught:
            raise BrokerFailed(f"{connection.address} did not answer in time", timed_out=True)
        if response.status_code == 101:
            self.upgraded = connection
            return None
        headers = [(bytes(name), bytes(value)) for name, value in response.headers]
        location = next((value for name, value in headers if name == b"location"), b"")
        plan = plan_redirect(
            outbound.head,
            response.status_code,
            location,
            self._upstreams.redirect_rules,
            can_repeat=body.is_repeatable,
        )
        if isinstance(plan, RefuseRedirect):
            _log.warning(
                "%s redirects to %s, which is neither listed in brokerWebServiceURL (or -TLS) nor "
                "discovered: redirect refused",
                connection.address,
                plan.location,
            )
            raise HttpError(502, REDIRECT_REFUSED)
        if isinstance(plan, Follow):
            await self._skip(connection)
            return plan
        if isinstance(plan, Rewrite):
            headers = to_client(headers, location=plan.location)
        else:
            headers = to_client(headers)
        # If the request's body turned out to be invalid, end before the response begins: the client
        # then gets the error.
        await trio.lowlevel.checkpoint_if_cancelled()
        answer = self._client.answer(response.status_code, headers, bytes(response.reason))
        await self._wire.send(answer)
        await self._pass_down(connection)
        return None

    async def _head(self, connection: WebConnection) -> h11.Response | h11.InformationalResponse:
        while True:
            event = await connection.next_event()
            if isinstance(event, h11.Response):
                return event
            assert isinstance(event, h11.InformationalResponse)
            if event.status_code == 101:
                headers = [(bytes(name), bytes(value)) for name, value in event.headers]
                await self._wire.send(self._client.switch(_switch_headers(headers)))
                return event
            if not self._client.answered:
                interim = to_client((bytes(name), bytes(value)) for name, value in event.headers)
                await self._wire.send(self._client.interim(event.status_code, interim))

    async def _pass_down(self, connection: WebConnection) -> None:
        timeout_s = self._outbound.timeout_s
        try:
            while True:
                with trio.fail_after(timeout_s):
                    event = await connection.next_event()
                    if isinstance(event, h11.EndOfMessage):
                        await self._wire.send(self._client.end())
                        return
                    assert isinstance(event, h11.Data)
                    await self._wire.send(self._client.part(bytes(event.data)))
        except trio.TooSlowError:
            raise ExchangeBroken("no progress in a response") from None

    async def _skip(self, connection: WebConnection) -> None:
        """Skip a redirect's body if it is short; otherwise the connection isn't kept."""
        with trio.move_on_after(1):
            for _ in range(4):
                if isinstance(await connection.next_event(), h11.EndOfMessage):
                    return


def _switch_headers(headers: list[Header]) -> list[Header]:
    """A 101's headers for the client, with the upgrade that both sides agreed on."""
    kept = [(name, value) for name, value in headers if name not in (b"connection", b"upgrade")]
    return [*to_client(kept), (b"connection", b"upgrade"), (b"upgrade", b"websocket")]


def _client_error(error: BrokerFailed) -> HttpError:
    """The client's error for a broker that failed: without the broker's address."""
    _log.warning("%s", error)
    if error.timed_out:
        return HttpError(504, "The broker did not answer in time")
    return HttpError(502, error.told)
