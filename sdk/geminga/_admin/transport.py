"""Requests to the web services of a cluster: several hosts, redirects, credentials (SDK-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import trio

from geminga._admin.errors import (
    AdminError,
    NotAuthorizedError,
    RequestTimeoutError,
    UnreachableError,
    of_answer,
)
from geminga._admin.requests import Request
from geminga._connection.access import Access
from geminga._connection.service_url import Address, is_trusted, parse
from geminga.errors import AlreadyClosedError, GemingaError, InvalidServiceUrlError, TlsError
from geminga_runtime.errors import ConnectFailed, ConnectionLost, TlsRefused
from geminga_runtime.http_client import (
    REPEATABLE,
    HttpClient,
    HttpRequest,
    Opener,
    Origin,
    tcp_opener,
)
from geminga_runtime.http_get import BadHttpAnswer, HttpAnswer

if TYPE_CHECKING:
    from geminga._admin.options import AdminOptions

REDIRECTS = frozenset({301, 302, 303, 307, 308})
NOT_SHOWN = (
    "a redirect leads there, and credentials follow it only to the service URL's hosts and "
    "trusted_broker_hosts"
)
SAME_METHOD = frozenset({307, 308})
"""Redirects that any method follows; the others change it, so that only GET follows them."""


def parse_admin_url(service_url: str) -> tuple[Address, ...]:
    """The addresses of `http://host:port[,host:port...]`. Raises InvalidServiceUrlError."""
    addresses = parse(service_url)
    if not addresses[0].http:
        raise InvalidServiceUrlError(
            f"the admin client needs the web service's http:// or https:// URL, not {service_url!r}"
        )
    return addresses


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
        with trio.move_on_after(self._options.request_timeout_s):
            return await self._ask_any(request)
        raise RequestTimeoutError(
            f"{request.method} {request.path}: no answer of {self.address.url} within "
            f"{self._options.request_timeout_s:g} s"
        )

    async def aclose(self) -> None:
        """Close the connections. Idempotent."""
        self._is_closed = True
        await self._client.aclose()

    async def _open(self, origin: Origin) -> trio.abc.Stream:
        tls = self._access.tls if origin.tls else None
        return await tcp_opener(tls, self._options.connection_timeout_s)(origin)

    async def _ask_any(self, request: Request) -> HttpAnswer:
        failure: GemingaError | None = None
        for _ in self._addresses:
            try:
                return await self._follow(self.address, request)
            except _NotSent as error:
                failure = failure or error.error
            except UnreachableError as error:
                if request.method not in REPEATABLE:
                    raise
                failure = failure or error
            self._at = (self._at + 1) % len(self._addresses)
        assert failure is not None
        raise failure

    async def _follow(self, address: Address, request: Request) -> HttpAnswer:
        target = request.target
        may_show = True
        redirects = 0
        while (answer := await self._send(address, request, target, may_show)).status in REDIRECTS:
            if redirects == self._options.redirects_max:
                raise _answered(answer.status, f"{address.url}: redirected too often")
            redirects += 1
            if request.method not in ("GET", "HEAD") and answer.status not in SAME_METHOD:
                raise _answered(answer.status, f"{address.url}: a redirect for GET only")
            to, target = _redirected(answer, address, target)
            may_show = may_show and self._may_show(address, to)
            address = to
        if 200 <= answer.status < 300:
            return answer
        error = of_answer(answer.status, answer.body, f"{request.method} {address.url}{target}")
        if isinstance(error, NotAuthorizedError) and not may_show:
            error.args = (f"{error.args[0]}; {NOT_SHOWN}",)
        raise error

    def _may_show(self, origin: Address, to: Address) -> bool:
        """Whether credentials go along from one host to another one that it names."""
        if any(to[:2] == each[:2] for each in self._addresses):
            return True
        trusted = self._options.trusted_broker_hosts
        if trusted:
            return is_trusted(to, trusted)
        # The sender has proved its name, and the next one must prove its own.
        options = self._options
        verified = options.tls_validate_hostname and not options.tls_allow_insecure_connection
        return origin.tls and to.tls and verified

    async def _send(
        self, address: Address, request: Request, target: str, may_show: bool
    ) -> HttpAnswer:
        headers: dict[str, str] = {}
        if may_show and self._options.authentication is not None:
            headers.update(await self._options.authentication.http_headers())
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        sent = HttpRequest(request.method, target, headers, request.body)
        try:
            origin = Origin(address.host, address.port, address.tls)
            return await self._client.ask(origin, sent)
        except TlsRefused as error:
            raise _NotSent(TlsError(str(error))) from error
        except ConnectFailed as error:
            raise _NotSent(UnreachableError(str(error))) from error
        except (ConnectionLost, BadHttpAnswer) as error:
            raise UnreachableError(f"{address.url}: {error}") from error


class _NotSent(Exception):
    """No connection: the request can go to another host, whatever its method."""

    def __init__(self, error: GemingaError) -> None:
        super().__init__(str(error))
        self.error = error


def _redirected(answer: HttpAnswer, address: Address, target: str) -> tuple[Address, str]:
    location = answer.headers.get("location", "")
    try:
        parts = urlsplit(urljoin(f"{address.url}{target}", location))
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _answered(answer.status, f"{address.url}: the redirect has no valid URL") from error
    if host is None or parts.scheme not in ("http", "https") or not location:
        raise _answered(answer.status, f"{address.url}: the redirect has no valid URL")
    tls = parts.scheme == "https"
    if address.tls and not tls:
        text = f"{address.url}: a redirect from https to http, which is refused"
        raise _answered(answer.status, text)
    to = Address(host, port or (443 if tls else 80), tls, http=True)
    return to, parts.path + (f"?{parts.query}" if parts.query else "")


def _answered(status: int, text: str) -> AdminError:
    error = AdminError(text, code=f"Http{status}")
    error.status = status
    return error
