"""The record of SENDs that are appended together: passed to storage, and back with the result (spec
BR-24).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import overload

Sent = tuple[int, int, int]
"""(sequence id, highest sequence id, bytes) of an entry without receipt."""


class JoinedSents(Sequence[Sent]):
    """The data for receipts of consecutive sequence ids: the first id, and the sizes."""

    __slots__ = ("first", "sizes")

    def __init__(self, first: int, sizes: list[int]) -> None:
        self.first = first
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> Sent: ...

    @overload
    def __getitem__(self, index: slice) -> list[Sent]: ...

    def __getitem__(self, index: int | slice) -> Sent | list[Sent]:
        ids = range(self.first, self.first + len(self.sizes))[index]
        if isinstance(ids, range):
            return [self[each - self.first] for each in ids]
        return ids, 0, self.sizes[ids - self.first]


class PublishRun:
    """The data for the receipts of one append, in order; with deduplication also for duplicates
    between and after its entries. The first `answered` of them have receipts.
    """

    __slots__ = ("answered", "sent", "size_bytes")

    def __init__(self, sent: Sequence[Sent], size_bytes: int) -> None:
        self.sent = sent
        self.size_bytes = size_bytes
        self.answered = 0


class PendingRuns(deque[PublishRun]):
    """Runs of one producer without all receipts, in order."""

    def next_sent(self) -> Sent:
        """Take the next SEND without receipt."""
        sent = self.head
        self[0].answered += 1
        if self[0].answered == len(self[0].sent):
            self.popleft()
        return sent

    @property
    def head(self) -> Sent:
        """The next SEND without receipt."""
        return self[0].sent[self[0].answered]
