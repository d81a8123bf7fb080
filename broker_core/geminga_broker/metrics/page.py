"""A large page as the answer to a request (spec OP-05)."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class Chunked(Response):
    """Sends a page by its parts: joined they would be copied in one turn of the loop."""

    def __init__(self, chunks: Sequence[bytes], content_type: str) -> None:
        length = str(sum(map(len, chunks)))
        super().__init__(headers={"content-type": content_type, "content-length": length})
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, as ASGI asks for it."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        if scope["method"] != "HEAD":
            for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
