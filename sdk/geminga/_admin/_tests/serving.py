"""A fake web service: answers by a function, over memory streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
import trio.testing

from geminga._admin.exchange import parse_admin_url
from geminga._admin.options import AdminOptions
from geminga._admin.requests import Request
from geminga._admin.transport import Transport
from geminga_runtime.errors import ConnectFailed, TlsRefused
from geminga_runtime.http.client import Origin

Answering = Callable[[Origin, str, dict[str, str], bytes], bytes | None]
"""Host, request line, headers and body; returns the answer, None for none."""


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Web:
    """The hosts, and what they were asked."""

    def __init__(self, nursery: trio.Nursery, answering: Answering) -> None:
        self._nursery = nursery
        self._answering = answering
        self.away: set[str] = set()
        """Hosts that can't be reached."""
        self.without_tls: set[str] = set()
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        """Host, request line, headers, body."""

    async def __call__(self, origin: Origin) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if origin.host in self.away:
            raise ConnectFailed(f"{origin.authority}: refused")
        if origin.host in self.without_tls:
            raise TlsRefused(f"{origin.authority}: no TLS")
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, origin, theirs)
        return ours

    async def _serve(self, origin: Origin, stream: trio.abc.Stream) -> None:
        received = b""
        while True:
            while b"\r\n\r\n" not in received:
                data = await stream.receive_some(1 << 16)
                if not data:
                    return
                received += data
            head, _, received = received.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (each.partition(": ") for each in lines)
            }
            length = int(headers.get("content-length", "0"))
            while len(received) < length:
                received += await stream.receive_some(1 << 16)
            body, received = received[:length], received[length:]
            self.asked.append((origin.host, first.removesuffix(" HTTP/1.1"), headers, body))
            said = self._answering(origin, first.removesuffix(" HTTP/1.1"), headers, body)
            if said is None:
                await stream.aclose()
                return
            await stream.send_all(said)

    def transport(self, url: str, **options: Any) -> Transport:
        made = AdminOptions(**options)
        return Transport(parse_admin_url(url), made, self)


GET = Request("GET", "/admin/v2/tenants")
POST = Request("POST", "/admin/v2/tenants/t", [("a", "b c")], b"{}")
