"""Ledgers on one of Apache's bookies and two of ours, all behind the wire protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from compat_tests.apache.bookie import FRAME_BYTES_MAX, ApacheBookie, start_bookie
from compat_tests.missing import BOOKIE, skipped_without
from geminga_bookie._tests.support import small_options
from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.errors import LedgerFenced
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import open_remote
from geminga_bookie.wire.server import BookieServerOptions, serve_bookie
from geminga_runtime.metadata.memory import MemoryMetadataStore

pytestmark = pytest.mark.java

OPTIONS = RemoteOptions(
    frame_bytes_max=FRAME_BYTES_MAX, add_timeout_s=60, read_timeout_s=60, connect_timeout_s=60
)
ON_ALL = LedgerOptions(3, 3, 2, password=b"secret")
STRIPED = LedgerOptions(3, 2, 2, password=b"secret")


@pytest.fixture
def apache(tmp_path: Path) -> Iterator[ApacheBookie]:
    with skipped_without(BOOKIE):
        running = start_bookie(tmp_path / "apache")
    yield running
    running.kill()


@pytest.fixture
async def bookies(
    apache: ApacheBookie, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[KnownBookies]:
    """Each is reached over TCP."""
    addresses = {"apache": apache.port}
    async with AsyncExitStack() as stack:
        for name in ("one", "two"):
            options = small_options(tmp_path / name, bookie_id=name)
            local = await stack.enter_async_context(open_bookie(options))
            bound = await nursery.start(serve_bookie, local, BookieServerOptions("127.0.0.1", 0))
            addresses[name] = bound[0].port
        found = KnownBookies()
        for name, port in addresses.items():
            remote = open_remote(name, "127.0.0.1", port, OPTIONS)
            found.join(await stack.enter_async_context(remote))
        yield found
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("options", [ON_ALL, STRIPED])
async def test_a_ledger_is_recovered_from_its_owner(
    bookies: KnownBookies, options: LedgerOptions
) -> None:
    store = MemoryMetadataStore()
    owner, heir = BookkeeperClient(bookies, store), BookkeeperClient(bookies, store)
    writer = await owner.create(options)
    entries = [[b"entry %d " % at * 10] for at in range(500)]
    for first in range(0, 500, 50):
        await append_durably(writer, entries[first : first + 50])
    reader = await heir.open(writer.ledger_id, b"secret", recover=True)
    assert reader.last_add_confirmed == 499
    found = await reader.read(0, 499)
    assert [bytes(payload) for payload in found] == [parts[0] for parts in entries]
    with pytest.raises(LedgerFenced):
        await append_durably(writer, entries[:1])


async def test_a_ledger_outlives_a_bookie(bookies: KnownBookies, apache: ApacheBookie) -> None:
    """Killed after the ledger was closed: the two others have all of it."""
    client = BookkeeperClient(bookies, MemoryMetadataStore())
    writer = await client.create(ON_ALL)
    entries = [[b"entry %d" % at] for at in range(100)]
    await append_durably(writer, entries)
    await writer.close()
    apache.kill()
    reader = await client.open(writer.ledger_id, b"secret", recover=True)
    found = await reader.read(0, 99)
    assert [bytes(payload) for payload in found] == [parts[0] for parts in entries]
