"""Calls to the admin API of other brokers of the cluster (Apache's `PulsarService.getAdminClient`).

Each call shows the broker's own credentials. So it goes only to addresses under which a broker is
registered now, also after a redirect (spec PX-23).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec
import trio

from geminga_broker.admin.peer_settings import PeerSettings
from geminga_broker.ownership.brokers import BROKERS_PATH
from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed, ConnectionLost
from geminga_runtime.http.get import BadHttpAnswer, HttpAnswer, ask
from geminga_runtime.json_text import BadJson, read_json
from geminga_runtime.logs import shown
from geminga_runtime.metadata.api import MetadataError, MetadataStore
from geminga_runtime.tls import REFRESH_CHECK_S, TlsContexts

CONNECTIONS_MAX = 64
"""Connections to all brokers at a time; each call has its own."""
CONNECTIONS_PER_BROKER_MAX = 16
"""Fewer than all: a broker that doesn't answer holds up the calls to itself only."""
BODY_BYTES_MAX = 16 * 1024 * 1024
"""Largest response."""
REDIRECTS_MAX = 5
"""A bundle may move between the question who owns it and the call."""
REDIRECTS = frozenset({302, 307, 308})


class PeerUnreachable(Exception):
    """The call was not answered: the broker isn't registered, isn't reachable, is too slow, or
    answers no HTTP. A change may have taken effect.
    """


class PeerAnswer(NamedTuple):
    """A response of another broker, whatever its status."""

    status: int
    body: bytes

    @property
    def reason(self) -> str:
        """The `reason` of an error; the status if there is none."""
        try:
            return read_json(self.body, _Error).reason
        except BadJson:
            return f"HTTP status {self.status}"


class _Error(msgspec.Struct):
    reason: str


class _Record(msgspec.Struct, rename="camel"):
    """The addresses in a broker's record, whichever load manager wrote it."""

    web_service_url: str | None = None
    web_service_url_tls: str | None = None


class _WebService(NamedTuple):
    """The address of a registered broker."""

    host: str
    port: int
    authority: str


class Peers:
    """Calls other brokers. The constructor raises ConfigError for invalid settings."""

    def __init__(
        self,
        store: MetadataStore,
        settings: PeerSettings,
        *,
        refresh_check_s: float = REFRESH_CHECK_S,
    ) -> None:
        self._store = store
        self._timeout_s = float(settings.timeout_s)
        self._credentials = settings.credentials()
        self._tls = settings.contexts(refresh_check_s)
        self._tls_of_others = self._tls and _without_certificate(self._tls, refresh_check_s)
        self._turns = trio.Semaphore(CONNECTIONS_MAX)
        self._turns_of: WeakValueDictionary[str, trio.Semaphore] = WeakValueDictionary()

    async def call(
        self,
        broker_id: str,
        method: str,
        path_and_query: str,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        follow: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> PeerAnswer:
        """One call of a registered broker, which may redirect it to others; `body` is JSON.

        Without `follow` a redirect is the answer. `headers` are those of whoever asks, with their
        credentials instead of this broker's own, whose certificate isn't shown either. `timeout_s`
        is by default `metadataStoreOperationTimeoutSeconds`, as in Apache's broker. Raises
        PeerUnreachable.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            with trio.fail_after(limit_s):
                service = await self._registered(broker_id)
                for _ in range(REDIRECTS_MAX + 1):
                    answer = await self._ask(service, method, path_and_query, body, headers)
                    if not follow or answer.status not in REDIRECTS:
                        return PeerAnswer(answer.status, answer.body)
                    service, path_and_query = await self._redirected(
                        service, answer.headers.get("location", "")
                    )
        except trio.TooSlowError:
            text = f"broker {broker_id} did not answer within {limit_s:g} s"
            raise PeerUnreachable(text) from None
        except MetadataError as error:
            text = f"where broker {broker_id} is can't be read: {error}"
            raise PeerUnreachable(text) from error
        raise PeerUnreachable(f"broker {broker_id} redirected the call too often")

    async def follow(
        self, location: str, method: str, body: bytes, headers: Mapping[str, str]
    ) -> HttpAnswer:
        """Make a call that this broker has redirected to another one, with the headers, and so the
        credentials, of whoever called, and without this broker's; only to registered brokers.
        Raises PeerUnreachable.
        """
        asked = _WebService("", 0, "here")
        try:
            with trio.fail_after(self._timeout_s):
                for _ in range(REDIRECTS_MAX + 1):
                    asked, target = await self._redirected(asked, location)
                    answer = await self._ask(asked, method, target, body, headers)
                    if answer.status not in REDIRECTS:
                        return answer
                    location = answer.headers.get("location", "")
        except trio.TooSlowError:
            raise PeerUnreachable(
                f"{asked.authority} did not answer within {self._timeout_s:g} s"
            ) from None
        except MetadataError as error:
            raise PeerUnreachable(f"where brokers are can't be read: {error}") from error
        raise PeerUnreachable(f"{asked.authority} redirected the call too often")

    def _own_headers(self, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json"} if body else {}
        if (credential := self._credentials.header()) is not None:
            headers["Authorization"] = credential
        return headers

    async def _ask(
        self,
        service: _WebService,
        method: str,
        target: str,
        body: bytes,
        headers: Mapping[str, str] | None,
    ) -> HttpAnswer:
        """`headers` are None for this broker's own."""
        tls = self._tls if headers is None else self._tls_of_others
        given = self._own_headers(body) if headers is None else headers
        authority = service.authority
        turns = self._turns_of.setdefault(authority, trio.Semaphore(CONNECTIONS_PER_BROKER_MAX))
        try:
            async with turns, self._turns:
                stream = await connect(service.host, service.port, tls=tls)
                return await ask(
                    stream, method, authority, target, given, body, body_bytes_max=BODY_BYTES_MAX
                )
        except (ConnectFailed, ConnectionLost, BadHttpAnswer) as error:
            raise PeerUnreachable(f"broker {authority}: {error}") from error

    async def _registered(self, broker_id: str) -> _WebService:
        """Raises PeerUnreachable, MetadataError."""
        if not broker_id or "/" in broker_id:
            raise PeerUnreachable(f"{shown(broker_id)} is no broker's id")
        service = await self._service_of(broker_id)
        if service is None:
            raise PeerUnreachable(f"broker {broker_id} is not registered")
        return service

    async def _service_of(self, broker_id: str) -> _WebService | None:
        """Raises PeerUnreachable for a record without the address, MetadataError."""
        node = await self._store.get(f"{BROKERS_PATH}/{broker_id}")
        if node is None:
            return None
        try:
            record = read_json(node.value, _Record)
        except BadJson:
            record = _Record()
        url = record.web_service_url if self._tls is None else record.web_service_url_tls
        if (service := _parsed(url or "", self.scheme)) is not None:
            return service
        kind = "without TLS" if self._tls is None else "with TLS"
        text = f"broker {broker_id} has registered no web service {kind}"
        if self._tls is None and record.web_service_url_tls:
            text += ": set brokerClientTlsEnabled=true"
        raise PeerUnreachable(text)

    @property
    def scheme(self) -> str:
        """That of the addresses under which other brokers are called."""
        return "http" if self._tls is None else "https"

    async def _redirected(self, origin: _WebService, location: str) -> tuple[_WebService, str]:
        """Where a redirect leads, if a broker is registered there. Raises PeerUnreachable."""
        wanted = _parsed(location, self.scheme)
        if wanted is None:
            raise PeerUnreachable(f"broker {origin.authority} redirects to {shown(location)!r}")
        for broker_id in await self._store.children(BROKERS_PATH):
            try:
                service = await self._service_of(broker_id)
            except PeerUnreachable:
                continue
            if service is not None and service[:2] == wanted[:2]:
                parts = urlsplit(location)
                return service, f"{parts.path}?{parts.query}" if parts.query else parts.path
        text = f"broker {origin.authority} redirects to {wanted.authority}, which is no broker"
        raise PeerUnreachable(text)


def _without_certificate(tls: TlsContexts, refresh_check_s: float) -> TlsContexts:
    """For calls of others: the certificate would prove that they are this broker."""
    options = replace(tls.options, certificate_file="", key_file="")
    return TlsContexts(options, refresh_check_s=refresh_check_s)


def _parsed(url: str, scheme: str) -> _WebService | None:
    """The address in a URL of that scheme with a port; None for others."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme != scheme or not host or not port:
        return None
    return _WebService(host, port, parts.netloc)
