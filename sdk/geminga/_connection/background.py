"""The client's own tasks, protected from KeyboardInterrupt: the program's tasks raise it."""

from __future__ import annotations

import contextvars
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVarTuple

import trio

from geminga.errors import InvalidArgumentError

Ts = TypeVarTuple("Ts")
logger = logging.getLogger("geminga")

CLOSE_TIMEOUT_S = 10.0
"""Bound of the time to leave a `connect` block; then it stops waiting for brokers."""
CANCELLED_CLOSE_TIMEOUT_S = 2.0
"""`CLOSE_TIMEOUT_S` of a cancelled program."""


def close_timeout_s() -> float:
    """Bound of the time to leave a `connect` block in the current task."""
    if trio.current_effective_deadline() == -math.inf:
        return CANCELLED_CLOSE_TIMEOUT_S
    return CLOSE_TIMEOUT_S


async def close_in_time(close: Callable[[], Awaitable[None]]) -> None:
    """Close a client at the end of its block, even if cancelled."""
    with trio.move_on_after(close_timeout_s(), shield=True):
        await close()


async def close_at_end(close: Callable[[], Awaitable[None]]) -> None:
    """Close an object at the end of its block, within CANCELLED_CLOSE_TIMEOUT_S if cancelled."""
    is_cancelled = trio.current_effective_deadline() == -math.inf
    await (close_in_time(close) if is_cancelled else close())


@trio.lowlevel.enable_ki_protection
async def protected(function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
    """Run a function and its callees with Trio's protection from KeyboardInterrupt."""
    await function(*args)


class Background:
    """Protected tasks, in a nursery or, without one, system tasks. A connection interrupted in the
    middle of a frame would be unusable.

    The program's cancellation doesn't end them, only `cancel`: pending messages are still sent.
    """

    def __init__(self, nursery: trio.Nursery | None) -> None:
        """Without a nursery, they are system tasks with the present context variables."""
        self._nursery = nursery
        self._context = contextvars.copy_context()
        self._scopes: set[trio.CancelScope] = set()
        self._is_cancelled = False

    def start_soon(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """As of a nursery."""
        if self._nursery is not None:
            self._nursery.start_soon(self._run, function, *args)
        else:
            context = self._context.copy()
            trio.lowlevel.spawn_system_task(self._run_alone, function, *args, context=context)

    def start_with_program(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """`start_soon` for tasks that run the program's code: they are cancelled with it."""
        if self._nursery is None:
            self.start_soon(function, *args)
        else:
            self._nursery.start_soon(protected, function, *args)

    async def _run_alone(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        try:
            await self._run(function, *args)
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: ASYNC103
            if isinstance(error, BaseExceptionGroup) and _only(error):
                raise  # only cancelled: the program has ended
            # An error of a system task would end the program as an internal error of Trio.
            logger.exception("a task of the client failed")

    @trio.lowlevel.enable_ki_protection
    async def _run(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        # System tasks are cancelled after the program's end only: a shield would prevent the end.
        is_shielded = self._nursery is not None and not self._is_cancelled
        with trio.CancelScope(shield=is_shielded) as scope:
            if self._is_cancelled:
                scope.cancel()
            self._scopes.add(scope)
            try:
                await function(*args)
            finally:
                self._scopes.discard(scope)

    def cancel(self) -> None:
        """Cancel all tasks, and later ones."""
        self._is_cancelled = True
        for scope in self._scopes:
            scope.cancel()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()


def check_loop(name: str) -> None:
    """Raises InvalidArgumentError outside of Trio; `name` is that of the called function."""
    if not trio.lowlevel.in_trio_run():
        raise InvalidArgumentError(
            f"geminga.{name} is for programs that run in Trio: use geminga.aio.{name} in asyncio, "
            f"and geminga.blocking.{name} without an event loop"
        )


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def background_of_block() -> AsyncGenerator[Background, None]:
    """Tasks of a block, which end with it. The block's error is raised as it is, not wrapped by our
    nursery.
    """
    body_error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            background = Background(nursery)
            try:
                yield background
            except BaseException as error:
                body_error = error
                raise
            finally:
                # Also if a Ctrl-C cuts the block's own end short: the nursery waits for them.
                background.cancel()
    except BaseExceptionGroup as group:
        if body_error is not None and _only(group, body_error):
            raise body_error from body_error.__cause__
        raise


def _only(group: BaseExceptionGroup[BaseException], error: BaseException | None = None) -> bool:
    """Whether the group has only this error, ignoring cancellations."""
    for each in group.exceptions:
        if each is error or isinstance(each, trio.Cancelled):
            continue
        if not isinstance(each, BaseExceptionGroup) or not _only(each, error):
            return False
    return True
