"""A large page as the answer to a request (spec OP-05)."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from geminga_broker.metrics.pace import Pace

SENDING_S = 0.001
"""Parts are sent for so long between two pauses; others run after each."""


class Chunked(Response):
    """Sends a page by its parts, which are made meanwhile."""

    def __init__(self, chunks: Iterator[bytes], content_type: str) -> None:
        super().__init__(headers={"content-type": content_type})
        del self.headers["content-length"]
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, as ASGI asks for it."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        if scope["method"] != "HEAD":
            pace = Pace(SENDING_S)
            for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await pace.spend()
        await send({"type": "http.response.body", "body": b""})
