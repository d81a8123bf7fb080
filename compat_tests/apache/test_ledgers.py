"""Our ledger client on Apache's bookies and ZooKeeper: bookies are killed and stopped, and both our
client and Apache's read what was confirmed, and go on with what the other left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from compat_tests.apache.bookie import ApacheBookie, launch_bookie, start_metadata
from compat_tests.apache.cluster import killed_at_end
from compat_tests.apache.jars import run_java
from compat_tests.apache.zookeeper import ZooKeeperServer
from compat_tests.missing import BOOKIE, skipped_without
from geminga_bookie.client.api import LedgerOptions, LedgerState
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.errors import BookkeeperError, LedgerFenced
from geminga_bookie.registered import RegisteredBookies, open_registered_bookies
from geminga_bookie.wire.options import RemoteOptions
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

pytestmark = pytest.mark.java

PASSWORD = b"secret"
OPTIONS = LedgerOptions(3, 3, 2, password=PASSWORD)
PATIENCE = RemoteOptions(add_timeout_s=5, read_timeout_s=30, connect_timeout_s=30)
WINDOW = 200
"""Entries that wait for their confirmation."""


@dataclass
class Cluster:
    """Four bookies on one ZooKeeper."""

    zookeeper: ZooKeeperServer
    bookies: list[ApacheBookie] = field(default_factory=list)

    def by_id(self, bookie_id: str) -> ApacheBookie:
        return next(each for each in self.bookies if each.bookie_id == bookie_id)

    def apache(self, what: str, number: int) -> list[str]:
        """What Apache's client prints."""
        uri = f"zk+hierarchical://127.0.0.1:{self.zookeeper.port}/ledgers"
        return run_java("Ledgers", [uri, what, str(number)]).split()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with skipped_without(BOOKIE):
        found = Cluster(start_metadata(tmp_path / "zookeeper"))
    with killed_at_end(found.zookeeper, found.bookies):
        for number in range(4):
            found.bookies.append(launch_bookie(tmp_path / f"bookie-{number}", found.zookeeper))
        for bookie in found.bookies:
            bookie.wait()
        yield found


@pytest.fixture
async def bookies(cluster: Cluster) -> AsyncIterator[RegisteredBookies]:
    async with (
        aclosing(await ZooKeeperMetadataStore.open(cluster.zookeeper.url)) as store,
        open_registered_bookies(store, PATIENCE) as found,
    ):
        while len(found.writable()) < 4:
            await found.wait_change()
        yield found


@pytest.fixture
def client(bookies: RegisteredBookies, nursery: trio.Nursery) -> BookkeeperClient:
    return BookkeeperClient(bookies, bookies._store, nursery=nursery)


class Publisher:
    """Writes numbers, WINDOW of them at once."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self.confirmed = 0
        self.error: BookkeeperError | None = None
        self._moved = trio.Event()

    def _done(self, _first: int, count: int, error: BookkeeperError | None) -> None:
        if error is None:
            self.confirmed += count
        else:
            self.error = error
        self._moved.set()

    async def write(self, to: int) -> None:
        """Until so many entries are confirmed. Raises BookkeeperError."""
        while self.confirmed < to:
            if self.error is not None:
                raise self.error
            pushed = self.writer.last_add_pushed + 1
            if pushed < to and pushed - self.confirmed < WINDOW:
                run = range(pushed, min(to, pushed + 20))
                self.writer.append([(b"%d" % n,) for n in run], self._done)
                await trio.lowlevel.checkpoint()
            else:
                self._moved = trio.Event()
                with trio.fail_after(60):
                    await self._moved.wait()


def numbers(count: int) -> list[str]:
    return [str(n) for n in range(count)]


async def test_a_bookie_that_is_killed_loses_and_stops_nothing(
    cluster: Cluster, client: BookkeeperClient
) -> None:
    """Then another one hangs: it is replaced after the time-out of its answer."""
    publisher = Publisher(await client.create(OPTIONS))
    await publisher.write(1_000)
    ledger_id = publisher.writer.ledger_id
    first = (await client.metadata(ledger_id)).ensembles[0]
    cluster.by_id(first[1]).kill()
    await publisher.write(2_000)
    ensembles = (await client.metadata(ledger_id)).ensembles
    assert len(ensembles) == 2
    assert first[1] not in ensembles[max(ensembles)]
    cluster.by_id(first[0]).pause()
    await publisher.write(3_000)  # nobody can take its place: two of three confirm
    cluster.by_id(first[0]).resume()
    await publisher.writer.close()
    metadata = await client.metadata(ledger_id)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 2_999)
    reader = await client.open(ledger_id, PASSWORD, recover=False)
    assert [bytes(each).decode() for each in await reader.read(0, 2_999)] == numbers(3_000)
    found = await trio.to_thread.run_sync(cluster.apache, "read", ledger_id)
    assert found == ["2999", *numbers(3_000)]


async def test_a_reader_follows_by_long_poll(cluster: Cluster, client: BookkeeperClient) -> None:
    """Past a bookie that is killed and replaced, to the end of the ledger."""
    publisher = Publisher(await client.create(OPTIONS))
    await publisher.write(10)
    ledger_id = publisher.writer.ledger_id
    reader = await client.open(ledger_id, PASSWORD, recover=False)
    found: list[str] = []
    caught_up = trio.Event()

    async def follow() -> None:
        while len(found) < 300:
            last = await reader.wait_last_add_confirmed(30)
            if last >= len(found):
                found.extend(bytes(each).decode() for each in await reader.read(len(found), last))
            if len(found) >= 180:  # the last run tells of what was confirmed before it
                caught_up.set()

    with trio.fail_after(90):
        async with trio.open_nursery() as following:
            following.start_soon(follow)
            for end in range(20, 301, 20):
                await publisher.write(end)
                if end == 100:
                    ensemble = (await client.metadata(ledger_id)).ensembles[0]
                    cluster.by_id(ensemble[0]).kill()
                if end == 200:
                    await caught_up.wait()
            await publisher.writer.close()
    assert found == numbers(300)


async def test_each_recovers_what_the_other_left(
    cluster: Cluster, client: BookkeeperClient
) -> None:
    publisher = Publisher(await client.create(OPTIONS))
    await publisher.write(500)
    ledger_id = publisher.writer.ledger_id
    found = await trio.to_thread.run_sync(cluster.apache, "read", ledger_id)
    assert found[1:501] == numbers(500)
    with pytest.raises(LedgerFenced):
        await publisher.write(501)
    with pytest.raises(LedgerFenced):
        await publisher.writer.close()
    [theirs] = await trio.to_thread.run_sync(cluster.apache, "write", 300)
    ensembles = (await client.metadata(int(theirs))).ensembles
    cluster.by_id(ensembles[0][2]).kill()
    reader = await client.open(int(theirs), PASSWORD, recover=True)
    assert reader.last_add_confirmed == 299
    assert [bytes(each).decode() for each in await reader.read(0, 299)] == numbers(300)
    found = await trio.to_thread.run_sync(cluster.apache, "read", int(theirs))
    assert found == ["299", *numbers(300)]
