"""Where the bookie does what blocks: in threads, or in tasks of a simulation.

All of the bookie's threads are started here, so that a simulation in virtual time can put tasks in
their place (docs/decisions/0021).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

import trio

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")
RequestT = TypeVar("RequestT")
OutcomeT = TypeVar("OutcomeT")
SubmittedT_contra = TypeVar("SubmittedT_contra", contravariant=True)


class Work(Protocol):
    """Work in the background."""

    def join(self) -> None:
        """Return when it has ended. Blocks."""


class GroupLoop(Protocol[RequestT, OutcomeT]):
    """Work on requests, a group of those that wait at a time. A `Driver` runs it."""

    @property
    def requests(self) -> queue.SimpleQueue[RequestT | None]:
        """What waits; None asks for the end."""

    @property
    def idle_wait_s(self) -> float | None:
        """How long the queue must stay empty before `idle` is due; None if it is not."""

    def idle(self) -> None:
        """Nothing has come for `idle_wait_s`."""

    def gather(self) -> tuple[list[RequestT], bool]:
        """A group, and whether the end was asked for behind it. Blocks while nothing waits; calls
        `idle` itself meanwhile."""

    def commit(self, group: list[RequestT]) -> OutcomeT:
        """Do it. Blocks, and never raises."""

    def finish(self, outcome: OutcomeT) -> None:
        """Report it: called in the event loop, in order."""


class Driver(Protocol[SubmittedT_contra]):
    """Runs one `GroupLoop`."""

    @property
    def submit(self) -> Callable[[SubmittedT_contra], None]:
        """Queue a request. Event loop only."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Do what is queued, then end. Blocks. Idempotent."""


class Workers(Protocol):
    """Does blocking work for the event loop."""

    async def run(
        self,
        work: Callable[[*ArgumentsT], ResultT],
        *arguments: *ArgumentsT,
        limiter: trio.CapacityLimiter | None = None,
    ) -> ResultT:
        """Return what `work` returns. Once begun it is waited for, cancelled or not."""

    def start(self, name: str, work: Callable[[], None]) -> Work:
        """Begin work that is joined later. Callable from other work."""

    def drive(self, name: str, loop: GroupLoop[RequestT, OutcomeT]) -> Driver[RequestT]:
        """The driver of a loop, not started yet."""


class ThreadWorkers:
    """Threads. Made in the event loop."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()

    async def run(
        self,
        work: Callable[[*ArgumentsT], ResultT],
        *arguments: *ArgumentsT,
        limiter: trio.CapacityLimiter | None = None,
    ) -> ResultT:
        """See `Workers.run`."""
        return await trio.to_thread.run_sync(work, *arguments, limiter=limiter)

    def start(self, name: str, work: Callable[[], None]) -> Work:
        """See `Workers.start`."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def drive(self, name: str, loop: GroupLoop[RequestT, OutcomeT]) -> Driver[RequestT]:
        """See `Workers.drive`."""
        return _ThreadDriver(name, loop, self._token)


class _ThreadDriver(Driver[RequestT]):
    """A thread that sleeps in the queue; the event loop is woken once for each group."""

    def __init__(
        self, name: str, loop: GroupLoop[RequestT, OutcomeT], token: trio.lowlevel.TrioToken
    ) -> None:
        def run() -> None:
            stopping = False
            while not stopping:
                group, stopping = loop.gather()
                if not group:
                    continue
                outcome = loop.commit(group)
                try:
                    token.run_sync_soon(loop.finish, outcome)
                except trio.RunFinishedError:
                    logger.warning(
                        "the event loop ended first: the outcome of %d runs is lost", len(group)
                    )

        self._queue = loop.requests
        self._submit = loop.requests.put
        self._thread = threading.Thread(target=run, name=name, daemon=True)

    @property
    def submit(self) -> Callable[[RequestT], None]:
        return self._submit

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
