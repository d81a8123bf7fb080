"""One run of one seed."""

from __future__ import annotations

import trio
import trio.testing

from geminga_bookie.client.api import LedgerMetadata, LedgerState
from geminga_bookie.client.placement import ensemble_of, write_set
from geminga_bookie.errors import BookkeeperError
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.api import MetadataError

from ..chance import Chances, EventLog, seeded
from ..outcome import Outcome, ends, watched
from .books import LedgerBook
from .clients import Deleter, Process, Reader, Recoverer, Writer, append, process, read, recover
from .faults import Faults
from .handover import Handovers
from .healing import denied, end_doubts
from .plan import make_plan
from .repairers import keep_repairing
from .world import World

WORK_S = 40.0
"""So long the actors work; what they write then is left as it is."""
HANDOVERS_S = 400.0
"""As long may rounds of handovers take."""
HEAL_S = 400.0
"""Virtual time within which all ledgers must be readable once nothing goes wrong any more."""
LIMIT_S = 3000.0


def run_seed(seed: int, *, verbose: bool = False) -> Outcome:
    """Run it; never raises for what the run finds."""
    chances = Chances(seed)
    plan = make_plan(seed, chances.of("ledgers"))
    log = EventLog(keep=verbose)
    found: list[str] = []
    ended_s = 0.0
    confirmed = 0

    async def main() -> None:
        nonlocal ended_s, confirmed
        with seeded(chances):
            world = World(plan, chances, log, end_doubts)
            await world.tree.put(paths.INSTANCE_ID, b"simulation")
            ended_s = await ends(Run(world).run, found, limit_s=LIMIT_S)
            found.extend(world.books.violations)
            confirmed = sum(each.confirmed for each in world.books.ledgers.values())

    with watched() as watch:
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    found += [each for each in watch.found if not (plan.is_unsynced and _is_doubt(each))]
    return Outcome(seed, found, log.digest, log.count, confirmed, ended_s, log.lines)


def _is_doubt(line: str) -> bool:
    """Whether that is what a bookie says when it comes to doubt."""
    said = ("without syncing its journal", "was lost", "journal_replay: journal: ")
    return any(each in line for each in said)


class Run:
    """Actors and faults, then healing and checks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._books = world.books

    async def run(self) -> None:
        """The whole run."""
        world, plan = self._world, self._world.plan
        async with trio.open_nursery() as nursery:
            world.nursery = nursery
            nursery.start_soon(world.timeline.run)
            for bookie in world.bookies.values():
                nursery.start_soon(bookie.run)
            for number in range(plan.repairers):
                nursery.start_soon(keep_repairing, world, number)
            with trio.move_on_after(HANDOVERS_S if plan.handovers else WORK_S):
                await self._work()
            world.is_over = True
            self._heal()
            async with process(world, "auditor1") as one, process(world, "auditor2") as two:
                await self._recover_all(one, two)
                if plan.all_killed_at_end:
                    await self._kill_all()
                await self._still_refused()
                if plan.all_killed_at_end:
                    await self._read_all(two)
                await self._end_doubts()
                await self._check_all_copies(one)
            for bookie in world.bookies.values():
                if bookie.came_back:
                    self._books.violate(f"{bookie.bookie_id} came back with an empty disk")
            nursery.cancel_scope.cancel()

    async def _work(self) -> None:
        world, plan = self._world, self._world.plan
        actors = [Recoverer(world, n).run for n in range(plan.recoverers)]
        actors += [Reader(world, n).run for n in range(plan.readers)]
        if plan.deletes:
            actors.append(Deleter(world).run)
        async with trio.open_nursery() as nursery:
            for actor in actors:
                nursery.start_soon(actor)
            writers = [Writer(world, number) for number in range(len(plan.sizes))]
            for writer in writers:
                world.nursery.start_soon(writer.run)
            await Faults(world, world.nursery).run()
            await Handovers(world).run()
            for writer in writers:
                await writer.done.wait()
            nursery.cancel_scope.cancel()

    def _heal(self) -> None:
        world = self._world
        self._books.log.add("all heals")
        world.network.heal()
        for bookie in world.bookies.values():
            bookie.heal()

    async def _kill_all(self) -> None:
        for bookie in self._world.bookies.values():
            bookie.kill(power=True, steps=0, down_s=0.1)
        await trio.sleep(10)

    def _kept(self) -> list[LedgerBook]:
        return [each for each in self._books.ledgers.values() if not each.is_deleted]

    async def _recover_all(self, one: Process, two: Process) -> None:
        """Two recover all that isn't closed, at once; both find the same."""
        async with trio.open_nursery() as nursery:
            for book in self._kept():
                for here in (one, two):
                    is_read = here is one and not self._world.plan.all_killed_at_end
                    nursery.start_soon(self._settle, here, book, is_read)

    async def _end_doubts(self) -> None:
        """Those of all bookies end."""
        with trio.move_on_after(HEAL_S):
            while any(each.is_hurt for each in self._world.bookies.values() if each.can_heal):  # noqa: ASYNC110
                await trio.sleep(1)
        for bookie in self._world.bookies.values():
            if bookie.can_heal and bookie.is_hurt:
                self._books.violate(f"{bookie.bookie_id} is in doubt still")

    async def _check_all_copies(self, here: Process) -> None:
        deadline_s = trio.current_time() + HEAL_S
        for book in self._kept():
            while book.end is not None:
                metadata = await self._metadata(here, book)
                wrong = await self._lacks(book, metadata)
                if lost := await denied(self._world, book, metadata):
                    self._books.violate(f"{book.text}: {lost}")
                    break
                if wrong is None:
                    break
                if not self._world.plan.repairers or trio.current_time() > deadline_s:
                    self._books.violate(f"{book.text}: {wrong}")
                    break
                await trio.sleep(5)

    async def _settle(self, here: Process, book: LedgerBook, is_read: bool) -> None:
        """Recover the ledger, and read it whole, if it isn't read later."""
        deadline_s, wait_s = trio.current_time() + HEAL_S, 0.5
        while True:
            reader = await recover(here, book)
            try:
                if reader is not None:
                    if reader.last_add_confirmed >= 0 and is_read:
                        await read(here, reader, book, 0, reader.last_add_confirmed)
                    return
            except (BookkeeperError, MetadataError) as error:
                self._books.log.add(f"{here.name} can't read {book.text}: {error}")
                last_error: Exception | None = error
            else:
                last_error = None
            if trio.current_time() > deadline_s:
                self._books.violate(
                    f"{book.text} is not readable after all has healed {last_error}"
                )
                return
            await trio.sleep(wait_s)
            wait_s = min(30.0, 2 * wait_s)

    async def _still_refused(self) -> None:
        """Writers that are still there are told nothing beyond the end."""
        for book, writer in self._world.writers:
            if not book.is_deleted:
                append(self._world.chances.of("late"), writer, book, 1, self._world)
        await trio.sleep(3 * self._world.plan.timeout_s)

    async def _metadata(self, here: Process, book: LedgerBook) -> LedgerMetadata:
        while True:
            try:
                return await here.client.metadata(book.ledger_id)
            except MetadataError:
                await trio.sleep(0.5)

    async def _lacks(self, book: LedgerBook, metadata: LedgerMetadata) -> str | None:
        """What is missing; each entry must be on an ack quorum of the bookies where the metadata
        says, and on its write quorum once auto-recovery could do so."""
        assert book.end is not None
        if metadata.state is not LedgerState.CLOSED:
            return "it is not closed"
        bookies = self._world.bookies
        least = metadata.ack_quorum
        living = [each for each in bookies.values() if not each.is_lost]
        is_repaired = self._world.plan.repairers > 0 and len(living) >= metadata.ensemble_size
        if is_repaired:
            least = metadata.write_quorum
        held: dict[str, set[int]] = {}
        for bookie_id in sorted({each for ids in metadata.ensembles.values() for each in ids}):
            if bookies[bookie_id].is_lost:
                # Without auto-recovery they count: so many copies may be lost.
                held[bookie_id] = set() if is_repaired else set(range(book.end[0] + 1))
                continue
            life = await bookies[bookie_id].living()
            try:
                held[bookie_id] = set(await life.port.list_entries(book.ledger_id))
            except BookkeeperError:
                held[bookie_id] = set()
        for entry_id in range(book.end[0] + 1):
            ensemble = ensemble_of(metadata.ensembles, entry_id)
            places = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
            asked = {ensemble[place] for place in places}
            copies = sum(entry_id in held[each] for each in asked)
            if copies < least:
                return f"entry {entry_id} has {copies} copies of {least}"
        return None

    async def _read_all(self, here: Process) -> None:
        for book in self._kept():
            await self._settle(here, book, True)
