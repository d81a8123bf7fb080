"""A broker whose limits and checks are off, as Apache's takes 0 (OP-07)."""

from __future__ import annotations

from pathlib import Path

import httpx2 as httpx
import trio

from geminga_broker.config import load_config
from geminga_broker.standalone import run_standalone
from geminga_broker.standalone_parts import StandaloneOptions

GIVEN = {
    "bindAddress": "127.0.0.1", "brokerServicePort": "0", "webServicePort": "0",
    "maxHttpServerConnections": "0", "retentionCheckIntervalInSeconds": "0",
    "brokerServiceCompactionMonitorIntervalInSeconds": "-1",
}  # fmt: skip


async def test_it_serves(tmp_path: Path) -> None:
    options = StandaloneOptions(load_config(None, {}, GIVEN), tmp_path / "data")
    async with trio.open_nursery() as nursery:
        running = await nursery.start(run_standalone, options)
        async with httpx.AsyncClient(base_url=running.urls[1]) as client:
            assert (await client.get("/admin/v2/brokers/health")).text == "ok"
        nursery.cancel_scope.cancel()
