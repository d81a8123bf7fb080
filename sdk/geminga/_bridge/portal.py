"""The Trio loop that works for programs without one: a background thread per process.

Programs hand it functions to run (`post`); a burst of them costs one wake-up of the loop. Nothing
here waits while it holds a lock that the loop needs, and an interrupted program thread leaves
nothing locked: neither for others (KeyboardInterrupt at any point) nor for its signal handlers.
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
"""Functions that a loop is to call, with their arguments."""

EXIT_TIMEOUT_S = 5.0
"""How long the interpreter's exit waits for clients that the program left open."""
WAIT_STEP_S = 0.1 if os.name == "nt" else threading.TIMEOUT_MAX
"""On Windows a waiting lock can't be interrupted: it is asked again and again there."""


class Portal:
    """A running Trio loop, entered from other threads."""

    def __init__(self) -> None:
        self.is_forked = False
        """Whether this is a copy in a child process, where its thread doesn't exist."""
        self._posts: Posts = deque()
        self._turns = 0
        """How often the loop has begun to run posts."""
        self._woken_for = -1
        """What that was before the loop was last woken. No flag is set before it is woken: a signal
        handler in between would take it to be awake, and wait for ever."""
        self.is_over = False
        """Whether the loop has ended, which it does by a mistake or at the program's end only."""
        self.waiters: set[Waiter] = set()
        """Those that the loop is to notify."""
        self._ended = threading.Event()
        self._closers: weakref.WeakSet[Closer] = weakref.WeakSet()
        self.forkables: weakref.WeakSet[Forkable] = weakref.WeakSet()
        """Who is told in the child after a fork."""
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
        """Nobody waits for a loop that has ended: everybody gets an error."""
        self.is_over = True
        # Never again does a post find the loop woken already.
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
            except BaseException:  # noqa: ASYNC103 - whatever callbacks raise, the others hear it
                logger.exception("notifying a waiter of the background loop's end failed")

    @staticmethod
    def _over() -> AlreadyClosedError:
        return AlreadyClosedError("the client's background loop has ended: make another client")

    @property
    def is_gone(self) -> bool:
        """Whether nothing can be posted any more."""
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
                # Whoever connects from now on has another loop.
                self.is_over = True

    def post(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Have the loop call a function, after all that was posted before; what it raises is
        logged.

        Raises ForkError, and AlreadyClosedError when the loop has ended.
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
        # A mistake in one is no reason to end every client of the process.
        run_posts(self._posts, "a call of the background loop failed")

    def check_may_wait(self) -> None:
        """Raises InvalidStateError in the loop's own thread, which would wait for itself."""
        if get_ident() == self._thread_id:
            raise InvalidStateError(
                "a callback runs in the client's own thread: it must not wait there"
            )

    def start(self, function: Callable[[], Awaitable[None]], closer: Closer) -> None:
        """Run a task that doesn't raise, beside all others; `closer` ends it at the exit."""
        self._closers.add(closer)
        self.post(self._nursery.start_soon, function)

    def stop(self) -> None:
        """End the loop, which nobody uses."""
        self.post(self._nursery.cancel_scope.cancel)

    def close_at_exit(self) -> None:
        """The program ends: what it left open gets a little time to send what waits."""
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
    """Something that a child process has a copy of, which it can't use."""

    def after_fork(self) -> None:
        """In the child: have the next call raise ForkError."""

    def loop_ended(self, error: AlreadyClosedError) -> None:
        """In what was the loop's thread: fail what waits, and have the next call raise it."""


class Waiter(Protocol):
    """Someone who waits for the loop."""

    def cut(self) -> object:
        """Let it wait no more: the loop has ended."""


class Closer(Protocol):
    """Ends one of the portal's long-lived tasks; its methods are called in the loop."""

    def begin_closing(self) -> None:
        """Ask it to end."""

    async def closed(self) -> None:
        """Until it has ended."""

    def loop_ended(self, error: AlreadyClosedError) -> None:
        """In what was the loop's thread, after the loop has ended without it."""


def run_posts(posts: Posts, failure: str) -> None:
    """Call those that are there now, not until there is none: a thread that posts without end would
    keep all else waiting. What they raise is logged.
    """
    for _ in range(len(posts)):
        function, args = posts.popleft()
        try:
            function(*args)
        except Exception:
            logger.exception(failure)


def acquire(lock: LockType) -> None:
    """Wait for a lock that another thread gives up; a signal's handler may interrupt it."""
    while not lock.acquire(timeout=WAIT_STEP_S):
        pass


class _Current:
    """The process's portal, made when it is first needed."""

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
                # A signal handler has made one meanwhile.
                made.stop()
                return self.get()
            self._portal = made
            if known is not None:
                atexit.unregister(known.close_at_exit)
            atexit.register(made.close_at_exit)
            return made

    def after_fork(self) -> None:
        """In the child: nobody runs the loop there, and the lock may be held by nobody."""
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
