"""A stream's offsets: what Spark keeps in its checkpoint (spec SP-05). Pure.

A JSON object of full topic name -> "ledger:entry" or "ledger:entry:batch", the last position that
was read; "-1:-1" if nothing was. Beside the topics stands the name of the query's subscription, if
it made one up: a restarted query finds it again by that. Spark tells offsets apart by their text,
so names are sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_pulsar._names import partition_of
from pyspark_pulsar._offsets import BEGIN, Position, TopicRange
from pyspark_pulsar.errors import OffsetOutOfRange

SUBSCRIPTION = "subscription"
"""The name that no topic has: full names have a scheme."""


@dataclass(frozen=True)
class Offsets:
    """The last position read of each topic, and the subscription's name if the query made it up."""

    positions: Mapping[str, Position]
    subscription: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Offsets:
        """From what Spark hands in. Raises OffsetOutOfRange for what no query has written."""
        positions: dict[str, Position] = {}
        subscription: str | None = None
        for name, value in given.items():
            if not isinstance(value, str):
                raise OffsetOutOfRange(name, f"the checkpoint has {value!r} as its offset")
            if name == SUBSCRIPTION:
                subscription = value
                continue
            try:
                positions[name] = Position.parse(value)
            except ValueError as error:
                raise OffsetOutOfRange(name, f"the checkpoint's offset: {error}") from None
        return cls(positions, subscription)

    def as_json(self) -> dict[str, str]:
        """As Spark keeps it."""
        found = {name: str(self.positions[name]) for name in sorted(self.positions)}
        if self.subscription is not None:
            found[SUBSCRIPTION] = self.subscription
        return found


def ranges(start: Offsets, end: Offsets) -> list[TopicRange]:
    """What a micro-batch reads. A topic that has no start is read from its beginning, and so is one
    that ends before it started: it is another topic by the same name.
    """
    found = []
    for topic, stop in end.positions.items():
        last = start.positions.get(topic, BEGIN)
        if last == stop or stop == BEGIN:
            continue
        first = BEGIN if last == BEGIN or stop.reach < last.reach else last.after
        found.append(TopicRange(topic, partition_of(topic)[1], first, stop))
    return found
