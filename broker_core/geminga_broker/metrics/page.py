"""A large page as the answer to a request (spec OP-05)."""

from __future__ import annotations

from collections.abc import Iterator

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from geminga_broker.metrics.pace import Pace

SENDING_S = 0.001
"""Parts are sent for so long between two pauses; others run after each."""


class Chunked(Response):
    """Sends a page by its parts, which are made meanwhile, as long as its client is there."""

    def __init__(self, chunks: Iterator[bytes], content_type: str, turns: trio.Lock) -> None:
        """Those that are sent at the same time share the loop by `turns`."""
        super().__init__(headers={"content-type": content_type})
        del self.headers["content-length"]
        self._chunks = chunks
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, as ASGI asks for it."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        if scope["method"] != "HEAD":
            pace = Pace(SENDING_S, self._turns)
            for chunk in self._chunks:
                try:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                except OSError:  # as ASGI tells of a client that is gone
                    return
                await pace.spend()
        await send({"type": "http.response.body", "body": b""})
