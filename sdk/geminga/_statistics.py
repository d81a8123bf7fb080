"""Counts of what a producer did (spec SDK-11; ProducerStats of the Java client)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """A producer's counts since it was made, over all partitions. Rates are the difference of two
    of these.

    Bytes are those of payloads, before compression. What was handed over is what is acknowledged,
    failed and pending together.
    """

    messages_acknowledged: int
    bytes_acknowledged: int
    entries_acknowledged: int
    """Batches and single messages; chunks count each."""
    messages_failed: int
    messages_pending: int
    bytes_pending: int
    partitions_connected: int


class Counts:
    """The same while it grows, of one partition."""

    __slots__ = ("entries", "failed", "messages", "size_bytes")

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.entries = 0
        self.failed = 0

    def settled(self, messages: int, size_bytes: int, has_failed: bool) -> None:
        """An entry has its receipt, or has failed."""
        if has_failed:
            self.failed += messages
        else:
            self.messages += messages
            self.size_bytes += size_bytes
            self.entries += 1
