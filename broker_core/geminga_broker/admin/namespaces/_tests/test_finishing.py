"""Deletions of namespaces and partitioned topics that are killed at each of their writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count

import pytest
import trio
from trio.testing import MockClock

from geminga_broker.admin.namespaces._tests.mortal import (
    NAMESPACE,
    PARTED,
    Mortal,
    MortalWorld,
    until,
)
from geminga_broker.cluster.deletions import DELETIONS
from geminga_protocol._tests.rounds import IS_NIGHTLY

OF_NAMESPACE = f"/admin/v2/namespaces/{NAMESPACE}"
OF_PARTED = f"/admin/v2/persistent/{NAMESPACE}/parted/partitions"
MARK = 1
"""The number of the write that marks the record, after the one of the note: killed before it,
nothing is deleted.
"""

HEIRS = {"itself": (0, True), "another": (1, False), "both": (1, True)}
"""Who finishes: the other brokers, and whether the one that was killed is started again."""
STRIDES = {"itself": 7, "another": 11, "both": 13}
SEVERAL = [pytest.param(name, marks=pytest.mark.slow) for name in ("another", "both")]
EACH_HEIRS = "itself", *SEVERAL


async def assert_gone_and_new(at: Mortal) -> None:
    """Nothing is left of the namespace, and a new one is empty."""
    await at.service.finish_deletions()  # of logs, whose notes may have outlived them
    assert await at.world.leftovers() == []
    assert (await at.ask("DELETE", OF_NAMESPACE)).status == 404
    assert (await at.ask("PUT", OF_NAMESPACE)).status == 204
    assert (await at.ask("GET", f"{OF_NAMESPACE}/topics")).body == b"[]"
    local = await at.service.namespaces.local_policies.get(NAMESPACE)
    assert local is not None
    assert list(local) == ["bundles"]
    await at.fill_parted()
    assert all(await at.parted_whole())


async def killed_and_finished(
    stack: AsyncExitStack, at: int, target: str, heirs: str, *, topics: bool
) -> tuple[Mortal, bool]:
    """Kill the broker 0 before that write of a DELETE, and have the deletion finished; returns a
    living broker, and whether there was such a write.
    """
    world, (others, starts_again) = MortalWorld(), HEIRS[heirs]
    async with world.broker():
        pass  # makes the records
    living = [await stack.enter_async_context(world.broker(n + 1)) for n in range(others)]
    async with world.broker() as first:
        await first.fill(*living, topics=topics)
        await first.killed(at, target)
    if starts_again:
        living.append(await stack.enter_async_context(world.broker()))
    await until(lambda: any(each.service.election.is_leader for each in living))
    async with trio.open_nursery() as nursery:
        for each in living:
            nursery.start_soon(each.finisher.finish)
    assert await world.store.children(DELETIONS) == []
    return living[0], first.store.is_dead


def steps(heirs: str) -> Iterator[int]:
    """The writes at which a broker is killed: the first ones, then one of so many."""
    yield from range(2 * MARK + 1)
    yield from count(2 * MARK + 1, STRIDES[heirs] // 3 if IS_NIGHTLY else STRIDES[heirs])


@pytest.mark.parametrize("heirs", EACH_HEIRS)
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.slow
async def test_a_deletion_of_a_namespace_that_is_killed_is_finished(
    forced: bool, heirs: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    target = f"{OF_NAMESPACE}?force=true" if forced else OF_NAMESPACE
    for at in steps(heirs):
        caplog.clear()
        async with AsyncExitStack() as stack:
            living, was_killed = await killed_and_finished(stack, at, target, heirs, topics=forced)
            assert caplog.text.count(f"{NAMESPACE}: finished its interrupted deletion") <= 1
            if at > MARK:
                await assert_gone_and_new(living)
            else:
                assert await living.service.namespaces.exists(NAMESPACE)
                assert not forced or all(await living.parted_whole())
        if not was_killed:
            break
    assert at > 10


@pytest.mark.parametrize("heirs", EACH_HEIRS)
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.slow
async def test_a_deletion_of_a_partitioned_topic_that_is_killed_is_finished(
    forced: bool, heirs: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    target = f"{OF_PARTED}?force=true" if forced else OF_PARTED
    for at in steps(heirs):
        caplog.clear()
        async with AsyncExitStack() as stack:
            living, was_killed = await killed_and_finished(stack, at, target, heirs, topics=True)
            assert caplog.text.count(f"{PARTED}: finished its interrupted deletion") <= 1
            if at > MARK:
                assert not any(await living.parted_whole())
                await living.fill_parted()
            assert all(await living.parted_whole())
        if not was_killed:
            break
    assert at > 10
