"""Calls of the REST API for whoever looks at the console: in this process, through the same
application that serves clients, so that each is authorised and audited in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
import trio
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Scope

from geminga_broker.admin.peers import PeerAnswer, Peers, PeerUnreachable
from geminga_broker.web.settings import TLS_PEER_CERTIFICATE
from geminga_runtime.http.answers import HttpAnswer
from geminga_runtime.json_text import BadJson, read_json

T = TypeVar("T")
Json = dict[str, object]
INLINE_BYTES_MAX = 128 << 10
"""Larger answers are decoded in a thread: the loop must not wait."""
PEER_S = 3.0
"""For the load of another broker: a page shows those that answer."""


class CallFailed(Exception):
    """An answer that is an error, or none."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TopicPath:
    """A topic as it stands in paths, encoded."""

    domain: str
    tenant: str
    namespace: str
    topic: str

    @property
    def rest(self) -> str:
        """Its path in the REST API."""
        return f"/admin/v2/{self.path}"

    @property
    def path(self) -> str:
        """`domain/tenant/namespace/topic`."""
        parts = (self.domain, self.tenant, self.namespace, self.topic)
        return "/".join(quote(part, safe="") for part in parts)

    def subscription(self, name: str) -> str:
        """The path of a subscription in the REST API, where its name is encoded twice, as Apache's
        clients do it.
        """
        return f"{self.rest}/subscription/{quote(quote(name, safe=''), safe='')}"

    @property
    def parts(self) -> list[str]:
        """Of the name, as they stand after `/console/topics` when they are encoded."""
        return [self.domain, self.tenant, self.namespace, self.topic]

    @property
    def name(self) -> str:
        """Its full name."""
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.topic}"


class Rest:
    """The REST API for one request of a browser."""

    def __init__(
        self, app: ASGIApp, peers: Peers, request: Request, credentials: Mapping[str, str]
    ) -> None:
        """`credentials` are headers, by names in lower case."""
        self._app = app
        self._peers = peers
        self._request = request
        self._credentials = credentials

    async def get(self, path: str, kind: type[T], **query: object) -> T:
        """The JSON of an answer. Raises CallFailed."""
        return await decoded((await self.call("GET", path, **query)).body, kind)

    async def of_broker(self, broker_id: str, own_id: str, path: str, kind: type[T]) -> T:
        """The same of a certain broker. Raises CallFailed."""
        if broker_id == own_id:
            return await self.get(path, kind)
        try:
            answer = await self._peers.call(
                broker_id, "GET", path, timeout_s=PEER_S, headers=self._credentials
            )
        except PeerUnreachable as error:
            raise CallFailed(502, str(error)) from None
        if answer.status >= 300:
            raise CallFailed(answer.status, answer.reason)
        return await decoded(answer.body, kind)

    async def call(
        self, method: str, path: str, body: object = None, **query: object
    ) -> HttpAnswer:
        """An answer that is no error; a call that another broker must answer is made there. Raises
        CallFailed.
        """
        content = b"" if body is None else msgspec.json.encode(body)
        text = urlencode({name: value for name, value in query.items() if value is not None})
        answer = await self._asked(method, path, text, content)
        if answer.status == 307:
            headers = dict(self._credentials)
            if content:
                headers["content-type"] = "application/json"
            try:
                location = answer.headers.get("location", "")
                answer = await self._peers.follow(location, method, content, headers)
            except PeerUnreachable as error:
                raise CallFailed(502, str(error)) from None
        if answer.status >= 300:
            raise CallFailed(answer.status, PeerAnswer(answer.status, answer.body).reason)
        return answer

    async def _asked(self, method: str, path: str, query: str, body: bytes) -> HttpAnswer:
        """The application's own answer."""
        status, raw, content = 500, list[tuple[bytes, bytes]](), bytearray()

        async def receive() -> Message:
            await trio.lowlevel.checkpoint()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, raw
            await trio.lowlevel.checkpoint()
            if message["type"] == "http.response.start":
                status, raw = message["status"], list(message.get("headers", ()))
            else:
                content.extend(message.get("body", b""))

        await self._app(self._scope(method, path, query, body), receive, send)
        listed = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]
        headers = {name.lower(): value for name, value in listed}
        return HttpAnswer(status, headers, bytes(content), listed)

    def _scope(self, method: str, path: str, query: str, body: bytes) -> Scope:
        outer = self._request.scope
        headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in self._credentials.items()
        ]
        if body:
            headers.append((b"content-type", b"application/json"))
        scope: Scope = {
            "type": "http",
            "asgi": outer.get("asgi", {"version": "3.0"}),
            "http_version": "1.1",
            "method": method,
            # Redirects lead to addresses of this scheme.
            "scheme": self._peers.scheme,
            "path": path,
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "root_path": "",
            "headers": headers,
            "client": outer.get("client"),
            "server": outer.get("server"),
        }
        if TLS_PEER_CERTIFICATE in outer:
            scope[TLS_PEER_CERTIFICATE] = outer[TLS_PEER_CERTIFICATE]
        return scope


async def decoded(body: bytes, kind: type[T]) -> T:
    """The JSON. Raises CallFailed."""

    def decode() -> T:
        return read_json(body or b"null", kind, strict=False)

    try:
        if len(body) <= INLINE_BYTES_MAX:
            return decode()
        return await trio.to_thread.run_sync(decode)
    except BadJson as error:
        raise CallFailed(500, f"The answer is not understood: {error}") from None
