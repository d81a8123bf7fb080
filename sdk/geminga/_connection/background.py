"""The client's own tasks, which a Ctrl-C doesn't hit: it comes out in the program's."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import trio

Ts = TypeVarTuple("Ts")

CLOSE_TIMEOUT_S = 10.0
"""How long leaving `connect` may take: brokers that don't answer are left alone then."""
CANCELLED_CLOSE_TIMEOUT_S = 2.0
"""The same for a program that is cancelled."""


def close_timeout_s() -> float:
    """How long leaving `connect` may take here."""
    if trio.current_effective_deadline() == -math.inf:
        return CANCELLED_CLOSE_TIMEOUT_S
    return CLOSE_TIMEOUT_S


@trio.lowlevel.enable_ki_protection
async def protected(function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
    """Run it with Trio's protection from KeyboardInterrupt, and what it calls with it."""
    await function(*args)


class Background:
    """A nursery whose tasks are protected. A connection's reader that was interrupted in the middle
    of a frame would leave nothing that could be gone on with.

    They don't end when the program is cancelled, but by `cancel`: what waits to be sent still goes.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: set[trio.CancelScope] = set()
        self._is_cancelled = False

    def start_soon(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """As of a nursery."""
        self._nursery.start_soon(self._run, function, *args)

    def start_with_program(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """The same for what runs the program's own code: it is cancelled with the program."""
        self._nursery.start_soon(protected, function, *args)

    @trio.lowlevel.enable_ki_protection
    async def _run(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        with trio.CancelScope(shield=not self._is_cancelled) as scope:
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
        self._nursery.cancel_scope.cancel()
