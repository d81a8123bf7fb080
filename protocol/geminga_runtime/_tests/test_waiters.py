"""Wakeup and Promise."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from geminga_runtime.waiters import Promise, Wakeup


async def test_sets_between_waits_are_one() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    assert wakeup.is_set()
    with trio.testing.assert_checkpoints():
        await wakeup.wait()
    assert not wakeup.is_set()


async def test_wakes_the_waiter(nursery: trio.Nursery) -> None:
    wakeup = Wakeup()
    rounds: list[int] = []

    async def wait() -> None:
        for number in range(3):
            await wakeup.wait()
            rounds.append(number)

    nursery.start_soon(wait)
    for number in range(3):
        await trio.testing.wait_all_tasks_blocked()
        assert len(rounds) == number
        wakeup.set()
    await trio.testing.wait_all_tasks_blocked()
    assert rounds == [0, 1, 2]


async def test_one_waiter_only(nursery: trio.Nursery) -> None:
    wakeup = Wakeup()
    nursery.start_soon(wakeup.wait)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(trio.BusyResourceError):
        await wakeup.wait()
    wakeup.set()


@pytest.mark.parametrize("set_before", [True, False])
async def test_cancelled_wait_takes_nothing(set_before: bool) -> None:
    wakeup = Wakeup()
    if set_before:
        wakeup.set()
    with trio.move_on_after(0) as scope:
        await wakeup.wait()
    assert scope.cancelled_caught
    wakeup.set()
    await wakeup.wait()


async def test_promise_answers_all(nursery: trio.Nursery) -> None:
    promise: Promise[int] = Promise()
    got: list[int] = []

    async def wait() -> None:
        got.append(await promise.wait())

    for _ in range(3):
        nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert not promise.is_done()
    promise.resolve(7)
    promise.resolve(8)
    promise.reject(ValueError())
    assert promise.is_done()
    await trio.testing.wait_all_tasks_blocked()
    assert got == [7, 7, 7]
    with trio.testing.assert_checkpoints():
        assert await promise.wait() == 7


async def test_promise_rejected() -> None:
    promise: Promise[int] = Promise()
    promise.reject(ValueError("no"))
    depths = set()
    for _ in range(3):
        with pytest.raises(ValueError, match="no") as caught:
            await promise.wait()
        depths.add(len(caught.traceback))
    assert len(depths) == 1, "the traceback of a shared error does not grow"


async def test_promise_cancelled_waiter() -> None:
    promise: Promise[int] = Promise()
    with trio.move_on_after(0) as scope:
        await promise.wait()
    assert scope.cancelled_caught
    promise.resolve(1)
    assert await promise.wait() == 1
