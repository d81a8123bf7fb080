"""The messages that a query with filters must read (spec SP-04). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pyspark_pulsar._positions import ID_MAX, Position, TopicRange

IDS_MAX = 64
"""Message ids that are read one by one; of more ids, everything from the first to the last is read.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Which integers are wanted; unlimited by default."""

    least: int = -ID_MAX
    most: int = ID_MAX
    among: frozenset[int] | None = None

    def allow(self, value: int) -> bool:
        """Whether `value` is wanted."""
        return self.least <= value <= self.most and (self.among is None or value in self.among)

    def met(self, other: Limits) -> Limits:
        """The intersection of both, as one interval."""
        sets = [each for each in (self.among, other.among) if each is not None]
        among = frozenset.intersection(*sets) if sets else None
        least, most = max(self.least, other.least), min(self.most, other.most)
        if among is not None:
            among = frozenset(each for each in among if least <= each <= most)
            least, most = min(among, default=1), max(among, default=0)
        return Limits(least, most, among)

    @property
    def are_wide(self) -> bool:
        """Whether there is no limit."""
        return self == Limits()


@dataclass(frozen=True)
class Narrowing:
    """The messages to read with the filters; plain data that pickles. `keys` are values of `__key`:
    a task may skip messages with other keys before it decodes their values.
    """

    topics: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    ids: frozenset[Position] | None = None
    partitions: Limits = field(default_factory=Limits)
    ledgers: Limits = field(default_factory=Limits)
    entries: Limits = field(default_factory=Limits)
    publish_ms: Limits = field(default_factory=Limits)

    def allows(self, topic: str, partition: int) -> bool:
        """Whether this topic has to be read."""
        return (self.topics is None or topic in self.topics) and self.partitions.allow(partition)

    def applied(self, whole: TopicRange) -> list[TopicRange]:
        """The parts of a range that have to be read, in order. Ignores topics and publish times."""
        low, high = self.ledgers.least, self.ledgers.most
        if low > high or self.entries.least > self.entries.most:
            return []
        first, last = Position(max(low, -1), 0 if low >= 0 else -1), Position(high, ID_MAX)
        if low == high:
            first = Position(low, max(self.entries.least, 0))
            last = Position(high, self.entries.most)
        limited = within(whole, first, last)
        if self.ids is None:
            return [] if limited.is_empty else [limited]
        ids = sorted(self.ids)
        ends = [(each, each) for each in ids]
        if len(ids) > IDS_MAX:
            ends = [(ids[0], ids[-1].entry)]
        parts = [within(limited, start, stop) for start, stop in _joined(ends)]
        return [part for part in parts if not part.is_empty]


def within(whole: TopicRange, first: Position, last: Position) -> TopicRange:
    """The part of a range from `first` to `last`, both included."""
    stop = last if last.reach < whole.stop.reach else whole.stop
    return replace(whole, start=max(whole.start, first), stop=stop)


def _joined(ends: Iterable[tuple[Position, Position]]) -> list[tuple[Position, Position]]:
    """Sorted intervals, merged where they overlap: no message is read twice."""
    found: list[tuple[Position, Position]] = []
    for start, stop in ends:
        if found and tuple(start) <= found[-1][1].reach:
            start, before = found.pop()
            stop = max(stop, before, key=lambda each: each.reach)
        found.append((start, stop))
    return found
