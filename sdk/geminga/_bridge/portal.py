"""The Trio loop for programs without one: a background thread per process.

Programs pass it functions to call (`post`); a burst of them wakes the loop once. No code here waits
while it holds a lock that the loop needs, and an interrupted program thread holds no lock: neither
after a KeyboardInterrupt at any point nor during its signal handlers.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from _thread import LockType, allocate_lock, get_ident
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NoReturn, Protocol, TypeVarTuple

import trio

from geminga.errors import AlreadyClosedError, ForkError, InvalidStateError

logger = logging.getLogger("geminga")

Ts = TypeVarTuple("Ts")

Posts = deque[tuple[Callable[..., object], tuple[object, ...]]]
"""Functions to be called by a loop, with their arguments."""

EXIT_TIMEOUT_S = 5.0
"""Bound of the time that the interpreter's exit waits for clients left open."""
WAIT_STEP_S = 0.1 if os.name == "nt" else threading.TIMEOUT_MAX
"""Waiting for a lock can't be interrupted on Windows: there it is polled."""


class Portal:
    """A running Trio loop, entered from other threads."""

    def __init__(self) -> None:
        self.is_forked = False
        """Whether this is a copy in a forked child, where the thread doesn't exist."""
        self._posts: Posts = deque()
        self._turns = 0
        """The number of times that the loop began to run posts."""
        self._woken_for = -1
        """`_turns` before the last wake-up. Not a flag set before the wake-up: a signal handler in
        between would consider the loop awake, and wait for ever."""
        self.is_over = False
        """Whether the loop has ended: after a defect, or at the program's end."""
        self.waiters: set[Waiter] = set()
        """Waiters to be notified by the loop."""
        self._ended = threading.Event()
        self._closers: weakref.WeakSet[Closer] = weakref.WeakSet()
        self.forkables: weakref.WeakSet[Forkable] = weakref.WeakSet()
        """Objects to be notified in the child after a fork."""
        started = allocate_lock()
        started.acquire()
        self._thread = threading.Thread(
            target=self._run, args=(started.release,), name="geminga", daemon=True
        )
        self._thread.start()
        acquire(started)
        self._thread_id = self._thread.ident

    def _run(self, started: Callable[[], None]) -> None:
        failure: BaseException | None = None
        try:
            trio.run(self._serve, started)
        except BaseException as error:  # noqa: ASYNC103
            failure = error
        finally:
            self._tell_the_end()
            self._ended.set()
        if failure is not None:
            logger.error("the background loop ended", exc_info=failure)

    def _tell_the_end(self) -> None:
        """After the loop's end, fail all that wait for it."""
        self.is_over = True
        # From now on no post considers the loop awake.
        self._turns += 1
        error = self._over()
        tells: list[Callable[[], object]] = [
            *(partial(each.loop_ended, error) for each in list(self._closers)),
            *(partial(each.loop_ended, error) for each in list(self.forkables)),
            *(each.cut for each in list(self.waiters)),
        ]
        for tell in tells:
            try:
                tell()
            except BaseException:  # noqa: ASYNC103 - the other waiters must be notified, too
                logger.exception("notifying a waiter of the background loop's end failed")

    @staticmethod
    def _over() -> AlreadyClosedError:
        return AlreadyClosedError("the client's background loop has ended: make another client")

    @property
    def is_gone(self) -> bool:
        """Whether posting is no longer possible."""
        return self.is_forked or self.is_over

    def check(self) -> None:
        """Raises AlreadyClosedError if the loop has ended."""
        if self.is_over:
            raise self._over()

    async def _serve(self, started: Callable[[], None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            started()
            try:
                await trio.sleep_forever()
            finally:
                # Later clients use another loop.
                self.is_over = True

    def post(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Let the loop call a function, after earlier posts; its error is logged.

        Raises ForkError, and AlreadyClosedError if the loop has ended.
        """
        if self.is_forked:
            self.refuse()
        self._posts.append((function, args))
        turns = self._turns
        if self._woken_for != turns:
            try:
                self._token.run_sync_soon(self._run_posts)
            except trio.RunFinishedError:
                self.is_over = True
                self._posts.clear()
                raise self._over() from None
            self._woken_for = turns

    def refuse(self) -> NoReturn:
        """Raises ForkError."""
        raise ForkError("the client was made before the fork: make one in this process")

    def _run_posts(self) -> None:
        self._turns += 1
        # A defect in one must not end every client of the process.
        run_posts(self._posts, "a call of the background loop failed")

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the loop's thread, in which callbacks run."""
        return get_ident() == self._thread_id

    def check_may_wait(self) -> None:
        """Raises InvalidStateError in the loop's thread, which would wait for itself."""
        if self.is_own_thread:
            raise InvalidStateError(
                "a callback runs in the client's own thread: it must not wait there"
            )

    def start(self, function: Callable[[], Awaitable[None]], closer: Closer) -> None:
        """Run a task that doesn't raise; `closer` ends it at the interpreter's exit."""
        self._closers.add(closer)
        self.post(self._nursery.start_soon, function)

    def stop(self) -> None:
        """End an unused loop."""
        self.post(self._nursery.cancel_scope.cancel)

    def close_at_exit(self) -> None:
        """At the interpreter's exit, give open clients a little time to send pending messages."""
        if self.is_forked or self.is_over:
            return
        try:
            self.post(self._nursery.start_soon, self._close_all)
        except (AlreadyClosedError, ForkError):
            return
        self._ended.wait(EXIT_TIMEOUT_S + 1)

    async def _close_all(self) -> None:
        with trio.move_on_after(EXIT_TIMEOUT_S):
            for closer in list(self._closers):
                closer.begin_closing()
            for closer in list(self._closers):
                await closer.closed()
        self._nursery.cancel_scope.cancel()


class Forkable(Protocol):
    """An object whose copy in a forked child can't be used."""

    def after_fork(self) -> None:
        """In the child: make the next call raise ForkError."""

    def loop_ended(self, error: AlreadyClosedError) -> None:
        """After the loop's end, in its thread: fail waiting calls and later ones."""


class Waiter(Protocol):
    """Waits for the loop."""

    def cut(self) -> object:
        """End the wait: the loop has ended."""


class Closer(Protocol):
    """Ends one of the portal's long-lived tasks; its methods are called in the loop."""

    def begin_closing(self) -> None:
        """Request its end."""

    async def closed(self) -> None:
        """Wait until it has ended."""

    def loop_ended(self, error: AlreadyClosedError) -> None:
        """The loop ended before the task; called in the loop's thread."""


def run_posts(posts: Posts, failure: str) -> None:
    """Call the present posts, not later ones: a thread that posts without end must not stall the
    loop. Their errors are logged.
    """
    for _ in range(len(posts)):
        function, args = posts.popleft()
        try:
            function(*args)
        except Exception:
            logger.exception(failure)


def acquire(lock: LockType) -> None:
    """Wait for a lock that another thread releases; signal handlers may interrupt it."""
    while not lock.acquire(timeout=WAIT_STEP_S):
        pass


class _Current:
    """The process's portal, created on first use."""

    def __init__(self) -> None:
        self._portal: Portal | None = None
        self._lock = threading.RLock()

    def get(self) -> Portal:
        with self._lock:
            known = self._portal
            if known is not None and not known.is_over:
                return known
            made = Portal()
            if self._portal is not known:
                # A signal handler has created one meanwhile.
                made.stop()
                return self.get()
            self._portal = made
            if known is not None:
                atexit.unregister(known.close_at_exit)
            atexit.register(made.close_at_exit)
            return made

    def after_fork(self) -> None:
        """In the child: there is no loop, and the lock's holder may not exist."""
        if self._portal is not None:
            self._portal.is_forked = True
            for each in list(self._portal.forkables):
                each.after_fork()
        self._portal = None
        self._lock = threading.RLock()


_current = _Current()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_current.after_fork)


def portal() -> Portal:
    """The process's background loop, started by the first call."""
    return _current.get()
