"""What a bookie lacks, by the list of its entries."""

from __future__ import annotations

import time
from itertools import pairwise

import trio

from geminga_bookie.autorecovery.inspection import RUNS_MAX, not_in
from geminga_bookie.client.quorum import Quorums

ENTRIES = 300_000


async def test_missing_entries_are_told_as_runs() -> None:
    listed = {each for each in range(100) if each not in (3, 4, 50, 99)}
    assert await not_in(listed, [(0, 40), (45, 100)]) == [(3, 5), (50, 51), (99, 100)]
    assert await not_in(set(), [(0, 50_000)]) == [(0, 50_000)]
    assert await not_in(set(), ()) == []


async def test_more_runs_are_found_by_the_next_look() -> None:
    odd = range(1, 4 * RUNS_MAX, 2)
    found = await not_in(set(odd), [(0, 4 * RUNS_MAX)])
    assert found == [(each, each + 1) for each in range(0, 2 * RUNS_MAX, 2)]


async def test_a_long_ledger_does_not_hold_the_loop() -> None:
    """A bookie may share it."""
    listed = set(range(ENTRIES))
    turns: list[float] = []

    async def take_turns() -> None:
        while True:
            turns.append(time.thread_time())
            await trio.lowlevel.checkpoint()

    for quorums in (Quorums(3, 3, 2), Quorums(3, 2, 2)):
        turns.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_turns)
            await trio.lowlevel.checkpoint()
            assert await not_in(listed, quorums.runs(0, 0, ENTRIES)) == []
            nursery.cancel_scope.cancel()
        assert len(turns) > 15
        assert max(after - before for before, after in pairwise(turns)) < 0.05
