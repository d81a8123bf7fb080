"""One interface for the three faces: a script is a coroutine function that runs on each.

For the blocking face every object is wrapped: its calls can be awaited, but have returned before.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import Any

import trio

import geminga
import geminga.aio
import geminga.blocking

DEADLINE_S = 100
POLL_S = 0.005
Script = Callable[[], Coroutine[Any, Any, Any]]
KINDS = ("Client", "Producer", "Consumer", "Reader", "TableView", "TableChanges", "Receipt")
RENAMED = {"aclose": "close"}


class Face(ABC):
    """How programs of one face run, wait and run concurrently."""

    module: ModuleType
    cancels = True
    """Whether a call can be cancelled from outside."""

    @abstractmethod
    def run(self, script: Script) -> Any:
        """Run a script to its end, with a deadline."""

    @abstractmethod
    async def together(self, *scripts: Script) -> None:
        """Run them concurrently, until all have ended."""

    @abstractmethod
    async def pause(self) -> None:
        """Let others run for a moment."""

    @abstractmethod
    async def give_up(self, script: Script) -> None:
        """Run a script and cancel it once it waits."""

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait for a condition."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not is_so():
            assert time.monotonic() < deadline_s, "it never came"
            await self.pause()

    def connect(self, url: str, **options: Any) -> Any:
        """A client for a block."""
        return self.module.connect(url, **options)

    def client(self, url: str, **options: Any) -> Any:
        """A client without a block."""
        return self.module.Client(url, **options)

    def listener(self, listener: Callable[[Any, geminga.Message], Awaitable[None]]) -> Any:
        """A message listener in the face's form."""
        return listener


class TrioFace(Face):
    module = geminga

    def run(self, script: Script) -> Any:
        async def main() -> Any:
            with trio.fail_after(DEADLINE_S):
                return await script()

        return trio.run(main)

    async def together(self, *scripts: Script) -> None:
        async with trio.open_nursery() as nursery:
            for script in scripts:
                nursery.start_soon(script)

    async def pause(self) -> None:
        await trio.sleep(POLL_S)

    async def give_up(self, script: Script) -> None:
        with trio.move_on_after(10 * POLL_S) as scope:
            await script()
        assert scope.cancelled_caught


class AioFace(Face):
    module = geminga.aio

    def run(self, script: Script) -> Any:
        return asyncio.run(asyncio.wait_for(script(), DEADLINE_S))

    async def together(self, *scripts: Script) -> None:
        async with asyncio.TaskGroup() as group:
            for script in scripts:
                group.create_task(script())

    async def pause(self) -> None:
        await asyncio.sleep(POLL_S)

    async def give_up(self, script: Script) -> None:
        task = asyncio.ensure_future(script())
        await asyncio.wait([task], timeout=10 * POLL_S)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


class BlockingFace(Face):
    module = geminga.blocking
    cancels = False

    def run(self, script: Script) -> Any:
        return drive(script())

    async def together(self, *scripts: Script) -> None:
        failures: list[BaseException] = []

        def work(script: Script) -> None:
            try:
                drive(script())
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(each,), daemon=True) for each in scripts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in threads)
        for failure in failures:
            raise failure

    async def pause(self) -> None:
        threading.Event().wait(POLL_S)

    async def give_up(self, script: Script) -> None:
        raise AssertionError("a thread's call can't be given up")

    def connect(self, url: str, **options: Any) -> Any:
        return wrapped(super().connect(url, **options))

    def client(self, url: str, **options: Any) -> Any:
        return wrapped(super().client(url, **options))

    def listener(self, listener: Callable[[Any, geminga.Message], Any]) -> Any:
        return lambda consumer, message: drive(listener(wrapped(consumer), message))


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


class Done(AbstractAsyncContextManager[Any]):
    """A call of the blocking face, executed when it is awaited or entered."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._call()
        yield

    async def __aenter__(self) -> Any:
        self._opened = self._call()
        return self._opened

    async def __aexit__(self, *error: object) -> None:
        await self._opened.aclose()


class Wrapped:
    """An object of the blocking face, with the methods of the Trio face."""

    def __init__(self, inner: Any, like: type) -> None:
        self.inner = inner
        self._like = like

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, RENAMED.get(name, name))
        if not callable(value):
            return value
        waits = inspect.iscoroutinefunction(inspect.unwrap(getattr(self._like, name)))

        @functools.wraps(value)
        def call(*args: Any, **options: Any) -> Any:
            given = [heard(each) if inspect.isroutine(each) else each for each in args]
            made = functools.partial(value, *given, **options)
            return Done(lambda: wrapped(made())) if waits else wrapped(made())

        return call

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wrapped) and other.inner is self.inner

    def __hash__(self) -> int:
        return hash(self.inner)

    def __repr__(self) -> str:
        return repr(self.inner)

    def __len__(self) -> int:
        return len(self.inner)

    def __contains__(self, key: str) -> bool:
        return key in self.inner

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return wrapped(next(self.inner))
        except StopIteration:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Wrapped:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.inner.__exit__(*error)


def wrapped(value: Any) -> Any:
    """The result of a blocking call, wrapped for a script."""
    if isinstance(value, list):
        return [wrapped(each) for each in value]
    for name in KINDS:
        if isinstance(value, getattr(geminga.blocking, name)):
            return Wrapped(value, getattr(geminga, name))
    return value


def heard(function: Callable[..., Any]) -> Callable[..., Any]:
    """A script's callback, which gets wrapped objects."""
    return lambda *args: function(*map(wrapped, args))


FACES = [TrioFace(), AioFace(), BlockingFace()]
