"""A bookie on a disk that loses power, two others, and ledgers on all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import trio

from geminga_bookie._tests.power import OPTIONS
from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_nodes import Loss
from geminga_bookie._tests.sim_stores import SimStores
from geminga_bookie._tests.sim_workers import TaskWorkers
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.client._tests.cluster import Peer
from geminga_bookie.client.api import LedgerMetadata, LedgerOptions, LedgerState
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.client.placement import ensemble_of, write_set
from geminga_bookie.errors import BookkeeperError, UnknownLedgerState
from geminga_bookie.host import Host
from geminga_bookie.inprocess import open_on_disk
from geminga_bookie.integrity.check import DataCheck
from geminga_bookie.options import BookieOptions, JournalOptions
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.memory import MemoryMetadataStore

OWN = "b0:3181"
SYNCED = replace(OPTIONS, bookie_id=OWN, replicas_elsewhere=True)
UNSYNCED = replace(
    SYNCED,
    journal=JournalOptions(
        sync_data=False,
        segment_bytes=48 * 1024,
        first_segment_bytes=24 * 1024,
        backups_max=0,
    ),
)
SIZES = ((3, 3, 2), (3, 2, 2), (2, 2, 2))
REPAIR = AutoRecoveryOptions(batch_entries=3)


@dataclass
class World:
    """What outlives the bookie."""

    disk: SimDisk = field(default_factory=SimDisk)
    store: MemoryMetadataStore = field(default_factory=MemoryMetadataStore)
    peers: Sequence[Peer] = field(default_factory=lambda: [Peer("b1:3181"), Peer("b2:3181")])

    def __post_init__(self) -> None:
        self.directory = KnownBookies(self.peers)
        self.client = BookkeeperClient(self.directory, self.store)
        self.ledgers = LedgerMetadataStore(self.store)

    async def register(self) -> None:
        """All bookies, for ever."""
        for bookie_id in (OWN, *(peer.bookie_id for peer in self.peers)):
            await self.store.put(f"{paths.available()}/{bookie_id}", b"")

    async def exists(self, ledger_id: int) -> bool:
        return await self.store.exists(paths.ledger(ledger_id))

    @asynccontextmanager
    async def living(self, options: BookieOptions = SYNCED) -> AsyncIterator[InProcessBookie]:
        """One life of the bookie."""
        async with trio.open_nursery() as nursery:
            host = Host(self.disk, SimStores(self.disk), TaskWorkers(nursery))
            async with open_on_disk(options, host, live_ledgers=self.ledgers.ids) as bookie:
                self.directory.join(bookie)
                try:
                    yield bookie
                finally:
                    self.directory.leave(OWN)
            nursery.cancel_scope.cancel()

    async def write(self, sizes: tuple[int, int, int], entries: int, *, closed: bool) -> int:
        """A ledger, that its writer leaves open if it isn't `closed`."""
        writer = await self.client.create(LedgerOptions(*sizes, password=b"secret"))
        for first in range(0, entries, 4):
            run = range(first, min(entries, first + 4))
            await append_durably(writer, [(b"%d" % n,) for n in run])
        if closed:
            await writer.close()
        return writer.ledger_id

    async def lose(self, entries: int = 9) -> dict[int, int]:
        """A life without a synced journal, that ends with the loss of all that was not flushed;
        returns how many entries each ledger has.
        """
        written: dict[int, int] = {}
        await self.register()
        try:
            async with self.living(UNSYNCED) as bookie:
                for sizes in SIZES:
                    written[await self.write(sizes, entries, closed=True)] = entries
                await bookie.checkpointer.checkpoint()
                for sizes in SIZES:
                    for closed in (True, False):
                        written[await self.write(sizes, entries, closed=closed)] = entries
                self.disk.stop()
        except Exception:
            if not self.disk.is_off:
                raise
        self.disk.start_after_power_loss(Loss(0.0, 0.0))
        return written

    def check(self, bookie: InProcessBookie) -> DataCheck:
        return DataCheck(
            bookie, self.store, self.directory, (self.ledgers.ids, self.exists), REPAIR
        )

    async def claims(self, bookie: InProcessBookie, written: dict[int, int]) -> list[str]:
        """What the bookie denies although it should have it."""
        wrong = []
        for ledger_id, entry_id in await self.mine(written):
            try:
                await bookie.read(ledger_id, entry_id, entries_max=1, bytes_max=1)
            except UnknownLedgerState:
                pass
            except BookkeeperError as error:
                wrong.append(f"{ledger_id}:{entry_id} {type(error).__name__}")
        return wrong

    async def lacks(self, bookie: InProcessBookie, written: dict[int, int]) -> list[str]:
        """What the bookie should have, and can't be read."""
        wrong = []
        for ledger_id, entry_id in await self.mine(written):
            try:
                await bookie.read(ledger_id, entry_id, entries_max=1, bytes_max=1)
            except BookkeeperError as error:
                wrong.append(f"{ledger_id}:{entry_id} {type(error).__name__}")
        return wrong

    async def mine(self, written: dict[int, int]) -> list[tuple[int, int]]:
        """The confirmed entries that metadata say the bookie has."""
        found = []
        for ledger_id, entries in written.items():
            metadata = (await self.ledgers.read(ledger_id)).metadata
            found += [(ledger_id, entry) for entry in range(entries) if OWN in at(metadata, entry)]
        return found

    async def all_closed(self, written: dict[int, int]) -> None:
        """Each ledger ends where it should."""
        for ledger_id, entries in written.items():
            metadata = (await self.ledgers.read(ledger_id)).metadata
            if OWN in metadata.ensembles[max(metadata.ensembles)]:
                assert metadata.state is LedgerState.CLOSED
                assert metadata.last_entry_id == entries - 1


def at(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    """Bookies that should have an entry."""
    ensemble = ensemble_of(metadata.ensembles, entry_id)
    places = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
    return [ensemble[place] for place in places]
