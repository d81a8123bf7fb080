"""The client's own tasks, which a Ctrl-C doesn't hit: it comes out in the program's."""

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
"""How long leaving `connect` may take: brokers that don't answer are left alone then."""
CANCELLED_CLOSE_TIMEOUT_S = 2.0
"""The same for a program that is cancelled."""


def close_timeout_s() -> float:
    """How long leaving `connect` may take here."""
    if trio.current_effective_deadline() == -math.inf:
        return CANCELLED_CLOSE_TIMEOUT_S
    return CLOSE_TIMEOUT_S


async def close_in_time(close: Callable[[], Awaitable[None]]) -> None:
    """Close a client at the end of its block, whatever the block is told meanwhile."""
    with trio.move_on_after(close_timeout_s(), shield=True):
        await close()


async def close_at_end(close: Callable[[], Awaitable[None]]) -> None:
    """Close something at the end of its block; a cancelled one has CANCELLED_CLOSE_TIMEOUT_S."""
    is_cancelled = trio.current_effective_deadline() == -math.inf
    await (close_in_time(close) if is_cancelled else close())


@trio.lowlevel.enable_ki_protection
async def protected(function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
    """Run it with Trio's protection from KeyboardInterrupt, and what it calls with it."""
    await function(*args)


class Background:
    """Tasks that are protected, of a nursery or, without one, of the whole Trio program. A
    connection's reader that was interrupted in the middle of a frame would leave nothing that could
    be gone on with.

    They don't end when the program is cancelled, but by `cancel`: what waits to be sent still goes.
    """

    def __init__(self, nursery: trio.Nursery | None) -> None:
        """Without a nursery they are system tasks, which see the context variables of now."""
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
        """The same for what runs the program's own code: it is cancelled with the program."""
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
            # What a system task raises would end the whole program as an internal error of Trio's.
            logger.exception("a task of the client failed")

    @trio.lowlevel.enable_ki_protection
    async def _run(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        # System tasks are cancelled only once the program has ended: a shield would stop its end.
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
        """Cancel all tasks, and those that are started from now on."""
        self._is_cancelled = True
        for scope in self._scopes:
            scope.cancel()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()


def check_loop(name: str) -> None:
    """Raises InvalidArgumentError where Trio doesn't run; `name` is what was called."""
    if not trio.lowlevel.in_trio_run():
        raise InvalidArgumentError(
            f"geminga.{name} is for programs that run in Trio: use geminga.aio.{name} in asyncio, "
            f"and geminga.blocking.{name} without an event loop"
        )


@asynccontextmanager
async def background_of_block() -> AsyncGenerator[Background, None]:
    """Tasks of a block. What the block raises comes out as itself, not wrapped by our nursery."""
    body_error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield Background(nursery)
            except BaseException as error:
                body_error = error
                raise
    except BaseExceptionGroup as group:
        if body_error is not None and _only(group, body_error):
            raise body_error from body_error.__cause__
        raise


def _only(group: BaseExceptionGroup[BaseException], error: BaseException | None = None) -> bool:
    """Whether nothing but that error is in the group, cancellation apart."""
    for each in group.exceptions:
        if each is error or isinstance(each, trio.Cancelled):
            continue
        if not isinstance(each, BaseExceptionGroup) or not _only(each, error):
            return False
    return True
