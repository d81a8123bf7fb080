"""Ledgers that are taken from their writers while entries, fences and reads overtake each other."""

from __future__ import annotations

from functools import partial

import trio

from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.errors import BookkeeperError
from geminga_runtime.metadata.api import MetadataError

from .books import LedgerBook
from .clients import PASSWORD, Process, append, process, recover
from .keeper import CALL_S, KEEPER
from .script import Script
from .world import World

KINDS = ("any", "overtaken", "forgotten", "changed")
"""Each message as late as may be; a fence that comes behind adds, and reads before them; a fence
that was not durable when it was answered, if there is such a one; a change of the ensemble whose
answer is late, while bookies answer adds."""
DOUBTFUL_KINDS = ("doubted", "doubted", "overtaken", "copied", "copied", "left")
"""With journals that are not synced: a bookie is in doubt once it has answered a fence; one that
gets copies, before the metadata name it; one of a ledger that is left open until the doubt ends."""
LEFT_S = 250.0
"""So long a doubt is waited for."""
ROUND_S = 300.0
"""A round ends then, whatever it waits for."""


class Handovers:
    """One ledger after the other, each in a round with scripts of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chances.of("handovers")
        self._late_s = world.plan.timeout_s
        self._count = 0

    async def run(self) -> None:
        """All rounds of the plan."""
        world = self._world
        for _ in range(world.plan.handovers):
            self._count += 1
            async with process(world, f"writer.{self._count}") as here:
                with trio.move_on_after(ROUND_S):
                    await self._round(here)
            world.network.scripts.clear()

    async def _round(self, here: Process) -> None:
        sizes = self._chance.choice(self._world.plan.sizes)
        writer = await self._created(here, sizes)
        book = self._world.books.created(writer.ledger_id, sizes)
        self._append(writer, book, self._chance.choice((0, 0, 1, 3)))
        await trio.sleep(self._chance.choice((0.0, 0.5)))
        chance = self._chance
        kind = self._kind(sizes)
        places = list(writer._metadata.ensembles[0])
        chance.shuffle(places)
        if self._world.plan.is_unsynced:
            # Only so many may be in doubt: rather one that is already.
            places.sort(key=lambda each: self._world.bookies[each].is_hurt)
            places[1], places[-1] = places[-1], places[1]
        self._world.books.log.add(f"{here.name}: {kind} {places}")
        self._write_adds(self._new_script(here.name, kind), kind, places)
        async with trio.open_nursery() as nursery:
            is_alone = kind in ("forgotten", "doubted")
            if kind == "left":
                await self._leave(here.name, writer, book, places)
            for number in range(1 if is_alone else chance.choice((1, 1, 2))):
                heir = f"heir{number}.{self._count}"
                nursery.start_soon(self._take_over, book, heir, kind, places)
            if is_alone:
                # What it writes before is refused, which ends the ledger for it.
                await trio.sleep(chance.choice((0.0, 1.0, 1.0, 2.0)))
            elif kind == "changed":
                self._append(writer, book, 1)
                await trio.sleep(0.01 + 0.1 * chance.random())
                down_s = chance.choice((0.0, 0.5)) * self._late_s
                self._world.bookies[places[0]].kill(power=False, steps=0, down_s=down_s)
            for _ in range(chance.choice((1, 2, 4))):
                self._append(writer, book, chance.choice((1, 1, 3)))
                await trio.sleep(self._soon())
        self._append(writer, book, 1)
        await trio.sleep(1.5 * self._late_s)

    def _kind(self, sizes: tuple[int, int, int]) -> str:
        plan = self._world.plan
        if plan.is_unsynced:
            kind = self._chance.choice(DOUBTFUL_KINDS)
            return "doubted" if kind == "copied" and sizes[0] == plan.bookies else kind
        return self._chance.choice(KINDS if sizes[0] < plan.bookies else KINDS[:-1])

    async def _leave(
        self, name: str, writer: LedgerWriter, book: LedgerBook, places: list[str]
    ) -> None:
        """The last bookie lacks an entry, the one between forgets it; the writer is away."""
        network, forgets = self._world.network, self._world.bookies[places[1]]
        network.scripts[name].set(places[-1], "add", None)
        self._append(writer, book, 1)
        await trio.sleep(0.1)
        network.pause(name, LEFT_S)
        self._doubt(places[1])
        with trio.move_on_after(LEFT_S):
            while forgets.is_hurt:  # noqa: ASYNC110 - as the last checks
                await trio.sleep(1)

    async def _created(self, here: Process, sizes: tuple[int, int, int]) -> LedgerWriter:
        while True:
            try:
                return await here.client.create(LedgerOptions(*sizes, password=PASSWORD))
            except (BookkeeperError, MetadataError):
                await trio.sleep(0.2)

    def _append(self, writer: LedgerWriter, book: LedgerBook, count: int) -> None:
        if count:
            append(self._chance, writer, book, count, self._world)

    def _soon(self) -> float:
        return self._chance.choice((0.0, 0.05, 0.3, 0.8)) * self._late_s * self._chance.random()

    def _new_script(self, name: str, kind: str) -> Script:
        chance = self._world.chances.of(f"script {name}")
        fast_share = chance.choice((0.4, 0.7, 0.9)) if kind == "any" else 1.0
        script = Script(chance, fast_share, self._late_s)
        self._world.network.scripts[name] = script
        return script

    def _write_adds(self, script: Script, kind: str, places: list[str]) -> None:
        """How late what the writer sends is."""
        chance, late_s = self._chance, self._late_s
        if kind == "overtaken":
            # The first bookie has the entries long before the others.
            for bookie_id in places:
                late = 0.0 if bookie_id == places[0] else (0.2 + 0.2 * chance.random()) * late_s
                script.set(bookie_id, "add", late)
        elif kind in ("forgotten", "doubted"):
            # The first bookie has no part in it: its refusal would end the ledger.
            script.set(places[0], "add", chance.choice((None, late_s)))
        elif kind == "changed":
            # The first bookie's answer is there, then it is lost; the last one's comes meanwhile.
            script.set(places[1], "add", chance.choice((None, late_s)))
            script.set(places[-1], "add answer", 0.4 * late_s * chance.random())
            script.set(KEEPER, "put answer", min(CALL_S, late_s) * 0.9 * chance.random())

    def _write_fences(self, script: Script, kind: str, places: list[str]) -> None:
        """How late what the heir asks is."""
        chance, late_s = self._chance, self._late_s
        if kind == "any":
            if chance.random() < 0.5:
                self._lose_power(script, chance.choice(places))
        elif kind == "overtaken":
            # Fences come behind the adds, reads before; what the first bookie has comes last.
            script.set(places[-1], "fence", (0.5 + 0.2 * chance.random()) * late_s)
            script.set(places[0], "read answer", 0.3 * late_s)
        elif kind == "copied":
            # Another bookie takes the place of the first one, and is named only later.
            script.set(places[0], "add again", None)
            script.set(KEEPER, "put", (0.6 + 0.3 * chance.random()) * CALL_S)
            for bookie_id in {*self._world.bookies}.difference(places):
                script.follows(bookie_id, "add again", partial(self._doubt_soon, bookie_id))
        elif kind == "left":
            script.set(places[0], "read answer", 0.3 * late_s)
        elif kind == "changed":
            script.set(places[-1], "fence", chance.choice((0.0, 0.3)) * late_s)
            script.set(places[-1], "read answer", 0.3 * late_s)
        else:
            # The last one is cut off; the one between forgets what it has answered.
            script.set(places[-1], "fence", chance.choice((None, late_s)))
            if kind == "forgotten":
                self._lose_power(script, places[1])

    async def _take_over(self, book: LedgerBook, name: str, kind: str, places: list[str]) -> None:
        chance = self._chance
        await trio.sleep(self._soon() / 4)
        async with process(self._world, name) as here:
            await trio.sleep(0.1)
            self._write_fences(self._new_script(name, kind), kind, places)
            for _ in range(chance.choice((1, 2))):
                if await recover(here, book) is not None:
                    break
            if kind == "doubted":
                self._doubt(places[1])
            await trio.sleep(self._soon())

    def _lose_power(self, script: Script, bookie_id: str) -> None:
        """The bookie does so while it writes the fence."""
        steps = self._chance.choice((1, 1, 2))
        kill = partial(
            self._world.bookies[bookie_id].kill, power=True, steps=steps, down_s=self._late_s / 20
        )
        script.follows(bookie_id, "fence", kill)

    def _doubt_soon(self, bookie_id: str) -> None:
        """Once it has answered."""
        at_s = trio.current_time() + 0.1
        self._world.timeline.at(at_s, partial(self._doubt, bookie_id))

    def _doubt(self, bookie_id: str) -> None:
        """It loses what it has not synced, or its disk."""
        bookie = self._world.bookies[bookie_id]
        if not self._world.may_doubt(bookie) or not bookie.has_served:
            return
        if self._chance.random() < 0.5:
            bookie.lose_disk(0.0)
        else:
            bookie.kill(power=True, steps=0, down_s=0.0)
