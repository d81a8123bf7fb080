"""Work of many tasks that would all go on in one turn of the loop, spread over turns."""

from __future__ import annotations

from typing import Final

import trio

ENDS_A_TURN: Final = 12
"""Connections that begin to end in a turn; each takes some 0.3 ms in this turn and the next ones.
"""


class Pace:
    """Lets so many tasks pass in a turn of the loop; the others wait for later turns, in order.

    A turn may begin with what earlier ones have left: only when nothing is left is a new one waited
    for, as that wakes the loop.
    """

    __slots__ = ("_left", "_per_turn", "_waiting")

    def __init__(self, per_turn: int) -> None:
        self._per_turn = self._left = per_turn
        self._waiting: dict[trio.lowlevel.Task, None] = {}

    async def turn(self) -> None:
        """Return in this turn or in a later one. A checkpoint only if it waits."""
        if self._left and not self._waiting:
            self._left -= 1
            if not self._left:
                self._renew_later()
            return
        task = trio.lowlevel.current_task()
        self._waiting[task] = None

        def abort(raise_cancel: object) -> trio.lowlevel.Abort:
            del self._waiting[task]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _renew_later(self) -> None:
        trio.lowlevel.current_trio_token().run_sync_soon(self._renew)

    def _renew(self) -> None:
        """A new turn."""
        self._left = self._per_turn
        while self._left and self._waiting:
            task = next(iter(self._waiting))
            del self._waiting[task]
            self._left -= 1
            trio.lowlevel.reschedule(task)
        if not self._left:
            self._renew_later()


_ends: trio.lowlevel.RunVar[Pace] = trio.lowlevel.RunVar("ends of connections")


def ends() -> Pace:
    """The pace at which connections end, of all listeners of this loop: thousands may end at once,
    as a client needs no credentials to open and close them.
    """
    try:
        return _ends.get()
    except LookupError:
        pace = Pace(ENDS_A_TURN)
        _ends.set(pace)
        return pace
