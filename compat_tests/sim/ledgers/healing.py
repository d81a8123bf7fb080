"""Bookies in doubt compare themselves with others; what they acknowledged is never denied."""

from __future__ import annotations

import trio

from geminga_bookie.client.api import LedgerMetadata
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.client.placement import ensemble_of, write_set
from geminga_bookie.errors import NoSuchEntry, NoSuchLedger
from geminga_bookie.integrity.check import QUIET_S, DataCheck
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_protocol.bookkeeper import paths

from .bookies import BookieProcess
from .books import LedgerBook
from .clients import Directory
from .keeper import KeeperDoor
from .repairers import OPTIONS
from .world import World

KILLS_MAX = 3
"""So often a bookie is killed while it is healed."""


async def end_doubts(
    world: World, process: BookieProcess, bookie: InProcessBookie, door: KeeperDoor
) -> None:
    """As in the bookie's process."""
    ledgers = LedgerMetadataStore(door)
    chance = world.chances.of(f"healing {process.bookie_id}")

    def kill_again() -> None:
        if process.is_hurt and process.life is not None and world.may_doubt(process):
            process.kill(power=chance.random() < 0.7, steps=chance.choice((0, 1, 5)), down_s=0.1)

    if process.is_hurt and process.heals_begun < KILLS_MAX:
        process.heals_begun += 1
        after_s = chance.choice((0.1, 1.0)) * chance.random()
        # Near the start of the check, and of the round in which doubts end.
        for begun_s in (0.0, QUIET_S):
            world.timeline.at(trio.current_time() + begun_s + after_s, kill_again)

    async def exists(ledger_id: int) -> bool:
        return await door.exists(paths.ledger(ledger_id))

    async with trio.open_nursery() as nursery:
        directory = Directory(process.bookie_id, door, world, nursery)
        nursery.start_soon(directory.follow)
        await DataCheck(bookie, door, directory, (ledgers.ids, exists), OPTIONS).run()
        nursery.cancel_scope.cancel()
    world.books.log.add(f"{process.bookie_id} has no doubts")
    process.has_no_doubts()


async def denied(world: World, book: LedgerBook, metadata: LedgerMetadata) -> str | None:
    """What a bookie acknowledged of a closed ledger, should have, and denies."""
    assert book.end is not None
    for process in list(world.bookies.values()):
        acknowledged = process.acknowledged.get(book.ledger_id, set())
        for entry_id in sorted(acknowledged):
            ensemble = ensemble_of(metadata.ensembles, entry_id)
            places = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
            if process.is_lost or process.bookie_id not in [ensemble[place] for place in places]:
                continue
            if entry_id > book.end[0]:
                continue
            life = await process.living()
            try:
                await life.port.read(book.ledger_id, entry_id, entries_max=1, bytes_max=1)
            except (NoSuchEntry, NoSuchLedger):
                return f"{process.bookie_id} denies entry {entry_id}, which it acknowledged"
    return None
