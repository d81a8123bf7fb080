"""The client's own tasks, which a Ctrl-C doesn't hit: it comes out in the program's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import trio

Ts = TypeVarTuple("Ts")


@trio.lowlevel.enable_ki_protection
async def protected(function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
    """Run it with Trio's protection from KeyboardInterrupt, and what it calls with it."""
    await function(*args)


class Background:
    """A nursery whose tasks are protected. A connection's reader that was interrupted in the middle
    of a frame would leave nothing that could be gone on with.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def start_soon(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """As of a nursery."""
        self._nursery.start_soon(protected, function, *args)
