"""What one connection publishes little by little goes to storage in groups (spec BR-22).

As a journal takes all that came while it wrote, a connection of which little waits for storage is
read again once that is stored: without it each message that comes by itself costs a turn of the
loop, a write to each bookie and an answer of each, and a broker that shares its cores with bookies
has nothing left for a moment with more to do (docs/decisions/0049).
"""

from __future__ import annotations

import trio

GATHERED_BYTES_MAX = 8 * 1024
"""A connection with so much that isn't stored yet is read at once: it sends groups, and how long
these take says little of storage itself.
"""

HOLD_S_MAX = 0.005
"""So long at most nothing is read: acknowledgements and other commands wait too. Once it is over
the connection is read without pauses until all that waits is stored.
"""

SHORT_S = 0.0015
"""Storage that takes longer isn't waited for: what came meanwhile would wait for twice that."""

TRIAL = 32
"""So many times are judged together, by their median."""

PAUSE_S = 4.0
"""After a trial in which storage took too long, nothing waits for this time; it is doubled by each
further one in a row, up to PAUSE_S_MAX.
"""
PAUSE_S_MAX = 60.0


class StorageTime:
    """Whether storage is quick enough to be waited for; of all connections together."""

    __slots__ = ("_count", "_next_s", "_pause_s", "_short")

    def __init__(self) -> None:
        self._count = self._short = 0
        self._pause_s = PAUSE_S
        self._next_s = 0.0

    def is_short(self, now_s: float) -> bool:
        """Whether it is, or is tried again."""
        return now_s >= self._next_s

    def took(self, seconds: float, now_s: float) -> None:
        """One wait for it, which ended now. In a pause nothing is judged: what many connections
        waited for at once, when it began, would count as further trials.
        """
        if not self.is_short(now_s):
            return
        self._count += 1
        self._short += seconds <= SHORT_S
        if self._count < TRIAL:
            return
        if self._short * 2 >= TRIAL:
            self._pause_s = PAUSE_S
        else:
            self._next_s = now_s + self._pause_s
            self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)
        self._count = self._short = 0


class Gathering:
    """Tells one connection's reader when to go on."""

    __slots__ = ("_gave_up", "_storage", "_stored")

    def __init__(self, storage: StorageTime) -> None:
        self._storage = storage
        self._stored: trio.Event | None = None
        self._gave_up = False
        """What waits for storage was waited for in vain: not again for the same."""

    def is_due(self, pending_bytes: int) -> bool:
        """Whether what comes next is to wait for what isn't stored yet."""
        return (
            0 < pending_bytes < GATHERED_BYTES_MAX
            and not self._gave_up
            and self._storage.is_short(trio.current_time())
        )

    async def wait(self) -> None:
        """Return once all of it is stored, or after HOLD_S_MAX."""
        began_s = trio.current_time()
        self._stored = stored = trio.Event()
        with trio.move_on_after(HOLD_S_MAX):
            await stored.wait()
        self._stored = None
        self._gave_up = not stored.is_set()
        now_s = trio.current_time()
        self._storage.took(now_s - began_s, now_s)

    def all_stored(self) -> None:
        """Nothing of the connection waits for storage any more."""
        self._gave_up = False
        if self._stored is not None:
            self._stored.set()
