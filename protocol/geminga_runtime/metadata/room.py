"""A bound of requests under way, by number and bytes."""

from __future__ import annotations

import trio


class Room:
    """Bounds requests under way by number and bytes; callers wait in turn. Those that get room in
    one turn of the loop go on in any order.
    """

    def __init__(self, requests_max: int, bytes_max: int) -> None:
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self.requests = 0
        self.bytes = 0
        self._waiting: dict[trio.lowlevel.Task, int] = {}
        """Sizes in bytes, in the order in which they came."""

    def take(self, size_bytes: int) -> bool:
        """Take room if there is some and nobody waits; returns whether it did."""
        if self._waiting or not self._has_room(size_bytes):
            return False
        self._take(size_bytes)
        return True

    async def acquire(self, size_bytes: int) -> None:
        """Wait for room; at once if there is some, which is no checkpoint: what follows must be
        one. A request larger than all of it waits until it is alone.
        """
        if self.take(size_bytes):
            return
        task = trio.lowlevel.current_task()
        self._waiting[task] = size_bytes

        def abort(raise_cancel: object) -> trio.lowlevel.Abort:
            del self._waiting[task]
            self._admit()  # smaller ones may have waited behind it
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def release(self, size_bytes: int) -> None:
        """Give room back."""
        self.requests -= 1
        self.bytes -= size_bytes
        self._admit()

    def _admit(self) -> None:
        """Give room to all that wait and have it now: one each turn would be one request a turn."""
        while self._waiting:
            task, size_bytes = next(iter(self._waiting.items()))
            if not self._has_room(size_bytes):
                return
            del self._waiting[task]
            self._take(size_bytes)
            trio.lowlevel.reschedule(task)

    def _has_room(self, size_bytes: int) -> bool:
        return not self.requests or (
            self.requests < self._requests_max and self.bytes + size_bytes <= self._bytes_max
        )

    def _take(self, size_bytes: int) -> None:
        self.requests += 1
        self.bytes += size_bytes
