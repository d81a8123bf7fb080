"""A proxy whose limit of HTTP connections is off, as Apache's takes 0 (PX-01)."""

from __future__ import annotations

import pytest

from geminga_proxy.http._tests.played import Client, brokers, echo, proxied


@pytest.mark.parametrize("off", ["0", "-1"])
async def test_it_serves(off: str) -> None:
    settings = {"maxHttpServerConnections": off}
    async with brokers(echo) as (broker,), proxied(broker.port, **settings) as running:
        client = await Client.of(running)
        assert (await client.ask("GET", "/admin"))[0] == 200
