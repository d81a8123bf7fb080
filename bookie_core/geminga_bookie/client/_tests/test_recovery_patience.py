"""Recovery from bookies that are at their limits (BK-09, BK-23): they are asked again, and count
neither as failed nor as without an entry."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio
import trio.testing

from geminga_bookie._tests.asked_bookie import Add
from geminga_bookie.client import patience
from geminga_bookie.client._tests.test_recovery_quorums import KEY, Ensemble, Member
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.patience import add_patiently, patiently
from geminga_bookie.errors import BookkeeperError, StorageFailed, TooManyRequests
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import LacAnswer
from geminga_protocol._tests.rounds import rounds
from geminga_runtime._tests.scheduling import scheduled_by


class Busy(Member):
    """A bookie that answers some requests, and parts of adds, with TooManyRequests."""

    def __init__(self, bookie_id: str, chance: random.Random) -> None:
        super().__init__(bookie_id)
        self.chance = chance
        self.share = 0.0
        self.refused = 0

    def _refuses(self) -> bool:
        is_refused = self.chance.random() < self.share
        self.refused += is_refused
        return is_refused

    def take(self, add: Add) -> None:
        at = 0
        while at < add.count:
            count = self.chance.randint(1, add.count - at)
            first = add.first_entry_id + at
            part = replace(add, first_entry_id=first, packets=add.packets[at : at + count])
            if self._refuses():
                trio.lowlevel.current_trio_token().run_sync_soon(part.answer, TooManyRequests(""))
            else:
                super().take(part)
            at += count

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        if self._refuses():
            await trio.lowlevel.checkpoint()
            raise TooManyRequests("busy")
        return await super().fence(ledger_id, master_key)

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        if self._refuses():
            await trio.lowlevel.checkpoint()
            raise TooManyRequests("busy")
        return await super().read(
            ledger_id, first_entry_id, entries_max=entries_max, bytes_max=bytes_max
        )


class Watched(KnownBookies):
    """Notes what is said of its bookies."""

    def __init__(self, members: Sequence[MemoryBookie]) -> None:
        super().__init__(members)
        self.failures: list[BookkeeperError] = []

    def failed(self, bookie_id: str, error: BookkeeperError) -> None:
        self.failures.append(error)


@pytest.mark.parametrize("seed", range(rounds(200)))
async def test_busy_bookies_are_asked_again(seed: int, autojump_clock: object) -> None:
    chance = random.Random(seed)
    ledger = Ensemble(chance)
    members = [Busy(each.bookie_id, chance) for each in ledger.members]
    ledger.members = list(members)
    spare = Busy("spare:3181", chance)
    directory = Watched([*members, spare])
    ledger.client = BookkeeperClient(directory, ledger.store)
    await ledger.write(chance, chance.randint(1, 30), chance.choice((0.4, 0.7, 0.95)))
    for member in members:
        member.share = chance.choice((0.0, 0.3, 0.6))
    with scheduled_by(chance):
        last = await ledger.recovered()
    for member in members:
        member.share = 0.0
    await ledger.check(last)
    metadata = await ledger.client.metadata(ledger.ledger_id)
    assert metadata.ensembles == {0: tuple(each.bookie_id for each in members)}
    assert directory.failures == []


async def test_a_bookie_that_never_has_room_is_replaced(
    autojump_clock: trio.testing.MockClock,
) -> None:
    chance = random.Random(1)
    ledger = Ensemble(chance, (3, 3, 2))
    members = [Busy(each.bookie_id, chance) for each in ledger.members]
    ledger.members = list(members)
    directory = Watched([*members, Busy("spare:3181", chance)])
    ledger.client = BookkeeperClient(directory, ledger.store)
    await ledger.write(chance, 3, 1.0)
    members[0].share = 1.0
    began = trio.current_time()
    last = await ledger.recovered()
    assert last == 2
    assert [type(error) for error in directory.failures] == [TooManyRequests]
    waited_s = trio.current_time() - began
    assert patience.PATIENCE_S <= waited_s < patience.PATIENCE_S + 2 * patience.PAUSE_MAX_S
    assert 15 < members[0].refused < 100, "asked too seldom, or too often"
    metadata = await ledger.client.metadata(ledger.ledger_id)
    assert any("spare:3181" in each for each in metadata.ensembles.values())


async def test_other_errors_end_an_add_at_once(autojump_clock: object) -> None:
    class Failing(Busy):
        def take(self, add: Add) -> None:
            add.done(add.first_entry_id, 1, TooManyRequests("busy"))
            add.done(add.first_entry_id + 1, 1, StorageFailed("the disk"))

    began = trio.current_time()
    with pytest.raises(StorageFailed):
        await add_patiently(Failing("b", random.Random(0)), 1, KEY, [(0, [b"a", b"b", b"c"])])
    assert trio.current_time() == began
    await add_patiently(Failing("b", random.Random(0)), 1, KEY, [(0, [])])


async def test_the_answer_comes_through(autojump_clock: object) -> None:
    left = 5

    async def ask() -> str:
        nonlocal left
        await trio.lowlevel.checkpoint()
        if left:
            left -= 1
            raise TooManyRequests("busy")
        return "done"

    assert await patiently(ask) == "done"
