"""The record of SENDs that are appended together: it goes down with them, and comes back with the
answer (spec BR-24).
"""

from __future__ import annotations

from collections import deque

Sent = tuple[int, int, int]
"""(sequence id, highest sequence id, bytes) of an entry that waits for its receipt."""


class PublishRun:
    """What the receipts of one append need, in order; with deduplication also the duplicates that
    stand between its entries and behind them. The first `answered` of them have their answer.
    """

    __slots__ = ("answered", "sent", "size_bytes")

    def __init__(self, sent: list[Sent], size_bytes: int) -> None:
        self.sent = sent
        self.size_bytes = size_bytes
        self.answered = 0


class PendingRuns(deque[PublishRun]):
    """Runs of one producer that are not wholly answered, in order."""

    def next_sent(self) -> Sent:
        """Take the next SEND that has no answer."""
        sent = self.head
        self[0].answered += 1
        if self[0].answered == len(self[0].sent):
            self.popleft()
        return sent

    @property
    def head(self) -> Sent:
        """The next SEND that has no answer."""
        return self[0].sent[self[0].answered]
