"""Jobs that run side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from geminga_runtime.background import side_by_side, until_enough


def _tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def _most_tasks(jobs: int, at_once_max: int) -> tuple[int, int]:
    """How many jobs ran, and how many tasks there were for them at most."""
    before, most, done = _tasks(), 0, 0

    async def job() -> None:
        nonlocal most, done
        most = max(most, _tasks() - before)
        await trio.lowlevel.checkpoint()
        done += 1

    await side_by_side((job for _ in range(jobs)), at_once_max)
    return done, most


@pytest.mark.parametrize(
    ("jobs", "at_once_max", "tasks"), [(0, 16, 0), (1, 16, 0), (3, 16, 3), (30, 4, 4), (5, 1, 0)]
)
async def test_no_more_tasks_than_jobs(jobs: int, at_once_max: int, tasks: int) -> None:
    assert await _most_tasks(jobs, at_once_max) == (jobs, tasks)


@pytest.mark.parametrize("others", [0, 2])
async def test_the_first_error_cancels_the_others(others: int) -> None:
    ended = 0

    async def wait() -> None:
        nonlocal ended
        try:
            await trio.sleep_forever()
        finally:
            ended += 1

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise OSError("full")

    jobs: list[Callable[[], Awaitable[object]]] = [wait] * others
    with pytest.raises(OSError, match="full"):
        await side_by_side([*jobs, fail], 16)
    assert ended == others


@pytest.mark.parametrize("jobs", [1, 3])
async def test_enough_cancels_the_others(jobs: int) -> None:
    heard: list[int] = []

    async def answer(number: int) -> bool:
        if number == 1:
            await trio.sleep_forever()
        heard.append(number)
        await trio.lowlevel.checkpoint()
        return number == 0

    await until_enough([partial(answer, number) for number in range(jobs)])
    assert 0 in heard
    assert 1 not in heard


async def test_all_are_heard_if_none_is_enough() -> None:
    heard: list[int] = []

    async def answer(number: int) -> bool:
        await trio.lowlevel.checkpoint()
        heard.append(number)
        return False

    await until_enough([partial(answer, number) for number in range(3)])
    assert sorted(heard) == [0, 1, 2]
