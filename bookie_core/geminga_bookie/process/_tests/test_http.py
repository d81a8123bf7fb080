"""The HTTP port: metrics, probes, and whoever speaks no HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from geminga_bookie._tests.support import add, small_options
from geminga_bookie.autorecovery.stats import RecoveryStats
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.process import http
from geminga_bookie.process.http import HEAD_BYTES_MAX, handle_http
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_bookie.storage.health import Part
from geminga_bookie.wire.session_limits import Shared
from geminga_runtime.server import serve


class Port:
    """A bookie and its HTTP port."""

    def __init__(self, bookie: InProcessBookie, number: int) -> None:
        self.bookie = bookie
        self.number = number

    async def send(self, data: bytes) -> bytes:
        """All that is answered until the end of the connection."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.number)
        found = b""
        async with stream:
            await stream.send_all(data)
            with trio.fail_after(60):
                try:
                    while received := await stream.receive_some():
                        found += received
                except trio.BrokenResourceError:
                    pass
        return found

    async def get(self, path: str) -> str:
        answered = (await self.send(f"GET {path} HTTP/1.1\r\nHost: b\r\n\r\n".encode())).decode()
        head, _, body = answered.partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 OK\r\n"), answered
        assert f"Content-Length: {len(body)}\r\n" in head
        return body

    async def values(self) -> dict[str, float]:
        """By name and labels."""
        families = text_string_to_metric_families(await self.get("/metrics"))
        return {
            f"{sample.name}{list(sample.labels.values()) or ''}": sample.value
            for family in families
            for sample in family.samples
        }


@pytest.fixture
async def port(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Port]:
    async with open_bookie(small_options(tmp_path)) as bookie:
        assert isinstance(bookie, InProcessBookie)
        serving = partial(
            serve, partial(handle_http, bookie, Shared(bookie)), host="127.0.0.1", port=0
        )
        bound = await nursery.start(serving)
        yield Port(bookie, bound[0].port)
        nursery.cancel_scope.cancel()


async def test_metrics(port: Port) -> None:
    await add(port.bookie, 1, range(5))
    await add(port.bookie, 2, range(5))
    values = await port.values()
    assert values["bookie_SERVER_STATUS"] == 1
    assert values["bookie_ledger_writable_dirs"] == 1
    assert (
        sum(at for name, at in values.items() if name.startswith("bookie_write_cache_size")) > 1000
    )
    assert values["geminga_bookie_journal_entries_total['0']"] >= 10
    assert values["bookie_journal_JOURNAL_QUEUE_SIZE_total['0']"] == 0
    port.bookie.health.set("the test", {Part("ledgers", 0): "full"})
    values = await port.values()
    assert (values["bookie_SERVER_STATUS"], values["bookie_ledger_writable_dirs"]) == (0, 0)


async def test_metrics_of_auto_recovery_beside(port: Port, nursery: trio.Nursery) -> None:
    stats = RecoveryStats()
    stats.count("replication_worker_NUM_ENTRIES_WRITTEN", 7)
    name = "replication_worker_NUM_ENTRIES_WRITTEN_total"
    assert name not in await port.values()
    handler = partial(handle_http, port.bookie, Shared(port.bookie), more=stats.text)
    bound = await nursery.start(partial(serve, handler, host="127.0.0.1", port=0))
    values = await Port(port.bookie, bound[0].port).values()
    assert (values[name], values["bookie_SERVER_STATUS"]) == (7, 1)


async def test_probes(port: Port) -> None:
    assert await port.get("/heartbeat") == "OK\n"
    assert await port.get("/api/v1/bookie/is_ready") == ""
    assert json.loads(await port.get("/api/v1/bookie/state?x=1"))["readOnly"] is False
    port.bookie.health.set("the test", {Part("ledgers", 0): "full"})
    assert json.loads(await port.get("/api/v1/bookie/state"))["readOnly"] is True


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1", 404),
        (b"GET /metricsx HTTP/1.1", 404),
        (b"POST /metrics HTTP/1.1", 405),
        (b"what", 400),
        (b"GET  /metrics HTTP/1.1", 400),
        (b"\xff\xff\xff", 400),
    ],
)
async def test_other_requests(port: Port, request_line: bytes, status: int) -> None:
    answered = await port.send(request_line + b"\r\n\r\n")
    assert re.match(rb"HTTP/1.1 %d [A-Z]" % status, answered)


async def test_a_request_without_end_is_not_kept(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 1000.0)
    assert await port.send(b"G" * (HEAD_BYTES_MAX + 1)) == b""
    monkeypatch.setattr(http, "REQUEST_S", 0.05)
    assert await port.send(b"GET /metrics HTTP/1.1\r\n") == b""
    assert await port.get("/heartbeat") == "OK\n"
