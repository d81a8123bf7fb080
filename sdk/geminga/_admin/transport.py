"""Requests to the web services of a cluster, over connections that are kept (spec SDK-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from geminga._admin.errors import RequestTimeoutError, UnreachableError
from geminga._admin.exchange import Exchange, lost
from geminga._connection.access import Access
from geminga.errors import AlreadyClosedError, TlsError
from geminga_runtime.errors import ConnectFailed, ConnectionLost, TlsRefused
from geminga_runtime.http.answers import BadHttpAnswer, HttpAnswer
from geminga_runtime.http.client import HttpClient, HttpRequest, Opener, Origin, tcp_opener

if TYPE_CHECKING:
    from geminga._admin.options import AdminOptions
    from geminga._admin.requests import Request
    from geminga._connection.service_url import Address


class Transport:
    """Sends requests to the hosts of the service URL; if one is unreachable, to the next one."""

    def __init__(
        self,
        addresses: tuple[Address, ...],
        options: AdminOptions,
        opener: Opener | None = None,
    ) -> None:
        """`opener` is for tests. Raises InvalidArgumentError for unusable certificates."""
        self._addresses = addresses
        self._options = options
        self._at = 0
        self._access = Access(addresses, options.authentication, options)
        self._is_closed = False
        self._client = HttpClient(opener or self._open, body_bytes_max=options.answer_bytes_max)

    @property
    def address(self) -> Address:
        """The host that the next request goes to first."""
        return self._addresses[self._at]

    async def ask(self, request: Request) -> HttpAnswer:
        """The answer, with a status of 200 to 299.

        Raises AdminError by the status, UnreachableError, RequestTimeoutError, TlsError,
        AuthenticationError if the credentials can't be had, and AlreadyClosedError.
        """
        if self._is_closed:
            raise AlreadyClosedError("the admin client is closed")
        exchange = Exchange(request, self._addresses, self._at, self._options)
        with trio.move_on_after(self._options.request_timeout_s):
            return await self._run(exchange)
        raise RequestTimeoutError(
            f"{request.method} {request.path}: no answer of {exchange.address.url} within "
            f"{self._options.request_timeout_s:g} s"
        )

    async def aclose(self) -> None:
        """Close the connections. Idempotent."""
        self._is_closed = True
        await self._client.aclose()

    async def _open(self, origin: Origin) -> trio.abc.Stream:
        tls = self._access.tls if origin.tls else None
        return await tcp_opener(tls, self._options.connection_timeout_s)(origin)

    async def _run(self, exchange: Exchange) -> HttpAnswer:
        try:
            while True:
                address = exchange.address
                try:
                    answer = await self._send(exchange)
                except TlsRefused as error:
                    exchange.failed(TlsError(str(error)), may_have_arrived=False)
                except ConnectFailed as error:
                    exchange.failed(UnreachableError(str(error)), may_have_arrived=False)
                except (ConnectionLost, BadHttpAnswer) as error:
                    exchange.failed(lost(address, error), may_have_arrived=True)
                else:
                    if exchange.answered(answer):
                        return answer
        finally:
            self._at = exchange.at

    async def _send(self, exchange: Exchange) -> HttpAnswer:
        request, address = exchange.request, exchange.address
        headers: dict[str, str] = {}
        if exchange.shows_credentials and self._options.authentication is not None:
            headers.update(await self._options.authentication.http_headers())
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        origin = Origin(address.host, address.port, address.tls)
        sent = HttpRequest(request.method, exchange.target, headers, request.body)
        return await self._client.ask(origin, sent)
