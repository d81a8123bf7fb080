"""The metrics of a bookie under traffic, and their names beside those of Apache's (BK-13)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from geminga_bookie._tests.support import (
    KEY,
    Outcomes,
    add,
    packets,
    read_all,
    small_options,
    write_lac,
)
from geminga_bookie.errors import LedgerFenced, NoSuchEntry
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.port import BookiePort
from geminga_bookie.process.metrics import metrics
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import open_remote
from geminga_bookie.wire.server import BookieServerOptions, serve_bookie, shared_by
from geminga_bookie.wire.session_limits import Shared
from geminga_runtime.metrics.distribution import QUANTILES, WINDOW_S, Distribution

APACHES = Path(__file__).with_name("apache_metrics.txt")
"""Names and types of BookKeeper 4.17.2, as its Prometheus provider wrote them after every kind of
request, with enableStatistics and enableTaskExecutionStats; without those of the Java machine."""
DECISION = Path(__file__).parents[4] / "docs" / "decisions" / "0033-metrics-of-bookies.md"


class Served:
    """A bookie behind its server, and a client's port to it."""

    def __init__(self, bookie: InProcessBookie, shared: Shared, port: BookiePort) -> None:
        self.bookie = bookie
        self.shared = shared
        self.port = port

    def values(self) -> dict[str, float]:
        """By name and labels."""
        found: dict[str, float] = {}
        for line in metrics(self.bookie, self.shared).splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    def types(self) -> dict[str, str]:
        """By name."""
        lines = metrics(self.bookie, self.shared).splitlines()
        return {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Served]:
    options = BookieServerOptions("127.0.0.1", 0)
    async with open_bookie(small_options(directory)) as bookie, trio.open_nursery() as nursery:
        assert isinstance(bookie, InProcessBookie)
        shared = shared_by(bookie, options)
        bound = await nursery.start(partial(serve_bookie, bookie, options, shared=shared))
        remote = RemoteOptions(add_timeout_s=30, read_timeout_s=30, connect_timeout_s=30)
        async with open_remote("b", "127.0.0.1", bound[0].port, remote) as port:
            yield Served(bookie, shared, port)
        nursery.cancel_scope.cancel()


async def test_requests_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        port = served.port
        await add(port, 1, range(50))
        assert await read_all(port, 1, 0, 19) == packets(1, range(20))
        with pytest.raises(NoSuchEntry):
            await port.read(1, 99, entries_max=1, bytes_max=1)
        await port.read_lac(1)
        await write_lac(port, 1, 3)
        await port.force(1)
        await port.info()
        await port.list_entries(1)
        await port.fence(1, KEY)
        with pytest.raises(LedgerFenced):
            await add(port, 1, [50])
        outcomes = Outcomes()
        port.add(1, KEY, 50, packets(1, [50]), outcomes, recovery=True)
        await outcomes.wait_for(1)
        found = served.values()
        size = len(packets(1, [0])[0])
        for name, good, bad in (
            ("bookkeeper_server_ADD_ENTRY_REQUEST", 51, 1),
            ("bookie_BOOKIE_ADD_ENTRY", 51, 1),
            ("bookie_BOOKIE_RECOVERY_ADD_ENTRY", 1, 0),
            ("bookie_BOOKIE_ADD_ENTRY_BYTES", 51, 1),
            ("bookkeeper_server_READ_ENTRY_REQUEST", 20, 1),
            ("bookkeeper_server_READ_LAC_REQUEST", 1, 0),
            ("bookkeeper_server_WRITE_LAC", 1, 0),
            ("bookkeeper_server_FORCE_LEDGER_REQUEST", 1, 0),
            ("bookkeeper_server_GET_BOOKIE_INFO", 1, 0),
            ("bookkeeper_server_GET_LIST_OF_ENTRIES_OF_LEDGER", 1, 0),
            ("bookkeeper_server_READ_ENTRY_FENCE_REQUEST", 1, 0),
        ):
            assert found[f'{name}_count{{success="true"}}'] == good, name
            assert found[f'{name}_count{{success="false"}}'] == bad, name
        assert found["bookie_WRITE_BYTES"] == 51 * size
        assert found["bookie_READ_BYTES"] == 20 * size
        assert found["bookkeeper_server_ADD_ENTRY_IN_PROGRESS"] == 0
        assert found["bookkeeper_server_READ_ENTRY_IN_PROGRESS"] == 0
        slowest = found['bookkeeper_server_ADD_ENTRY_REQUEST{success="true",quantile="1.0"}']
        assert 0 < slowest < 30_000
        mean = found['bookie_BOOKIE_ADD_ENTRY_BYTES{success="true",quantile="0.5"}']
        assert size <= mean <= 1.1 * size


async def test_the_journal_and_flushes_are_measured(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await add(served.port, 1, range(50))
        await served.bookie.force(1)
        await served.bookie.checkpointer.checkpoint()
        await served.bookie.read(1, 0, entries_max=50, bytes_max=1 << 20)
        await served.bookie.read(1, 10, entries_max=5, bytes_max=1 << 20)
        found = served.values()
        journal = '{success="true",journalIndex="0"}'
        name = "bookie_journal_JOURNAL"
        assert found[f"{name}_ADD_ENTRY_count{journal}"] == 50
        assert found[f"{name}_QUEUE_LATENCY_count{journal}"] == 50
        assert (
            found[f"{name}_ADD_ENTRY_sum{journal}"] >= found[f"{name}_QUEUE_LATENCY_sum{journal}"]
        )
        assert found[f"{name}_FORCE_WRITE_BATCH_ENTRIES_sum{journal}"] == 50
        assert found[f"{name}_SYNC_count{journal}"] >= 1
        assert found[f"{name}_FORCE_LEDGER_count{journal}"] == 1
        assert found[f"{name}_CREATION_LATENCY_count{journal}"] >= 1
        assert found[f'{name}_NUM_FLUSH_EMPTY_QUEUE{{journalIndex="0"}}'] >= 1
        labels = f'indexDir="{tmp_path}/ledgers",ledgerDir="{tmp_path}/ledgers"'
        good = f'{{success="true",{labels}}}'
        assert found[f"bookie_flush_count{good}"] == 1
        assert found[f"bookie_flush_size_sum{good}"] == 50 * len(packets(1, [0])[0])
        assert found[f"bookie_lookup_entry_location_count{good}"] == 1
        assert found[f"bookie_readahead_batch_count_sum{good}"] == 50
        assert found[f"bookie_read_cache_misses{{{labels}}}"] == 1
        assert found[f"bookie_read_cache_hits{{{labels}}}"] == 5
        pool = "bookkeeper_server_BookieReadThreadPool_task_execution_count"
        assert found[f'{pool}{{success="true"}}'] == 1


async def test_names_and_types_are_apaches(tmp_path: Path) -> None:
    """What is missing stands in the decision, with the reason."""
    apaches = dict(line.split() for line in APACHES.read_text().splitlines())
    async with serving(tmp_path) as served:
        ours = served.types()
    own = {name for name in ours if name.startswith("geminga_")}
    own |= {name for name in ours if name.startswith("bookie_ledger_dir_")}
    assert ours.keys() - own <= apaches.keys()
    assert {name: apaches[name] for name in ours if name in apaches} == {
        name: kind for name, kind in ours.items() if name in apaches
    }
    explained = set(re.findall(r"`(\w+)`", DECISION.read_text()))
    assert apaches.keys() - ours.keys() == explained & apaches.keys()


def test_quantiles_are_of_the_last_minute() -> None:
    distribution = Distribution()
    assert all(value != value for value in distribution.quantiles(1.0))
    distribution.add(0.001, 99)
    distribution.add(1.0)
    first = dict(zip(QUANTILES, distribution.quantiles(1.0), strict=True))
    assert 0.001 <= first[0.5] <= 0.0011
    assert 0.001 <= first[0.99] <= 0.0011
    assert 1.0 <= first[0.999] <= 1.1
    assert 1.0 <= first[1.0] <= 1.1
    assert distribution.quantiles(1.0 + WINDOW_S) == list(first.values())
    distribution.add(0.1)
    assert distribution.quantiles(2.0 + WINDOW_S) == list(first.values())
    later = distribution.quantiles(1.0 + 2 * WINDOW_S)
    assert all(0.1 <= value <= 0.11 for value in later)
    assert all(value != value for value in distribution.quantiles(1.0 + 3 * WINDOW_S))
    assert (distribution.count, round(distribution.sum, 6)) == (101, 1.199)


def test_values_beyond_the_buckets() -> None:
    distribution = Distribution()
    distribution.add(0.0)
    distribution.add(-1.0)
    distribution.add(1e30)
    assert distribution.count == 3
    assert distribution.quantiles(1.0)[0] == pytest.approx(1e-6)
