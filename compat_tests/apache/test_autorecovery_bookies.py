"""Four of our bookies with auto-recovery in their processes: the auditor's is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import trio

from compat_tests.apache.bookie import start_metadata
from compat_tests.apache.zookeeper import ZooKeeperServer
from compat_tests.missing import ZOOKEEPER, skipped_without
from compat_tests.processes import free_port, geminga_command
from geminga_bookie.autorecovery.election import current_auditor
from geminga_bookie.client.api import LedgerMetadata, LedgerOptions
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.registered import RegisteredBookies, open_registered_bookies
from geminga_protocol.bookkeeper import underreplication as tree
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

pytestmark = pytest.mark.java

ENTRIES = 500
CLOSED = 3
"""Ledgers that are closed before the bookie is killed, at least."""
SETTINGS = {
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "autoRecoveryDaemonEnabled": "true",
    "zkTimeout": "2000",
    "diskUsageThreshold": "0.999",
    "journalMaxSizeMB": "4",
    "openLedgerRereplicationGracePeriod": "1000",
}


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    with skipped_without(ZOOKEEPER):
        running = start_metadata(tmp_path / "zookeeper")
    yield running
    running.kill()


@pytest.fixture
def bookies(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """By id."""
    running: dict[str, subprocess.Popen[str]] = {}
    try:
        for number in range(4):
            port = free_port()
            config = tmp_path / f"bookie-{number}.conf"
            settings = {
                **SETTINGS,
                "bookiePort": str(port),
                "metadataServiceUri": f"zk+hierarchical://127.0.0.1:{zookeeper.port}/ledgers",
                "journalDirectories": str(tmp_path / f"journal-{number}"),
                "ledgerDirectories": str(tmp_path / f"ledgers-{number}"),
            }
            config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            running[f"127.0.0.1:{port}"] = subprocess.Popen(
                [*geminga_command(), "bookie", "--config", str(config)],
                stdout=subprocess.PIPE,
                text=True,
            )
        for process in running.values():
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready in ")
        yield running
    finally:
        for process in running.values():
            with process:
                process.kill()


async def check_whole(bookies: RegisteredBookies, metadata: LedgerMetadata) -> None:
    """Each of the three bookies has every entry."""
    for ensemble in metadata.ensembles.values():
        for bookie_id in ensemble:
            port = bookies.port(bookie_id)
            assert await port.list_entries(metadata.ledger_id) == list(range(ENTRIES))


async def test_a_bookie_that_is_killed_is_replaced(
    zookeeper: ZooKeeperServer, bookies: dict[str, subprocess.Popen[str]]
) -> None:
    """In a closed ledger, and in an open one, which is closed. Another bookie is the auditor."""
    async with (
        aclosing(await ZooKeeperMetadataStore.open(zookeeper.url)) as store,
        open_registered_bookies(store) as registered,
    ):
        client = BookkeeperClient(registered, store)
        auditor = await elected(store)
        ledgers: list[int] = []
        while True:
            writer = await client.create(LedgerOptions(3, 3, 2, password=b"secret"))
            await append_durably(writer, [(b"%d" % n,) for n in range(ENTRIES)])
            ledgers.append(writer.ledger_id)
            if len(ledgers) > CLOSED and await holds(client, writer.ledger_id, auditor):
                break
            await writer.close()
        bookies[auditor].kill()
        with trio.fail_after(120):
            async with store.watch("/ledgers") as changes:
                while await needed(client, store, ledgers, auditor):
                    await changes.receive()
        for ledger_id in ledgers:
            await check_whole(registered, await client.metadata(ledger_id))
            reader = await client.open(ledger_id, b"secret", recover=False)
            found = [bytes(each) for each in await reader.read(0, ENTRIES - 1)]
            assert found == [b"%d" % n for n in range(ENTRIES)]
        assert await elected(store) != auditor


async def elected(store: ZooKeeperMetadataStore) -> str:
    """Once there is an auditor."""
    with trio.fail_after(60):
        async with store.watch(tree.ELECTION) as changes:
            while (auditor := await current_auditor(store)) is None:
                await changes.receive()
    return auditor


async def holds(client: BookkeeperClient, ledger_id: int, bookie_id: str) -> bool:
    """Whether the bookie is one of the ledger's."""
    metadata = await client.metadata(ledger_id)
    return any(bookie_id in each for each in metadata.ensembles.values())


async def needed(
    client: BookkeeperClient, store: ZooKeeperMetadataStore, ledgers: list[int], lost: str
) -> bool:
    """Whether something is left to do."""
    for ledger_id in ledgers:
        if await holds(client, ledger_id, lost):
            return True
    return bool(await store.children(tree.TASKS))
