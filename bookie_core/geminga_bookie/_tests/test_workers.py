"""Threads and tasks do blocking work alike (decision 21)."""

from __future__ import annotations

import queue
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from geminga_bookie._tests.sim_workers import TaskWorkers
from geminga_bookie.workers import ThreadWorkers, Workers


class Sums:
    """A `GroupLoop` that adds numbers."""

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.groups: list[list[int]] = []
        self.finished: list[int] = []
        self.idles = 0
        self.done = trio.Event()

    @property
    def idle_wait_s(self) -> float | None:
        return 0.01 if self.groups and not self.idles else None

    def idle(self) -> None:
        self.idles += 1

    def gather(self) -> tuple[list[int], bool]:
        group: list[int] = []
        while True:
            request = self.requests.get()
            if request is None:
                return group, True
            group.append(request)
            if not self.requests.qsize():
                return group, False

    def commit(self, group: list[int]) -> int:
        self.groups.append(group)
        return sum(group)

    def finish(self, outcome: int) -> None:
        trio.lowlevel.current_task()
        self.finished.append(outcome)
        if sum(self.finished) >= 6:
            self.done.set()


@asynccontextmanager
async def made(kind: str) -> AsyncIterator[Workers]:
    if kind == "threads":
        yield ThreadWorkers()
        return
    async with trio.open_nursery() as nursery:
        yield TaskWorkers(nursery)
        nursery.cancel_scope.cancel()


KINDS = pytest.mark.parametrize("kind", ["threads", "tasks"])


@KINDS
async def test_work_returns_or_raises(kind: str) -> None:
    async with made(kind) as workers:
        assert await workers.run(divmod, 7, 3) == (2, 1)
        with pytest.raises(ZeroDivisionError):
            await workers.run(divmod, 7, 0, limiter=trio.CapacityLimiter(1))


@KINDS
async def test_work_that_has_begun_is_waited_for(kind: str) -> None:
    done: list[int] = []
    async with made(kind) as workers:
        with trio.CancelScope() as scope:

            def work() -> None:
                if kind == "threads":
                    trio.from_thread.run_sync(scope.cancel)
                else:
                    scope.cancel()
                done.append(1)

            await workers.run(work)
        assert done == [1]
        with trio.CancelScope() as scope:
            scope.cancel()
            await workers.run(work)
        assert done == [1], "it has not begun"


@KINDS
async def test_background_work_is_done_once_when_it_is_joined(kind: str) -> None:
    done: list[int] = []
    async with made(kind) as workers:
        work = workers.start("w", lambda: done.append(1))
        work.join()
        await trio.testing.wait_all_tasks_blocked()
        work.join()
        assert done == [1]


@KINDS
async def test_a_loop_reports_in_order_in_the_event_loop(kind: str) -> None:
    async with made(kind) as workers:
        sums = Sums()
        driver = workers.drive("d", sums)
        driver.start()
        submit: Callable[[int], None] = driver.submit
        for number in (1, 2, 3):
            submit(number)
            await trio.lowlevel.checkpoint()
        with trio.fail_after(30):
            await sums.done.wait()
        assert [number for group in sums.groups for number in group] == [1, 2, 3]
        assert sums.finished == [sum(group) for group in sums.groups]
        await workers.run(driver.stop)
        await workers.run(driver.stop)


@KINDS
async def test_a_stop_does_what_is_queued(kind: str) -> None:
    async with made(kind) as workers:
        sums = Sums()
        driver = workers.drive("d", sums)
        driver.start()
        for number in (1, 2, 3):
            driver.submit(number)
        await workers.run(driver.stop)
        with trio.fail_after(30):
            await sums.done.wait()
        assert sum(sums.finished) == 6
        names = [thread.name for thread in threading.enumerate()]
        assert "d" not in names


async def test_an_idle_task_says_so_once(autojump_clock: trio.testing.MockClock) -> None:
    async with made("tasks") as workers:
        sums = Sums()
        driver = workers.drive("d", sums)
        driver.start()
        driver.submit(1)
        await trio.sleep(1)
        assert sums.idles == 1
        await workers.run(driver.stop)
