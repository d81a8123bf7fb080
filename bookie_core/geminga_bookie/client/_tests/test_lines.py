"""A bookie that goes on failing does not fill the log (spec OP-08)."""

import pytest
import trio

from geminga_bookie.client._tests.cluster import Cluster, Heard, append
from geminga_bookie.client._tests.test_client import settle
from geminga_bookie.client.api import ClientOptions
from geminga_bookie.errors import BookieUnavailable
from geminga_runtime.logs import FewLines


@pytest.mark.parametrize("options", [ClientOptions(), ClientOptions(delay_change=True)])
async def test_a_bookie_that_refuses_every_ledger_is_told_of_seldom(
    options: ClientOptions,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: object,
    nursery: trio.Nursery,
) -> None:
    """A broker without credentials makes ledgers without end where they are asked for."""
    cluster = Cluster(3, nursery, options)
    for peer in cluster.peers[:2]:
        peer.failure = BookieUnavailable(f"{peer.bookie_id}: not authenticated")
    for _ in range(100):
        writer, _ = await cluster.writer(3, 3, 1)
        append(writer, 1, Heard())
        await settle()
    told = [line for line in caplog.messages if "not authenticated" in line]
    assert 2 <= len(told) <= 20
    await trio.sleep(FewLines.PERIOD_S)
    writer, _ = await cluster.writer(3, 3, 1)
    append(writer, 1, Heard())
    await settle()
    assert any("like it left out" in line for line in caplog.messages)
