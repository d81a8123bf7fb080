"""So many requests a second (Apache's httpRequestsLimitEnabled)."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from geminga_broker._tests.asgi import request
from geminga_broker._tests.wire import open_broker
from geminga_broker.admin.app import create_app
from geminga_broker.config import load_config


async def test_more_are_refused_and_counted(autojump_clock: MockClock) -> None:
    limited = {"httpRequestsLimitEnabled": "true", "httpRequestsMaxPerSecond": "4"}
    async with open_broker(load_config(None, {}, limited)) as broker:
        app = create_app(broker.service)

        async def statuses(count: int) -> list[int]:
            return [(await request(app, "GET", "/admin/v2/clusters")).status for _ in range(count)]

        assert await statuses(2) == [200, 429]
        await trio.sleep(100)  # no more is saved than those of a second
        assert await statuses(7) == [200] * 5 + [429] * 2
        await trio.sleep(1)
        page = (await request(app, "GET", "/metrics/")).body.decode()
        assert 'pulsar_broker_http_rejected_requests_total{cluster="standalone"} 3' in page


async def test_without_a_limit_all_are_answered() -> None:
    async with open_broker() as broker:
        app = create_app(broker.service)
        found = {(await request(app, "GET", "/admin/v2/clusters")).status for _ in range(300)}
        page = (await request(app, "GET", "/metrics/")).body.decode()
    assert found == {200}
    assert "http_rejected" not in page
