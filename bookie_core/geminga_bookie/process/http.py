"""The bookie's HTTP port: metrics, heartbeat and state (spec BK-13; Apache's HttpRouter with
`httpServerEnabled=true`). It answers one GET a connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import trio

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


def metrics(bookie: InProcessBookie, shared: Shared) -> str:
    """For Prometheus: under BookKeeper's names what it has too, as `geminga_...` the rest."""
    failed = {'{success="false"}': shared.dropped_answers}
    statistics = bookie.statistics()
    writable = not statistics.read_only
    lines = [
        *_metric("bookie_SERVER_STATUS", "gauge", {"": int(writable)}),
        *_metric("bookie_ledger_writable_dirs", "gauge", {"": _writable_dirs(bookie)}),
        *_metric("bookie_write_cache_size", "gauge", {"": statistics.write_cache_bytes}),
        *_metric("bookie_read_cache_size", "gauge", {"": statistics.read_cache_bytes}),
        *_metric("bookie_throttled_write_requests", "gauge", {"": statistics.throttled_adds}),
        *_metric("bookie_rejected_write_requests", "counter", {"": statistics.rejected_adds}),
        *_metric("bookkeeper_server_CHANNEL_WRITE_count", "counter", failed),
        *_metric("geminga_bookie_unfinished_frame_bytes", "gauge", {"": shared.frames.bytes}),
        *_metric("geminga_bookie_waiting_reads", "gauge", {"": shared.waits.count}),
        *_metric("geminga_bookie_checkpoints", "counter", {"": statistics.checkpoints}),
    ]
    journals = statistics.journals
    kinds: list[tuple[str, str, list[float]]] = [
        ("bookie_journal_JOURNAL_QUEUE_SIZE", "gauge", [each.queued for each in journals]),
        ("bookie_journal_JOURNAL_WRITE_BYTES", "counter", [each.bytes for each in journals]),
        ("geminga_bookie_journal_groups", "counter", [each.groups for each in journals]),
        ("geminga_bookie_journal_entries", "counter", [each.entries for each in journals]),
        ("geminga_bookie_journal_last_sync_seconds", "gauge", [each.sync_s for each in journals]),
    ]
    for name, kind, values in kinds:
        by_label = {f'{{journalIndex="{at}"}}': value for at, value in enumerate(values)}
        lines += _metric(name, kind, by_label)
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{labels} {value}"


def _writable_dirs(bookie: InProcessBookie) -> int:
    if bookie.health.error is not None:
        return 0
    return len(bookie.storage.stores) - len(bookie.health.refusals.stores)


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


def answer(bookie: InProcessBookie, shared: Shared, method: str, path: str) -> Answer:
    """What is said to one request."""
    if method != "GET":
        return 405, TEXT, "only GET\n"
    routes: dict[str, Callable[[], Answer]] = {
        "/metrics": lambda: (200, TEXT, metrics(bookie, shared)),
        "/heartbeat": lambda: (200, TEXT, "OK\n"),
        "/api/v1/bookie/is_ready": lambda: (200, TEXT, ""),
        "/api/v1/bookie/state": lambda: (200, _JSON, _state(bookie)),
    }
    route = routes.get(path.partition("?")[0].rstrip("/"))
    return route() if route else (404, TEXT, "not found\n")


async def handle_http(bookie: InProcessBookie, shared: Shared, stream: FramedStream) -> None:
    """Serve one connection. Raises ConnectionLost."""
    await respond_once(partial(answer, bookie, shared), stream)


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
