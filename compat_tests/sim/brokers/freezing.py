"""Stops all tasks of a process for a while, as SIGSTOP does: the clock goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import outcome
import trio
from trio._core import _run
from trio._core._run import Runner


class Freezer:
    """Knows which task belongs to which process: by the tasks above it."""

    def __init__(self) -> None:
        self._roots: dict[trio.lowlevel.Task, str] = {}
        self._frozen: dict[str, list[trio.lowlevel.Task]] = {}

    def belongs(self, name: str) -> None:
        """The current task, and all beneath it, are of the process."""
        self._roots[trio.lowlevel.current_task()] = name

    def ended(self) -> None:
        """The current task is of its process no longer."""
        self._roots.pop(trio.lowlevel.current_task(), None)

    def is_frozen(self, name: str) -> bool:
        """Whether it stands still."""
        return name in self._frozen

    def owner(self, task: trio.lowlevel.Task) -> str | None:
        """The process that a task is of."""
        here: trio.lowlevel.Task | None = task
        while here is not None:
            name = self._roots.get(here)
            if name is not None:
                return name
            nursery = here.parent_nursery or here.eventual_parent_nursery
            here = None if nursery is None else nursery.parent_task
        return None

    def freeze(self, name: str) -> None:
        """Its tasks stop where they are; one that goes on in this turn stops after that."""
        if name in self._frozen:
            return
        held = self._frozen[name] = []
        runq = _run.GLOBAL_RUN_CONTEXT.runner.runq
        for task in list(runq):
            if self.owner(task) == name:
                runq.remove(task)
                held.append(task)

    def thaw(self, name: str) -> None:
        """They go on, and find what has come meanwhile."""
        _run.GLOBAL_RUN_CONTEXT.runner.runq.extend(self._frozen.pop(name, ()))

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Trio asks it about each task that can go on."""
        before = Runner.reschedule

        def reschedule(
            runner: Runner,
            task: trio.lowlevel.Task,
            next_send: outcome.Outcome[object] = _run._NO_SEND,
        ) -> None:
            before(runner, task, next_send)
            if self._frozen:
                held = self._frozen.get(self.owner(task) or "")
                if held is not None:
                    assert runner.runq.pop() is task
                    held.append(task)

        Runner.reschedule = reschedule
        try:
            yield
        finally:
            Runner.reschedule = before
