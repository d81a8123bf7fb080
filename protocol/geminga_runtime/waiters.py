"""Cheap ways for a task to wait for others of the same loop."""

from __future__ import annotations

from types import FunctionType
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


E = TypeVar("E", bound=BaseException)


def own_copy(error: E) -> E:
    """A copy of an exception, with its cause and notes.

    Each of several tasks that get an error raises a copy: a shared object would collect the
    tracebacks of all.
    """
    kind = type(error)
    arguments = error.__reduce__()[1]
    made: E = kind.__new__(kind, *arguments)
    if not isinstance(kind.__init__, FunctionType):
        # Built-in errors keep more than their arguments, and set it in `__init__`.
        kind.__init__(made, *arguments)
    made.args = error.args
    made.__dict__.update(error.__dict__)
    made.__cause__ = error.__cause__
    made.__suppress_context__ = error.__suppress_context__
    return made


async def taken(limit: trio.Semaphore | trio.CapacityLimiter) -> None:
    """Acquire one; at once if there is any, which costs no turn of the loop. Then it is no
    checkpoint: what follows must be one.
    """
    try:
        limit.acquire_nowait()
    except trio.WouldBlock:
        await limit.acquire()


class Wakeup:
    """Set many times, waited for by one task; several sets between two waits count as one.

    It allocates nothing, so a pump or writer can be woken per message run. From another thread
    use `trio_token.run_sync_soon(wakeup.set)`.
    """

    __slots__ = ("_set", "_task")

    def __init__(self) -> None:
        self._set = False
        self._task: trio.lowlevel.Task | None = None

    def set(self) -> None:
        """Wake the waiting task, or let the next `wait` return at once."""
        task = self._task
        if task is None:
            self._set = True
        else:
            self._task = None
            trio.lowlevel.reschedule(task)

    def is_set(self) -> bool:
        """Whether a `wait` would return at once."""
        return self._set

    async def wait(self) -> None:
        """Wait until `set` was called since the last return. Always a checkpoint.

        Raises trio.BusyResourceError if another task waits. A cancelled wait consumes no `set`.
        """
        if self._task is not None:
            raise trio.BusyResourceError("another task waits for this wakeup")
        if self._set:
            await trio.lowlevel.checkpoint()
            self._set = False
            return
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class Promise(Generic[T]):
    """A result that any number of tasks wait for. Only the first outcome counts."""

    __slots__ = ("_done", "_error", "_tasks", "_value")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._tasks: dict[trio.lowlevel.Task, None] = {}

    def resolve(self, value: T) -> None:
        """Return `value` to all waiters; ignored if already done."""
        if not self._done:
            self._value = value
            self._finish()

    def reject(self, error: BaseException) -> None:
        """Raise `error` in all waiters; ignored if already done."""
        if not self._done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self._done = True
        tasks = self._tasks
        self._tasks = {}
        for task in tasks:
            trio.lowlevel.reschedule(task)

    def is_done(self) -> bool:
        """Whether it was resolved or rejected."""
        return self._done

    async def wait(self) -> T:
        """The value; raises a copy of the error given to `reject`. Always a checkpoint."""
        if self._done:
            await trio.lowlevel.checkpoint()
        else:
            task = trio.lowlevel.current_task()
            self._tasks[task] = None

            def abort(raise_cancel: object) -> trio.lowlevel.Abort:
                del self._tasks[task]
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        return self.outcome()

    def outcome(self) -> T:
        """As `wait`, of a promise that was resolved or rejected."""
        assert self._done
        if self._error is not None:
            raise own_copy(self._error)
        return self._value  # type: ignore[return-value]
