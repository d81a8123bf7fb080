"""Lookups over HTTP, for `http://` and `https://` service URLs (spec SDK-40; HttpLookupService)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote, urlencode, urlsplit

import trio

from geminga._connection.connection import Connection
from geminga._connection.lookup import Lookup
from geminga._connection.pool import Endpoint
from geminga._connection.service_url import PORT_HTTP, PORT_HTTPS, Address, is_trusted
from geminga._connection.topic_pattern import TopicPattern
from geminga.errors import (
    AuthenticationError,
    AuthorizationError,
    ConnectionFailedError,
    GemingaError,
    InvalidTopicNameError,
    OperationTimeoutError,
    ServiceNotReadyError,
    TooManyRequestsError,
    TopicNotFoundError,
    UnknownBrokerError,
    UnsupportedVersionError,
    WrongProtocolError,
)
from geminga.options import RegexSubscriptionMode
from geminga_protocol.topic_name import TopicName
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.http.get import BadHttpAnswer, HttpAnswer, get
from geminga_runtime.logs import shown

REDIRECTS = frozenset({301, 302, 303, 307, 308})
STATUSES: Mapping[int, type[GemingaError]] = {
    401: AuthenticationError,
    403: AuthorizationError,
    404: TopicNotFoundError,
    412: InvalidTopicNameError,
    429: TooManyRequestsError,
    503: ServiceNotReadyError,
}
"""Errors by HTTP status; others are an UnknownBrokerError."""
_MODES = {
    RegexSubscriptionMode.PERSISTENT_ONLY: "PERSISTENT",
    RegexSubscriptionMode.NON_PERSISTENT_ONLY: "NON_PERSISTENT",
    RegexSubscriptionMode.ALL_TOPICS: "ALL",
}


class HttpLookup(Lookup):
    """Requests to the web services of the service URL; if one is unreachable, to the next one. Each
    request has its own connection.
    """

    async def service_connection(self) -> Connection:
        """Raises UnsupportedVersionError: HTTP has no connection, as needed to watch topics."""
        await trio.lowlevel.checkpoint()
        raise UnsupportedVersionError(
            "an http:// service URL has no connection of Pulsar's protocol"
        )

    async def broker_of(self, topic: str) -> Endpoint:
        """The broker that serves the topic. Raises ConnectionFailedError, OperationTimeoutError,
        or the response's error.
        """
        path = f"/lookup/v2/topic/{TopicName.parse(topic).lookup_path}"
        if self._options.listener_name is not None:
            path += f"?{urlencode({'listenerName': self._options.listener_name})}"
        found = await self._fetch(path, topic)
        name = "brokerUrlTls" if self.service_address.tls else "brokerUrl"
        url = found.get(name) if isinstance(found, dict) else None
        if not isinstance(url, str) or not url:
            raise ServiceNotReadyError("the lookup names no broker", topic=topic)
        return self.endpoint(url)

    async def partitions_of(self, topic: str, *, auto_create: bool = True) -> int:
        """Number of partitions; 0 for an unpartitioned topic."""
        path = f"/admin/v2/{TopicName.parse(topic).lookup_path}/partitions"
        query = urlencode({"checkAllowAutoCreation": str(auto_create).lower()})
        found = await self._fetch(f"{path}?{query}", topic)
        count = found.get("partitions") if isinstance(found, dict) else None
        if not isinstance(count, int) or count < 0:
            raise UnknownBrokerError("the response has no partition count", topic=topic)
        return count

    async def topics_of(
        self, pattern: TopicPattern, mode: RegexSubscriptionMode
    ) -> tuple[list[str], bool]:
        """All topics of the pattern's namespace; over HTTP brokers don't filter them."""
        path = f"/admin/v2/namespaces/{quote(pattern.namespace)}/topics?mode={_MODES[mode]}"
        found = await self._fetch(path, None)
        if not isinstance(found, list):
            raise UnknownBrokerError("the response has no list of topics")
        return [name for name in found if isinstance(name, str)], False

    async def _fetch(self, target: str, topic: str | None) -> object:
        failure: GemingaError | None = None
        for _ in self._addresses:
            try:
                return await self._follow(self.service_address, target, topic)
            except (ConnectionFailedError, OperationTimeoutError) as error:
                failure = failure or error
                self._at = (self._at + 1) % len(self._addresses)
        assert failure is not None
        raise failure

    async def _follow(self, address: Address, target: str, topic: str | None) -> object:
        with trio.move_on_after(self._options.operation_timeout_s):
            for _ in range(self._options.lookup_redirects_max + 1):
                answer = await self._get(address, target)
                if answer.status not in REDIRECTS:
                    self._must_show(answer.status, address, topic)
                    return _decoded(answer, address, topic)
                address, target = _redirected(answer, address)
            raise ServiceNotReadyError("the lookup was redirected too often", topic=topic)
        raise OperationTimeoutError(f"{address.url}: no answer in time", topic=topic)

    def _trusts(self, address: Address) -> bool:
        """Whether to send the credentials there: it is in the service URL, or in
        `trusted_broker_hosts`. A redirect alone is not enough.
        """
        listed = any(address[:2] == each[:2] for each in self._addresses)
        return listed or is_trusted(address, self._options.trusted_broker_hosts)

    def _must_show(self, status: int, address: Address, topic: str | None) -> None:
        """Raises AuthenticationError for a response that asks for credentials not sent."""
        if status in (401, 403) and not self._trusts(address):
            raise AuthenticationError(
                f"{address.url}: HTTP status {status}; a redirect leads there, and credentials "
                "follow it only to the service URL's hosts and trusted_broker_hosts",
                topic=topic,
            )

    async def _get(self, address: Address, target: str) -> HttpAnswer:
        who = self._access.authentication if self._trusts(address) else None
        headers = {} if who is None else await who.http_headers()
        deadline = trio.current_time() + self._options.connection_timeout_s
        stream = await self._pool.open_stream(address, deadline, self._cluster)
        try:
            return await get(stream, address.authority, target, headers)
        except (BadHttpAnswer, ConnectionLost) as error:
            failed = error
        told = f"{address.url}: {failed}"
        if await self._speaks_pulsar(address):
            raise WrongProtocolError(f"{told}: it speaks Pulsar's binary protocol") from failed
        raise ConnectionFailedError(told) from failed

    async def _speaks_pulsar(self, address: Address) -> bool:
        """Whether a port that gives no HTTP answer is a broker's other one; a web service that is
        stopping isn't to be taken for that.
        """
        if not self._trusts(address):
            return False
        try:
            await self._pool.get(self.endpoint(address._replace(http=False).url))
        except (AuthenticationError, AuthorizationError):
            return True
        except GemingaError:
            return False
        return True


def _redirected(answer: HttpAnswer, address: Address) -> tuple[Address, str]:
    try:
        parts = urlsplit(answer.headers.get("location", ""))
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ServiceNotReadyError(f"{address.url}: the redirect has no valid URL") from error
    scheme = parts.scheme or ("https" if address.tls else "http")
    if not parts.path.startswith("/") or scheme not in ("http", "https"):
        raise ServiceNotReadyError(f"{address.url}: the redirect has no valid broker URL")
    if address.tls and scheme == "http":
        raise ServiceNotReadyError(
            f"{address.url}: a redirect from https to http, which is refused"
        )
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    if host is None:
        return address, target
    tls = scheme == "https"
    return Address(host, port or (PORT_HTTPS if tls else PORT_HTTP), tls, http=True), target


def _decoded(answer: HttpAnswer, address: Address, topic: str | None) -> object:
    if answer.status == 200:
        try:
            found: object = json.loads(answer.body)
        except ValueError as error:
            raise ConnectionFailedError(f"{address.url}: the response is not JSON") from error
        return found
    kind = STATUSES.get(answer.status, UnknownBrokerError)
    reason = _reason(answer.body)
    if answer.status == 401 and reason.startswith("Unauthorized"):
        kind = AuthorizationError  # Apache's response to a role without the permission
    code = kind.__name__ if answer.status in STATUSES else f"Http{answer.status}"
    text = f"{address.url}: HTTP status {answer.status}" + (f": {shown(reason)}" if reason else "")
    raise kind(text, code=code, topic=topic)


def _reason(body: bytes) -> str:
    """The broker's reason; empty if the body is not its JSON."""
    try:
        found: object = json.loads(body)
    except ValueError:
        return ""
    reason = found.get("reason") if isinstance(found, dict) else None
    return reason if isinstance(reason, str) else ""
