"""The ledger client's work on the bookies of a cluster, Apache's or ours; figures are JSON."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

import trio

from compat_tests.apache.bookie import FRAME_BYTES_MAX
from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.errors import BookkeeperError
from geminga_bookie.port import BookiePort
from geminga_bookie.registered import RegisteredBookies, open_registered_bookies
from geminga_bookie.wire.options import RemoteOptions
from geminga_protocol.bookkeeper import underreplication as tree
from geminga_protocol.bookkeeper.digest import Digest, master_key
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore
from geminga_runtime.waiters import Promise

PASSWORD = b"secret"
OPTIONS = LedgerOptions(3, 3, 2, password=PASSWORD)
RUN = 200
REMOTE = RemoteOptions(frame_bytes_max=FRAME_BYTES_MAX, add_timeout_s=60, read_timeout_s=60)

Figures = dict[str, float]


class Session:
    """A client, its bookies and the store."""

    def __init__(self, store: ZooKeeperMetadataStore, bookies: RegisteredBookies) -> None:
        self.store = store
        self.bookies = bookies
        self.client = BookkeeperClient(bookies, store)


async def unconfirmed(session: Session, entries: int, size: int) -> Figures:
    """A ledger whose writer knew of no confirmed entry: all bookies have all entries."""
    writer = await session.client.create(OPTIONS)
    metadata = await session.client.metadata(writer.ledger_id)
    async with trio.open_nursery() as nursery:
        for bookie_id in metadata.ensembles[0]:
            port = session.bookies.port(bookie_id)
            nursery.start_soon(_fill, port, metadata.ledger_id, entries, size)
    return {"ledger": metadata.ledger_id}


async def _fill(port: BookiePort, ledger_id: int, entries: int, size: int) -> None:
    digest, key, length = Digest(OPTIONS.digest_type.value, PASSWORD), master_key(PASSWORD), 0
    for first in range(0, entries, RUN):
        count = min(RUN, entries - first)
        packets, length = digest.packets(ledger_id, first, -1, length, [(bytes(size),)] * count)
        written: Promise[None] = Promise()
        left = count

        def done(
            _first: int, added: int, error: BookkeeperError | None, written: Promise[None] = written
        ) -> None:
            nonlocal left
            left -= added
            if error is not None:
                written.reject(error)
            elif left == 0:
                written.resolve(None)

        port.add(ledger_id, key, first, packets, done)
        await written.wait()


async def recover(session: Session, ledgers: list[int]) -> Figures:
    """Recover ledgers, one after the other; the time of the last one."""
    recover_s, last = 0.0, -1
    for ledger_id in ledgers:
        began = time.perf_counter()
        reader = await session.client.open(ledger_id, PASSWORD, recover=True)
        recover_s, last = time.perf_counter() - began, reader.last_add_confirmed
    return {"recover_s": recover_s, "last": last}


async def write(session: Session, ledgers: int, mb: int, size: int) -> Figures:
    """Closed ledgers of so many MB each."""
    entry = (bytes(size),)
    for _ in range(ledgers):
        writer = await session.client.create(OPTIONS)
        for _ in range(max(1, mb * 1_000_000 // size // RUN)):
            await append_durably(writer, [entry] * RUN)
        await writer.close()
    return {"ledgers": ledgers}


async def repaired(session: Session, lost: str) -> Figures:
    """Wait for the first task of auto-recovery, then for the end of all: the time between, in which
    the copies that the lost bookie had were made anew.
    """
    store, named = session.store, list[int]()
    mb = 0.0
    for ledger_id in [each async for each in session.client.ledgers()]:
        metadata = await session.client.metadata(ledger_id)
        if any(lost in each for each in metadata.ensembles.values()):
            named.append(ledger_id)
            mb += metadata.length / 1e6
    print("ready", flush=True)
    began = 0.0
    async with store.watch("/ledgers") as changes:
        while not began or await _is_left(session, named, lost):
            await changes.receive()
            if not began and await _tasks(store):
                began = time.perf_counter()
    seconds = time.perf_counter() - began
    return {"repair_s": seconds, "repaired_mb": mb, "mb_per_s": mb / seconds}


async def _tasks(store: ZooKeeperMetadataStore) -> bool:
    return bool(await store.children(tree.TASKS))


async def _is_left(session: Session, named: list[int], lost: str) -> bool:
    """Whether one of the ledgers names the lost bookie still. Those that don't are taken out."""
    while named:
        metadata = await session.client.metadata(named[-1])
        if any(lost in each for each in metadata.ensembles.values()):
            return True
        named.pop()
    return await _tasks(session.store)


async def _run(url: str, work: Callable[[Session], Awaitable[Figures]]) -> None:
    async with (
        aclosing(await ZooKeeperMetadataStore.open(url)) as store,
        open_registered_bookies(store, REMOTE) as bookies,
    ):
        while len(bookies.writable()) < OPTIONS.ensemble_size:
            await bookies.wait_change()
        print(json.dumps(await work(Session(store, bookies))), flush=True)


def main() -> None:
    """`MODE --url zk:HOST:PORT ...`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("unconfirmed", "recover", "write", "repaired"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--ledger", type=int, action="append", default=[])
    parser.add_argument("--ledgers", type=int, default=8)
    parser.add_argument("--mb", type=int, default=128)
    parser.add_argument("--lost", default="")
    given = parser.parse_args()
    work: dict[str, Callable[[Session], Awaitable[Figures]]] = {
        "unconfirmed": partial(unconfirmed, entries=given.entries, size=given.size),
        "recover": partial(recover, ledgers=given.ledger),
        "write": partial(write, ledgers=given.ledgers, mb=given.mb, size=given.size),
        "repaired": partial(repaired, lost=given.lost),
    }
    trio.run(_run, given.url, work[given.mode])


if __name__ == "__main__":
    main()
