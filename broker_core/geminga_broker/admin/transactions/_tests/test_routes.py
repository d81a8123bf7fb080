"""Calls about transactions, which are switched off; the answers of Apache's broker without
`transactionCoordinatorEnabled`.
"""

from __future__ import annotations

import pytest

from geminga_broker.admin._tests.test_guard import call, secured
from geminga_broker.admin.namespaces._tests.test_kept import admin
from geminga_broker.admin.transactions.routes import BASE, SWITCHED_OFF

OFF = (503, {"reason": SWITCHED_OFF})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/coordinators"),
        ("GET", "/coordinatorStats"),
        ("GET", "/slowTransactions/1000"),
        ("GET", "/transactionMetadata/1/2"),
        ("GET", "/transactionBufferStats/public/default/t"),
        ("GET", "/pendingAckStats/public/default/t/s"),
        ("GET", "/positionStatsInPendingAck/public/default/t/s/1/2"),
        ("POST", "/abortTransaction/1/2"),
    ],
)
async def test_there_are_none(method: str, path: str) -> None:
    async with admin() as at:
        assert await at.ask(method, BASE + path) == OFF


@pytest.mark.slow
async def test_coordinators_cannot_become_more() -> None:
    async with admin() as at:
        path = BASE + "/transactionCoordinator/replicas"
        assert await at.ask("POST", path, 3) == OFF
        assert (await at.ask("POST", path))[0] == 400


async def test_topics_have_no_buffer() -> None:
    async with admin() as at:
        path = BASE + "/transactionBufferInternalStats/public/default/t"
        assert (await at.ask("GET", path))[0] == 404
        await at.done("PUT", "/admin/v2/persistent/public/default/t")
        text = "Transaction buffer Snapshot for the topic does not exist"
        assert await at.ask("GET", path) == (404, {"reason": text})


async def test_who_may_ask() -> None:
    async with secured() as (_, app):
        abort = BASE + "/abortTransaction/1/2"
        assert (await call(app, "POST", abort, "nobody")).status in (401, 403)
        assert (await call(app, "GET", BASE + "/coordinators", None)).status == 401
        assert (await call(app, "GET", BASE + "/coordinators", "root")).status == 503
