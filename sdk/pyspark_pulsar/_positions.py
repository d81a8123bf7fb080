"""Positions in topics and ranges of them: pure, small, picklable.

A range includes both ends. "After (l, e, b)" is the start (l, e, b + 1), "after all of entry (l,
e)" is (l, e + 1): after the last entry of a ledger, brokers continue with the next ledger.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

INDEX_MAX = (1 << 31) - 1
"""The largest batch index (an int32 on the wire)."""
ID_MAX = (1 << 63) - 1
"""The largest ledger or entry id (Java's long)."""
_TEXT = re.compile(r"(-?\d{1,19}):(-?\d{1,19})(?::(-?\d{1,10}))?")


class Position(NamedTuple):
    """The position of a message; `batch_index` -1 means the whole entry. Ordered. As text:
    "ledger:entry" or "ledger:entry:batch".
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1

    def __str__(self) -> str:
        tail = f":{self.batch_index}" if self.batch_index >= 0 else ""
        return f"{self.ledger_id}:{self.entry_id}{tail}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse a position. Raises ValueError."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not ledger:entry or ledger:entry:batch")
        found = cls(int(match[1]), int(match[2]), int(match[3] or -1))
        ids_fit = min(found[:2]) >= -1 and max(found[:2]) <= ID_MAX
        if not ids_fit or not -1 <= found.batch_index <= INDEX_MAX:
            raise ValueError(f"{text!r} has a number that is out of range for a message id")
        return found

    @property
    def entry(self) -> Position:
        """The whole entry."""
        return Position(self.ledger_id, self.entry_id)

    @property
    def after(self) -> Position:
        """The start of a range that has everything after this position."""
        if self.batch_index >= 0:
            return Position(self.ledger_id, self.entry_id, self.batch_index + 1)
        return Position(self.ledger_id, self.entry_id + 1)

    @property
    def before(self) -> Position:
        """The last position before a range that starts here."""
        if self.batch_index > 0:
            return Position(self.ledger_id, self.entry_id, self.batch_index - 1)
        return Position(self.ledger_id, self.entry_id - 1)

    @property
    def reach(self) -> tuple[int, int, int]:
        """The last message that this position covers, for comparing ends: a whole entry covers all
        of its messages.
        """
        index = INDEX_MAX if self.batch_index < 0 else self.batch_index
        return self.ledger_id, self.entry_id, index


BEGIN = Position(-1, -1)
"""Before every message; as a stream's offset: nothing has been read."""


@dataclass(frozen=True)
class Mark:
    """An entry of a topic, and its publish time (ms since 1970, by the producer's clock). As text:
    "ledger:entry@ms".
    """

    entry: Position
    published_ms: int

    def __str__(self) -> str:
        return f"{self.entry}@{self.published_ms}"

    @classmethod
    def parse(cls, text: str) -> Mark:
        """Parse a mark. Raises ValueError."""
        entry, _, published_ms = text.partition("@")
        return cls(Position.parse(entry), int(published_ms))


class TopicPartition(NamedTuple):
    """A partition, or a topic that isn't partitioned.

    `topic` is its full name, `parent` the partitioned topic's (or its own), `partition` its number
    (-1 if not a partition).
    """

    topic: str
    partition: int
    parent: str


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Messages of one topic from `start` to `stop`, both included. A start with batch index -1
    begins with the entry's first message, a stop with -1 has all of its entry.
    """

    topic: str
    partition: int
    start: Position
    stop: Position

    @property
    def is_empty(self) -> bool:
        """Whether it can contain no message."""
        return self.stop.reach < tuple(self.start)


class LedgerSpan(NamedTuple):
    """A ledger's entries in a topic, both ends included. Unless `is_sure`, the last entry is a
    guess, and only the first is known to exist.
    """

    ledger_id: int
    first_entry: int
    last_entry: int
    is_sure: bool = True

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self.last_entry - self.first_entry + 1
