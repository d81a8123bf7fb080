"""`Workers` of tasks in virtual time: one piece of blocking work at a time, its beginning and end
put off as the simulation says (decision 21)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from geminga_bookie.workers import (
    ArgumentsT,
    Driver,
    GroupLoop,
    OutcomeT,
    RequestT,
    ResultT,
    Work,
)


class Delay(Protocol):
    """How long the beginning or the end of a piece of work takes, in virtual seconds."""

    def __call__(self) -> float: ...


def no_delay() -> float:
    """Other tasks run in between all the same."""
    return 0.0


class _Background:
    """Done when it is joined, or when its time has come."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work

    def join(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work()

    async def run(self, delay: Delay) -> None:
        await trio.sleep(delay())
        self.join()


class TaskWorkers:
    """Tasks of a nursery: when it is cancelled, what they had to do is never done."""

    def __init__(self, nursery: trio.Nursery, delay: Delay = no_delay) -> None:
        self._nursery = nursery
        self._delay = delay

    async def run(
        self,
        work: Callable[[*ArgumentsT], ResultT],
        *arguments: *ArgumentsT,
        limiter: trio.CapacityLimiter | None = None,
    ) -> ResultT:
        """See `Workers.run`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if limiter is None:
            return await self._run(work, *arguments)
        async with limiter:
            return await self._run(work, *arguments)

    async def _run(
        self, work: Callable[[*ArgumentsT], ResultT], *arguments: *ArgumentsT
    ) -> ResultT:
        with trio.CancelScope(shield=True):
            await trio.sleep(self._delay())
            try:
                return work(*arguments)
            finally:
                await trio.sleep(self._delay())

    def start(self, name: str, work: Callable[[], None]) -> Work:
        """See `Workers.start`."""
        background = _Background(work)
        self._nursery.start_soon(background.run, self._delay)
        return background

    def drive(self, name: str, loop: GroupLoop[RequestT, OutcomeT]) -> Driver[RequestT]:
        """See `Workers.drive`."""
        return _TaskDriver(loop, self._nursery, self._delay)


class _TaskDriver(Driver[RequestT]):
    """Takes a group, commits it and reports it, other tasks' work in between."""

    def __init__(
        self, loop: GroupLoop[RequestT, OutcomeT], nursery: trio.Nursery, delay: Delay
    ) -> None:
        self._requests = loop.requests
        self._nursery = nursery
        self._wake = trio.Event()
        self._is_ended = False
        self._under_way: list[Callable[[], None]] = []

        def take() -> None:
            group, _ = loop.gather()
            self._under_way.append(lambda: commit(group))

        def commit(group: list[RequestT]) -> None:
            outcome = loop.commit(group)
            self._under_way.append(lambda: loop.finish(outcome))

        async def run() -> None:
            while not self._is_ended:
                if loop.requests.qsize():
                    take()
                    while self._under_way:
                        await trio.sleep(delay())
                        self._go_on()
                    continue
                self._wake = trio.Event()
                wait_s = loop.idle_wait_s
                with trio.move_on_after(float("inf") if wait_s is None else wait_s) as waiting:
                    await self._wake.wait()
                if waiting.cancelled_caught and not loop.requests.qsize():
                    loop.idle()

        self._take = take
        self._run = run

    def _go_on(self) -> None:
        if self._under_way:
            self._under_way.pop(0)()

    @property
    def submit(self) -> Callable[[RequestT], None]:
        def put(request: RequestT) -> None:
            self._requests.put(request)
            self._wake.set()

        return put

    def start(self) -> None:
        self._nursery.start_soon(self._run)

    def stop(self) -> None:
        while self._under_way:
            self._go_on()
        while not self._is_ended and self._requests.qsize():
            self._take()
            while self._under_way:
                self._go_on()
        self._is_ended = True
        self._wake.set()
