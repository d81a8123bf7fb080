"""One round of reads of consecutive entries, whose answers come in any order: pure."""

from __future__ import annotations

from geminga_bookie.errors import BookkeeperError


class RangeRead:
    """Keeps the packets from the first entry on that fit into `bytes_max`, and drops others when
    they come: it holds twice that, and one packet more.
    """

    __slots__ = (
        "_bytes_max", "_early", "_early_bytes", "_end", "_first_always", "bytes", "error",
        "packets",
    )  # fmt: skip

    def __init__(self, count: int, bytes_max: int, *, first_always: bool) -> None:
        """`first_always`: the first packet is taken also if it alone is above the bound."""
        self.packets: list[bytes] = []
        self.bytes = 0
        self.error: BookkeeperError | None = None
        """Why there is no first packet."""
        self._bytes_max = bytes_max
        self._first_always = first_always
        self._early: dict[int, bytes] = {}
        self._early_bytes = 0
        self._end = count

    @property
    def is_done(self) -> bool:
        """Whether no further answer matters."""
        return len(self.packets) >= self._end

    def fail(self, at: int, error: BookkeeperError) -> None:
        """There is no entry `at`."""
        if at == 0 and not self.packets:
            self.error = error
        self._stop(at)

    def add(self, at: int, packet: bytes) -> None:
        """Entry `at` came."""
        if at < len(self.packets) or at >= self._end or at in self._early:
            return
        if at > len(self.packets):
            if self._early_bytes + len(packet) > self._bytes_max:
                self._stop(at)
                return
            self._early[at] = packet
            self._early_bytes += len(packet)
            return
        self._take(packet)
        while not self.is_done and (found := self._early.pop(len(self.packets), None)) is not None:
            self._early_bytes -= len(found)
            self._take(found)

    def _take(self, packet: bytes) -> None:
        is_first = not self.packets and self._first_always
        if self.bytes + len(packet) > self._bytes_max and not is_first:
            self._stop(len(self.packets))
            return
        self.packets.append(packet)
        self.bytes += len(packet)

    def _stop(self, at: int) -> None:
        self._end = min(self._end, at)
        for dropped in [each for each in self._early if each >= self._end]:
            self._early_bytes -= len(self._early.pop(dropped))
