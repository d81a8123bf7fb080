"""Keeps a producer or consumer attached to its broker: the one place that decides about
reconnecting (spec SDK-07; ConnectionHandler of the Java client).
"""

from __future__ import annotations

import logging
import math
from typing import Protocol

import trio

from geminga._connection.connection import Connection
from geminga._connection.core import Core
from geminga._connection.retry import AttachAction, attach_action
from geminga.errors import (
    AlreadyClosedError,
    ConnectionFailedError,
    GemingaError,
    OperationTimeoutError,
)
from geminga_runtime.backoff import Backoff
from geminga_runtime.waiters import Promise, Wakeup

logger = logging.getLogger("geminga")

WAITED_FOR_MAX_S = 2.0
"""Bound of the pause between two attempts while messages wait to be sent."""
LAST_WAIT_SHARE = 0.9
"""Before the first success, a pause takes at most this share of the remaining time."""
TELLING_S = 1.0
"""If the deadline ends an attempt sooner than this, the error before it is reported."""


class Target(Protocol):
    """The producer or consumer to be attached."""

    @property
    def topic(self) -> str:
        """Full name of its topic."""
        ...

    @property
    def has_pending(self) -> bool:
        """Whether messages wait to be sent."""
        ...

    async def attach(self, connection: Connection) -> None:
        """Register on that connection, and begin. Raises GemingaError."""

    def detached(self) -> None:
        """The connection is lost."""

    def failed(self, error: GemingaError) -> None:
        """It will not be attached any more."""


class ConnectionHandler:
    """Looks up the topic, connects and attaches; again after every loss, with back-off."""

    def __init__(self, core: Core, target: Target) -> None:
        self._core = core
        self._target = target
        self._lost = Wakeup()
        self._lost_while_attaching = False
        self._attaching = trio.CancelScope()
        self._hint: str | None = None
        self._scope = trio.CancelScope()
        self._running: trio.Event | None = None
        """Set when its task has ended; None before it begins."""
        self._ready: Promise[None] = Promise()
        self._deadline_s = math.inf
        self._pause: trio.CancelScope | None = None
        self._paused_s = 0.0
        self._was_reached = True
        self._found = False
        self.connection: Connection | None = None
        """The connection that it is attached to, or None."""

    @property
    def timeout_s(self) -> float:
        """Timeout of an attaching request: all first attempts share the operation timeout, each
        later one has it.
        """
        timeout_s = self._core.options.operation_timeout_s
        if self._ready.is_done():
            return timeout_s
        return max(0.0, min(timeout_s, self._deadline_s - trio.current_time()))

    async def start(self) -> None:
        """Wait until it is attached for the first time. Raises GemingaError.

        If this fails or is cancelled, it is stopped.
        """
        self.start_soon()
        try:
            await self._ready.wait()
        except BaseException:
            self._scope.cancel()
            raise

    def start_soon(self) -> None:
        """`start` without waiting; only the target gets a failure."""
        self._running = trio.Event()
        self._core.nursery.start_soon(self._run, self._running)

    def lost(self, assigned_broker_url: str | None) -> None:
        """The connection is lost, or the broker closed the target on it, perhaps with the URL of
        its next broker (PIP-307).
        """
        self._hint = assigned_broker_url
        if self.connection is None:
            # No response may come: a wait for exclusive access has no timeout.
            self._lost_while_attaching = True
            self._attaching.cancel()
            return
        self.connection = None
        self._target.detached()
        self._lost.set()

    def hurry(self) -> None:
        """A message waits to be sent: shorten a pause that is too long for it."""
        if self._pause is not None:
            latest_s = self._paused_s + WAITED_FOR_MAX_S
            self._pause.deadline = min(self._pause.deadline, latest_s)

    def abandon(self) -> None:
        """Stop, without waiting."""
        self._scope.cancel()

    async def stop(self) -> None:
        """Stop, and wait for the end of its task: what the target is attached to by then stays."""
        self._scope.cancel()
        self._ready.reject(AlreadyClosedError("closed", topic=self._target.topic))
        if self._running is not None:
            await self._running.wait()

    async def _run(self, ended: trio.Event) -> None:
        options = self._core.options
        backoff = Backoff(options.initial_backoff_s, options.max_backoff_s, rng=self._core.chance)
        self._deadline_s = trio.current_time() + options.operation_timeout_s
        try:
            with self._scope:
                while await self._attach_once(backoff):
                    await self._lost.wait()
                    logger.info("%s: connection lost, reconnecting", self._target.topic)
                    self._was_reached = True
                    if self._hint is None:
                        await self._wait(backoff.next_s(trio.current_time()))
        except trio.Cancelled:
            # The client ends without closing its producers and consumers.
            error = AlreadyClosedError("the client is closed", topic=self._target.topic)
            self._target.failed(error)
            self._ready.reject(error)
            raise
        finally:
            ended.set()

    async def _attach_once(self, backoff: Backoff) -> bool:
        """Retry until it is attached; returns False if it gives up."""
        refusal: GemingaError | None = None
        lost_s = trio.current_time()
        pool = self._core.pool
        while True:
            began_s = trio.current_time()
            opened = pool.opened
            self._found = False
            try:
                await self._attach()
            except GemingaError as error:
                attached_before = self._ready.is_done()
                left_s = self._deadline_s - trio.current_time()
                action = attach_action(
                    error,
                    attached_before=attached_before,
                    deadline_passed=left_s <= self._core.options.initial_backoff_s,
                )
                if action is AttachAction.GIVE_UP:
                    was_cut_short = trio.current_time() - began_s < TELLING_S
                    if (
                        refusal is not None
                        and isinstance(error, OperationTimeoutError)
                        and was_cut_short
                    ):
                        error = refusal
                    final = error.of_topic(self._target.topic)
                    self._target.failed(final)
                    self._ready.reject(final)
                    return False
                refusal = error
                is_reached = self._found or pool.opened != opened
                if is_reached and not self._was_reached:
                    # A broker is reachable again: the next failures have another cause.
                    backoff.reset()
                self._was_reached = is_reached
                delay_s = backoff.next_s(trio.current_time())
                if self._target.has_pending:
                    delay_s = min(delay_s, WAITED_FOR_MAX_S)
                if not attached_before:
                    # The last attempts are made before the deadline, even after long pauses.
                    delay_s = min(delay_s, left_s * LAST_WAIT_SHARE)
                logger.warning(
                    "%s: %s; trying again in %.1f s", self._target.topic, error.args[0], delay_s
                )
                await self._wait(delay_s)
            else:
                backoff.reset()
                if refusal is not None or self._ready.is_done():
                    # Who was told of failures is told of their end.
                    level = logging.INFO if refusal is None else logging.WARNING
                    after_s = trio.current_time() - lost_s
                    logger.log(level, "%s: connected after %.1f s", self._target.topic, after_s)
                self._ready.resolve(None)
                return True

    async def _wait(self, delay_s: float) -> None:
        """A pause. `hurry` may shorten it; if no broker was reachable, it also ends when the client
        opens a connection.
        """
        self._paused_s = trio.current_time()
        with trio.CancelScope(deadline=self._paused_s + delay_s) as self._pause:
            if self._was_reached:
                await trio.sleep_forever()
            else:
                await self._core.pool.wait_for_opening()
        self._pause = None

    async def _attach(self) -> None:
        timeout_s = math.inf if self._ready.is_done() else self.timeout_s
        connection: Connection | None = None
        with trio.move_on_after(timeout_s):
            connection = await self._connection_to_broker()
        self._found = connection is not None
        if connection is None:
            raise OperationTimeoutError(
                "no broker found within the operation timeout", topic=self._target.topic
            )
        self._lost_while_attaching = False
        with trio.CancelScope() as self._attaching:
            await self._target.attach(connection)
        if self._lost_while_attaching:
            self._target.detached()
            raise ConnectionFailedError("connection lost while attaching", topic=self._target.topic)
        self.connection = connection

    async def _connection_to_broker(self) -> Connection:
        hint, self._hint = self._hint, None
        if hint is not None:
            endpoint = self._core.lookup.endpoint(hint)
        else:
            endpoint = await self._core.lookup.broker_of(self._target.topic)
        return await self._core.pool.get(endpoint)
