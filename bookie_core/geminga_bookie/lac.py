"""The LAC (last add confirmed) in packets, as a bookie sees it, and waiters for a ledger's LAC."""

from __future__ import annotations

import trio

PACKET_HEADER_BYTES = 32
"""Ledger id, entry id, LAC and length, eight bytes each, as `DigestManager` writes them."""

NO_LAC = -1


def packet_lac(packet: bytes) -> int:
    """The LAC in an entry's packet; -1 if the packet is too short."""
    if len(packet) < PACKET_HEADER_BYTES:
        return NO_LAC
    return int.from_bytes(packet[16:24], "big", signed=True)


def explicit_lac(packet: bytes) -> int:
    """The LAC in the packet of an explicit one; -1 if the packet is empty."""
    return int.from_bytes(packet[8:16], "big", signed=True) if packet else NO_LAC


class LacWaiters:
    """Long polls by ledger; `wake` wakes those of one ledger."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[trio.Event, int]] = {}

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._waiting

    def wake(self, ledger_id: int) -> None:
        """The ledger's LAC changed, or it was deleted: wake its waiters."""
        waiting = self._waiting.pop(ledger_id, None)
        if waiting is not None:
            waiting[0].set()

    async def park(self, ledger_id: int) -> None:
        """Sleep until the next `wake` of that ledger. The last waiter removes its entry."""
        event, count = self._waiting.get(ledger_id, (trio.Event(), 0))
        self._waiting[ledger_id] = (event, count + 1)
        try:
            await event.wait()
        finally:
            current = self._waiting.get(ledger_id)
            if current is not None and current[0] is event:
                if current[1] == 1:
                    del self._waiting[ledger_id]
                else:
                    self._waiting[ledger_id] = (event, current[1] - 1)
