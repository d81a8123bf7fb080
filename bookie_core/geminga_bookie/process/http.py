"""The bookie's HTTP port: metrics, heartbeat and state (spec BK-13; Apache's HttpRouter with
`httpServerEnabled=true`). It answers one GET a connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import trio

from geminga_bookie.process.metrics import metrics
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_bookie.wire.session_limits import Shared
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.stream import FramedStream

HEAD_BYTES_MAX = 8 * 1024
REQUEST_S = 10.0
"""Time for a request to come and its answer to go."""
CONNECTIONS_MAX = 100

TEXT = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"
Answer = tuple[int, str, str]
"""Status, kind and body."""
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}


Metrics = Callable[[], str]


def _state(bookie: InProcessBookie) -> str:
    read_only = bookie.health.error is not None
    return json.dumps(
        {
            "running": True,
            "readOnly": read_only,
            "shuttingDown": False,
            "availableForHighPriorityWrites": True,
        }
    )


def answer(
    bookie: InProcessBookie, shared: Shared, more: Metrics | None, method: str, path: str
) -> Answer:
    """What is said to one request."""
    if method != "GET":
        return 405, TEXT, "only GET\n"
    routes: dict[str, Callable[[], Answer]] = {
        "/metrics": lambda: (200, TEXT, metrics(bookie, shared) + (more() if more else "")),
        "/heartbeat": lambda: (200, TEXT, "OK\n"),
        "/api/v1/bookie/is_ready": lambda: (200, TEXT, ""),
        "/api/v1/bookie/state": lambda: (200, _JSON, _state(bookie)),
    }
    route = routes.get(path.partition("?")[0].rstrip("/"))
    return route() if route else (404, TEXT, "not found\n")


async def handle_http(
    bookie: InProcessBookie, shared: Shared, stream: FramedStream, *, more: Metrics | None = None
) -> None:
    """Serve one connection; `more` metrics stand behind the bookie's. Raises ConnectionLost."""
    await respond_once(partial(answer, bookie, shared, more), stream)


async def respond_once(respond: Callable[[str, str], Answer], stream: FramedStream) -> None:
    """Answer one request by its method and path. Raises ConnectionLost."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_writer)
        with trio.move_on_after(REQUEST_S):
            await _serve(respond, stream)
        nursery.cancel_scope.cancel()


async def _serve(respond: Callable[[str, str], Answer], stream: FramedStream) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        received = await stream.receive(HEAD_BYTES_MAX)
        head += received
        if not received or len(head) > HEAD_BYTES_MAX:
            raise ConnectionLost(f"{stream.name}: no request of HTTP")
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    status, kind, body = (
        respond(words[0], words[1]) if len(words) == 3 else (400, TEXT, "not a request\n")
    )
    content = body.encode()
    fields = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    stream.write(fields.encode(), content)
    await stream.flush()
