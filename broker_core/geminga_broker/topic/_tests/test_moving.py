"""Clients that are told where their topics went."""

from __future__ import annotations

import trio

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.topic.moving import NOWHERE, TOLD_A_TURN, Moving

THERE = Addresses("pulsar://there:6650", "http://there:8080")


async def test_many_are_told_in_turns_and_all_though_it_is_cancelled() -> None:
    """100 000 clients of one bundle would hold up those of all others for a second."""
    moving = Moving()
    told: list[Addresses] = []
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    for _ in range(10 * TOLD_A_TURN):
        moving.tell(told.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await trio.lowlevel.checkpoint()
        with trio.CancelScope() as scope:
            scope.cancel()
            await moving.arrived(THERE)
        assert turns >= 9
        nursery.cancel_scope.cancel()
    assert told == [THERE] * (10 * TOLD_A_TURN)
    moving.tell(told.append)
    assert told[-1] == THERE
    assert NOWHERE not in told
