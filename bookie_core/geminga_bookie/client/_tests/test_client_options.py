"""Settings of the ledger client that change what a writer does, and slow bookies (BK-21)."""

from __future__ import annotations

import pytest
import trio

from geminga_bookie.client._tests.cluster import DISK, Cluster, Heard, append
from geminga_bookie.client._tests.test_client import settle
from geminga_bookie.client.api import ClientOptions
from geminga_bookie.errors import (
    BookieReadOnly,
    BookieUnavailable,
    BookkeeperError,
    RequestTimeout,
    TooManyRequests,
)


async def test_a_change_that_is_delayed(nursery: trio.Nursery) -> None:
    """Until an ack quorum would be missing; then all that failed are replaced."""
    cluster = Cluster(5, nursery, ClientOptions(delay_change=True))
    writer, [first, second, third] = await cluster.writer(3, 3, 2)
    heard = Heard()
    second.failure = DISK
    append(writer, 3, heard)
    await settle()
    assert (heard.confirmed, heard.error) == (3, None)
    assert list((await cluster.client.metadata(writer.ledger_id)).ensembles) == [0]
    third.failure = DISK
    append(writer, 2, heard)
    await settle()
    assert (heard.confirmed, heard.error) == (5, None)
    metadata = await cluster.client.metadata(writer.ledger_id)
    [_, changed] = metadata.ensembles.values()
    assert changed[0] == first.bookie_id
    assert not {second.bookie_id, third.bookie_id}.intersection(changed)
    cluster.check_copies(metadata, 4, 2)


async def test_appends_that_wait_are_bounded(nursery: trio.Nursery) -> None:
    """No answer comes, and whoever appends knows no limit: the ledger fails, and frees them."""
    cluster = Cluster(3, nursery, ClientOptions(unanswered_bytes_max=1000))
    writer, members = await cluster.writer(3, 3, 2)
    heard = Heard()
    for _ in range(5):
        writer.append([(b"x" * 250,)], heard)
        await settle()
    assert heard.confirmed == 5, "what is confirmed doesn't count"
    for each in members:
        each.held = []
    for _ in range(4):
        writer.append([(b"x" * 250,)], heard)
    await settle()
    assert heard.error is None
    writer.append([(b"x",)], heard)
    assert heard.error is None, "the caller doesn't know the entry yet"
    await settle()
    assert type(heard.error) is TooManyRequests
    assert not writer._pending
    for each in members:
        each.release()
    await writer.close()
    assert (await cluster.client.metadata(writer.ledger_id)).last_entry_id == 4


@pytest.mark.parametrize(
    "error", [TooManyRequests, RequestTimeout, BookieUnavailable, BookieReadOnly]
)
async def test_a_bookie_that_is_slow_or_full_is_replaced(
    nursery: trio.Nursery, error: type[BookkeeperError]
) -> None:
    cluster = Cluster(4, nursery)
    writer, [_, second, _] = await cluster.writer(3, 3, 3)
    second.failure = error("not now")
    heard = Heard()
    append(writer, 3, heard)
    await settle()
    assert (heard.confirmed, heard.error) == (3, None)
    metadata = await cluster.client.metadata(writer.ledger_id)
    assert second.bookie_id not in metadata.ensembles[0]
