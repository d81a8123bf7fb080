"""Calls into the loop, and the client's session there."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeVar

import trio

from geminga._bridge.portal import Portal
from geminga.client import Client
from geminga.errors import AlreadyClosedError, GemingaError
from geminga_runtime.waiters import own_copy


class Closing(Protocol):
    """A client."""

    async def aclose(self) -> None:
        """Idempotent."""
        ...


T = TypeVar("T")
C = TypeVar("C", bound=Closing)
logger = logging.getLogger("geminga")


class Call(Generic[T]):
    """One coroutine function to be run in the loop, and its outcome.

    `notify` is called in the loop with the outcome. An abandoned call is cancelled; if it has
    opened something nevertheless, that is closed.
    """

    __slots__ = (
        "_abandoned",
        "_closes",
        "_done",
        "_error",
        "_function",
        "_notify",
        "_scope",
        "_value",
    )
    _value: T

    def __init__(
        self,
        function: Callable[[], Awaitable[T]],
        notify: Callable[[], object],
        closes: bool = False,
    ) -> None:
        """A call that `closes` something begins even if abandoned, to notify the broker."""
        self._function = function
        self._closes = closes
        self._notify = notify
        self._scope: trio.CancelScope | None = None
        self._error: BaseException | None = None
        self._done = False
        self._abandoned = False

    async def run(self) -> None:
        """Run it to its outcome. Raises nothing but an outer cancellation."""
        try:
            with trio.CancelScope() as self._scope:
                if self._abandoned:
                    self._scope.cancel()
                if self._closes or not self._abandoned:
                    self._value = await self._function()
                    self._done = True
        except Exception as error:
            self._error = error
        finally:
            if not self._done and self._error is None:
                self._error = AlreadyClosedError("the client was closed")
            self._notify()
        if self._abandoned:
            await self._close_value()

    def fail(self, error: GemingaError) -> None:
        """Set an error: the call can't be run."""
        self._error = error
        self._notify()

    def abandon(self) -> Callable[[], Awaitable[None]] | None:
        """No caller waits any more. If the outcome is there already, returns its cleanup."""
        self._abandoned = True
        if self._scope is not None:
            self._scope.cancel()
        return self._close_value if self._done else None

    async def _close_value(self) -> None:
        close = getattr(self._value, "aclose", None) if self._done else None
        if close is not None:
            await close()

    def result(self) -> T:
        """The outcome, once; raises the function's error."""
        error = self._error
        if error is None:
            return self._value
        self._error = None
        try:
            raise error
        finally:
            del error


class Session(Generic[C]):
    """A Trio client that is open in the loop, and the calls that run in it."""

    def __init__(
        self,
        portal: Portal,
        opening: AbstractAsyncContextManager[C],
        notify: Callable[[], object],
    ) -> None:
        """`notify` is called in the loop once the client is open."""
        self.portal = portal
        self.is_running = True
        self._opening = opening
        self._opened: Callable[[], object] | None = notify
        self.error: Exception | None = None
        """The error that ended it."""
        self._closing = trio.Event()
        self._ended = trio.Event()
        self._on_end: list[Callable[[], object]] = []
        self._client: C | None = None
        self.nursery: trio.Nursery | None = None
        """The nursery of the calls; None once it is closed."""
        self._early: list[Call[Any]] | None = []
        """Calls that wait for the client to open; None once it is open or has failed."""

    def __repr__(self) -> str:
        return "<Client, not open yet>" if self._client is None else repr(self._client)

    @property
    def client(self) -> C:
        """The Trio client."""
        assert self._client is not None, "the session is not open yet"
        return self._client

    async def run(self) -> None:
        """Keep the client open until `begin_closing`."""
        try:
            async with self._opening as self._client, trio.open_nursery() as nursery:
                self.nursery = nursery
                try:
                    self._begin_early()
                    self._tell_opened()
                    await self._closing.wait()
                    await self._client.aclose()
                    nursery.cancel_scope.cancel()
                finally:
                    # Refuse calls from now on: an ending nursery accepts no task.
                    self.nursery = None
        except Exception as error:
            logger.exception("the client failed")
            self.error = error
        finally:
            self.is_running = False
            self.nursery = None
            self._begin_early()
            self._tell_opened()
            self._ended.set()
            for notify in self._on_end:
                notify()

    def _begin_early(self) -> None:
        early, self._early = self._early or [], None
        for call in early:
            self.spawn(call)

    def _tell_opened(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened()

    def begin_closing(self) -> None:
        """Close the client; calls that wait raise AlreadyClosedError."""
        self._closing.set()

    async def closed(self) -> None:
        """Wait until it is closed."""
        await self._ended.wait()

    def loop_ended(self, error: AlreadyClosedError) -> None:
        """The loop ended before the client was closed."""
        self.is_running = False
        self.nursery = None
        self.error = self.error or error

    def on_end(self, notify: Callable[[], object]) -> None:
        """Call `notify` when it is closed, or now if it already is."""
        if self.is_running:
            self._on_end.append(notify)
        else:
            notify()

    def spawn(self, call: Call[T]) -> None:
        """Run a call concurrently with others."""
        if self._early is not None:
            self._early.append(call)
        elif self.nursery is None or not self.is_running:
            error = self.error if isinstance(self.error, GemingaError) else None
            call.fail(own_copy(error) if error else AlreadyClosedError("the client is closed"))
        else:
            self.nursery.start_soon(call.run)

    def abandon(self, call: Call[T]) -> None:
        """Abandon a call, and run its cleanup."""
        left = call.abandon()
        if left is not None and self.nursery is not None:
            self.nursery.start_soon(left)


ClientSession = Session[Client]
"""That of a client that sends and receives."""
