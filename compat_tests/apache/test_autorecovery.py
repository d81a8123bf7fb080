"""Auto-recovery of ours and of Apache's on one cluster of both kinds of bookies: each one's auditor
marks for the other one's worker, and Apache's shell reads and sets what ours has written.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from compat_tests.apache.bookie import FRAME_BYTES_MAX, ApacheBookie, start_bookie
from compat_tests.apache.jars import java_command
from compat_tests.missing import BOOKIE, skipped_without
from compat_tests.processes import spawn
from geminga_bookie._tests.support import small_options
from geminga_bookie.autorecovery.auditor import Auditor
from geminga_bookie.autorecovery.election import current_auditor, run_elected, withdraw
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.autorecovery.task_store import TaskStore
from geminga_bookie.autorecovery.worker import ReplicationWorker
from geminga_bookie.client.api import LedgerMetadata, LedgerOptions
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.placement import ensemble_of
from geminga_bookie.errors import NoSuchEntry
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.registered import RegisteredBookies, open_registered_bookies
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.server import BookieServerOptions, serve_bookie
from geminga_protocol.bookkeeper import paths
from geminga_protocol.bookkeeper import underreplication as tree
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

pytestmark = pytest.mark.java

PATIENCE = RemoteOptions(
    frame_bytes_max=FRAME_BYTES_MAX, add_timeout_s=60, read_timeout_s=60, connect_timeout_s=60
)
OPTIONS = AutoRecoveryOptions(ledger_check_interval_s=0, backoff_ms=500)
ENTRIES = 60
PASSWORD = b"secret"


@pytest.fixture
def apache(tmp_path: Path) -> Iterator[ApacheBookie]:
    with skipped_without(BOOKIE):
        running = start_bookie(tmp_path / "apache")
    yield running
    running.kill()


@dataclass
class Mixed:
    """One of Apache's bookies and three of ours, on its ZooKeeper."""

    apache: ApacheBookie
    store: ZooKeeperMetadataStore
    bookies: RegisteredBookies
    stops: dict[str, trio.CancelScope] = field(default_factory=dict)
    """What ends each of ours."""

    @property
    def config(self) -> Path:
        return self.apache.folder / "bookie.conf"

    async def remove(self, bookie_id: str) -> None:
        """End one of ours, with its registration."""
        self.stops.pop(bookie_id).cancel()
        await self.store.delete(f"{paths.available()}/{bookie_id}")

    async def shell(self, *commands: str) -> str:
        """What Apache's shell prints and logs."""
        words = [word for each in commands for word in ("--", *each.split())][1:]
        command = java_command("Recovery", [str(self.config), "shell", *words], heap_mb=128)
        done = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False
        )
        text = (done.stdout + done.stderr).decode()
        assert done.returncode == 0, text
        return text

    @contextmanager
    def apaches(self, *what: str) -> Iterator[subprocess.Popen[bytes]]:
        """Apache's auditor or worker."""
        command = java_command("Recovery", [str(self.config), *what], heap_mb=256)
        process = spawn(command, log_path=self.apache.folder / what[0], cwd=self.apache.folder)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.fixture
async def mixed(
    apache: ApacheBookie, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[Mixed]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            aclosing(await ZooKeeperMetadataStore.open(apache.zookeeper.url))
        )
        bookies = await stack.enter_async_context(open_registered_bookies(store, PATIENCE))
        found = Mixed(apache, store, bookies)
        for name in ("one", "two", "three"):
            local = await stack.enter_async_context(open_bookie(small_options(tmp_path / name)))
            await _serve(found, local, nursery)
        while len(bookies.writable()) < 4:
            await bookies.wait_change()
        yield found
        nursery.cancel_scope.cancel()


async def _serve(mixed: Mixed, local: object, nursery: trio.Nursery) -> None:
    async def serve(task_status: trio.TaskStatus[tuple[int, trio.CancelScope]]) -> None:
        async with trio.open_nursery() as inner:
            bound = await inner.start(serve_bookie, local, BookieServerOptions("127.0.0.1", 0))
            task_status.started((bound[0].port, inner.cancel_scope))

    port, scope = await nursery.start(serve)
    bookie_id = f"127.0.0.1:{port}"
    mixed.stops[bookie_id] = scope
    await mixed.store.put(f"{paths.available()}/{bookie_id}", b"")


async def _ledgers(client: BookkeeperClient, count: int) -> list[int]:
    """Closed ledgers of two copies."""
    made = []
    for _ in range(count):
        writer = await client.create(LedgerOptions(2, 2, 2, password=PASSWORD))
        await append_durably(writer, [(b"%d" % n,) for n in range(ENTRIES)])
        await writer.close()
        made.append(writer.ledger_id)
    return made


async def _check_whole(mixed: Mixed, metadata: LedgerMetadata, lost: str) -> None:
    """All bookies of the metadata have all entries."""
    for entry_id in range(ENTRIES):
        ensemble = ensemble_of(metadata.ensembles, entry_id)
        assert lost not in ensemble
        for bookie_id in ensemble:
            port = mixed.bookies.port(bookie_id)
            try:
                await port.read(metadata.ledger_id, entry_id, entries_max=1, bytes_max=1)
            except NoSuchEntry:
                pytest.fail(f"{bookie_id} lacks {metadata.ledger_id}:{entry_id}")


async def _until_done(mixed: Mixed, ledgers: list[int], lost: str) -> None:
    """Until there are no tasks, and no metadata name the lost bookie."""
    client, tasks = BookkeeperClient(mixed.bookies, mixed.store), TaskStore(mixed.store, "test")
    with trio.fail_after(120):
        async with mixed.store.watch(tree.ROOT) as changes:
            while await _left(client, tasks, ledgers, lost):
                with trio.move_on_after(1):
                    await changes.receive()
    for ledger_id in ledgers:
        await _check_whole(mixed, await client.metadata(ledger_id), lost)


async def _left(
    client: BookkeeperClient, tasks: TaskStore, ledgers: list[int], lost: str
) -> list[int]:
    marked = [each async for each in tasks.tasks()]
    for ledger_id in ledgers:
        if any(lost in each for each in (await client.metadata(ledger_id)).ensembles.values()):
            marked.append(ledger_id)
    return marked


async def test_auditors_and_workers_serve_one_cluster(mixed: Mixed) -> None:
    client = BookkeeperClient(mixed.bookies, mixed.store)
    ledgers = await _ledgers(client, 8)
    first, second, _ = mixed.stops
    tasks = TaskStore(mixed.store, "127.0.0.1:1")
    auditor = Auditor(mixed.store, mixed.bookies, tasks, OPTIONS)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_elected, mixed.store, "127.0.0.1:1", auditor.run)
        await mixed.remove(first)
        of_first = [
            ledger_id
            for ledger_id in ledgers
            if first in (await client.metadata(ledger_id)).ensembles[0]
        ]
        with trio.fail_after(60):
            async with mixed.store.watch(tree.ROOT) as changes:
                while sorted([each async for each in tasks.tasks()]) != of_first:
                    await changes.receive()
        text = await mixed.shell(
            "listunderreplicated -printmissingreplica",
            "whoisauditor",
            "lostbookierecoverydelay -g",
            "autorecovery -d",
        )
        print(text)
        assert not await tasks.is_enabled()
        assert await tasks.enable()
        for ledger_id in of_first:
            assert f"{ledger_id}" in text
        assert first in text
        assert "127.0.0.1:1" in text
        with mixed.apaches("worker"):
            await _until_done(mixed, ledgers, first)
        nursery.cancel_scope.cancel()
    await withdraw(mixed.store, "127.0.0.1:1")

    worker = ReplicationWorker(mixed.store, mixed.bookies, tasks, OPTIONS)
    with mixed.apaches("auditor", "127.0.0.1:2"):
        with trio.fail_after(60):
            async with mixed.store.watch(tree.ELECTION) as votes:
                while await current_auditor(mixed.store) != "127.0.0.1:2":
                    await votes.receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await mixed.remove(second)
            await _until_done(mixed, ledgers, second)
            nursery.cancel_scope.cancel()
