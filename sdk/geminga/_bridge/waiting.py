"""The program's waits for the loop: a thread by a lock, an asyncio task by a future."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from _thread import allocate_lock, get_ident
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from typing import TypeVar, TypeVarTuple

from geminga._bridge.portal import Portal, Posts, acquire, run_posts
from geminga._options.arguments import function as check_function
from geminga.errors import InvalidArgumentError

Ts = TypeVarTuple("Ts")
T = TypeVar("T")
logger = logging.getLogger("geminga")


class ThreadWaiter:
    """A single wait of one thread; `notify` is called once in the loop."""

    __slots__ = ("_is_cut", "_lock", "notify")

    def __init__(self) -> None:
        self._is_cut = False
        self._lock = allocate_lock()
        self._lock.acquire()
        self.notify: Callable[[], object] = self._lock.release

    def wait(self, portal: Portal) -> None:
        """Wait until notified. KeyboardInterrupt is raised at once. Raises AlreadyClosedError if
        the loop ends.
        """
        portal.waiters.add(self)
        try:
            portal.check()
            self.wait_for_threads()
        finally:
            portal.waiters.discard(self)
        if self._is_cut:
            portal.check()

    def wait_for_threads(self) -> None:
        """`wait` for a notification by another thread of the program."""
        acquire(self._lock)

    def cut(self) -> None:
        """The loop has ended."""
        if self._lock.locked():
            self._is_cut = True
            self.notify()


class ThreadEvent:
    """A one-time event. Unlike `threading.Event` it has no lock that the frame interrupted by a
    signal handler might hold.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: deque[ThreadWaiter] = deque()

    def set(self) -> None:
        """Set the event."""
        self._is_set = True
        while True:
            try:
                self._waiters.popleft().notify()
            except IndexError:
                return

    def wait(self) -> None:
        """Wait until it is set. KeyboardInterrupt is raised at once."""
        waiter = ThreadWaiter()
        self._waiters.append(waiter)
        if self._is_set:
            # It may have been set before this waiter was registered.
            self.set()
        waiter.wait_for_threads()


class ThreadHost:
    """The surroundings of a blocking program: any thread."""

    def waiter(self) -> ThreadWaiter:
        """Something to wait for."""
        return ThreadWaiter()

    def lock(self) -> AbstractContextManager[object]:
        """A lock between threads; the holder's own signal handlers don't wait for it."""
        return threading.RLock()

    def tell(self, callback: Callable[[T], object], value: T) -> None:
        """Call the program's callback, in the loop's thread."""
        try:
            callback(value)
        except BaseException:  # noqa: ASYNC103 - `sys.exit()` in it must not end the client
            logger.exception("a callback of a sent message failed")

    def turn(self) -> None:
        """Nothing to do: threads run concurrently."""

    def event(self) -> ThreadEvent:
        """Something to wait for that happens once."""
        return ThreadEvent()

    def worker(self) -> int:
        """The current thread."""
        return get_ident()

    def start(self, work: Callable[[], None]) -> None:
        """Run a listener's worker in its own thread."""
        threading.Thread(target=work, name="geminga-listener", daemon=True).start()

    def run(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call a listener."""
        function(*args)

    def check_listener(self, listener: object) -> None:
        """Raises InvalidArgumentError unless it can be called in a thread."""
        check_function(listener, "message_listener")
        if inspect.iscoroutinefunction(listener):
            raise InvalidArgumentError("message_listener must not be a coroutine function here")


class AsyncWaiter:
    """A single wait of one asyncio task; `notify` is called once in the Trio loop. The task may run
    in another loop than the client was made in: one `asyncio.run` after the other.
    """

    __slots__ = ("_future", "_host", "_is_cut")

    def __init__(self, host: AsyncHost) -> None:
        self._is_cut = False
        self._host = host
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def notify(self) -> None:
        """Let `wait` return."""
        loop = self._future.get_loop()
        if loop is self._host.loop:
            self._host.post(self._finish)
        else:
            with suppress(RuntimeError):  # that loop is closed: nothing waits there any more
                loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, portal: Portal) -> None:
        """Wait until notified. Raises AlreadyClosedError if the loop ends."""
        portal.waiters.add(self)
        try:
            portal.check()
            await self._future
        finally:
            portal.waiters.discard(self)
        if self._is_cut:
            portal.check()

    def cut(self) -> None:
        """The loop has ended."""
        self._is_cut = not self._future.done()
        self.notify()


class _Turn:
    """A loop's lock, and how many of its tasks have or want it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class LoopLock:
    """A lock between the tasks of a loop: asyncio's own belongs to the first loop that waits.
    Nothing is kept of a loop whose tasks don't use it.
    """

    def __init__(self) -> None:
        self._turns: dict[asyncio.AbstractEventLoop, _Turn] = {}

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        turn = self._turns.setdefault(loop, _Turn())
        turn.users += 1
        try:
            await turn.lock.acquire()
        except BaseException:
            self._leave(loop, turn)
            raise

    async def __aexit__(self, *error: object) -> None:
        loop = asyncio.get_running_loop()
        turn = self._turns[loop]
        turn.lock.release()
        self._leave(loop, turn)

    def _leave(self, loop: asyncio.AbstractEventLoop, turn: _Turn) -> None:
        turn.users -= 1
        if not turn.users:
            del self._turns[loop]


class AsyncHost:
    """The asyncio loop of a client. The Trio loop passes it functions to call; a burst wakes it
    once.
    """

    def __init__(self) -> None:
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            raise InvalidArgumentError(
                "geminga.aio is for programs that run in asyncio: use geminga.connect in Trio, "
                "and geminga.blocking.connect without an event loop"
            ) from None
        self._tasks: set[asyncio.Task[None]] = set()
        self._posts: Posts = deque()
        self._is_awake = False

    def waiter(self) -> AsyncWaiter:
        """Something to wait for."""
        return AsyncWaiter(self)

    def lock(self) -> LoopLock:
        """A lock between tasks."""
        return LoopLock()

    def tell(self, callback: Callable[[T], object], value: T) -> None:
        """Call the program's callback, in its own loop."""
        self.post(callback, value)

    async def turn(self) -> None:
        """Yield to the program's other tasks."""
        await asyncio.sleep(0)

    def event(self) -> asyncio.Event:
        """Something to wait for that happens once."""
        return asyncio.Event()

    def worker(self) -> asyncio.Task[object] | None:
        """The current task."""
        return asyncio.current_task()

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run a listener's worker in its own task, of the loop that subscribes."""
        task = asyncio.get_running_loop().create_task(work(), name="geminga-listener")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def run(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call a listener; it may be a coroutine function."""
        answer = function(*args)
        if isinstance(answer, Awaitable):
            await answer

    def check_listener(self, listener: object) -> None:
        """Raises InvalidArgumentError unless it is callable."""
        check_function(listener, "message_listener")

    def post(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Let the asyncio loop call a function. Called in the Trio loop."""
        self._posts.append((function, args))
        if not self._is_awake:
            self._is_awake = True
            try:
                self.loop.call_soon_threadsafe(self._run_posts)
            except RuntimeError:
                # The program's loop is closed: nothing waits there any more.
                self._posts.clear()
                self._is_awake = False

    def _run_posts(self) -> None:
        self._is_awake = False
        run_posts(self._posts, "a callback of a sent message failed")
