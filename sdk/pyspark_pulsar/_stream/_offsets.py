"""A stream's offsets: what Spark keeps in its checkpoint (spec SP-05). Pure.

A JSON object of full topic name -> "ledger:entry" or "ledger:entry:batch", the last position that
was read; "-1:-1" if nothing was. Beside the topics stands the name of the query's subscription, if
it made one up: a restarted query finds it again by that. And the first offset that a query writes
has those that it began with: Spark doesn't keep them, and asks again for an initial offset, which
may be another by then, if the first micro-batch has to be read again. Spark tells offsets apart by
their text, so names are sorted. `marks` tell topics apart that have one name (`_topic_marks.py`),
and `anew` names those that turned out to be other ones, which are read from their beginning. What
versions wrote that had neither is read as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_pulsar._names import partition_of
from pyspark_pulsar._positions import BEGIN, Mark, Position, TopicRange
from pyspark_pulsar.errors import OffsetOutOfRange

SUBSCRIPTION = "subscription"
BEGAN = "began"
MARKS = "marks"
ANEW = "anew"
LAG = "lag"
"""Names that no topic has: full names have a scheme."""


@dataclass(frozen=True)
class Offsets:
    """The last position read of each topic, the subscription's name if the query made it up, and in
    the first offset of a query the positions after which it began. `anew` are the topics that are
    read from their beginning since they aren't those that were read before.
    """

    positions: Mapping[str, Position]
    subscription: str | None = None
    began: Mapping[str, Position] | None = None
    marks: Mapping[str, Mark] = field(default_factory=dict)
    anew: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Offsets:
        """From what Spark hands in. Raises OffsetOutOfRange for what no query has written."""
        topics = {**given}
        subscription = topics.pop(SUBSCRIPTION, None)
        began = topics.pop(BEGAN, None)
        if not (subscription is None or isinstance(subscription, str)):
            raise OffsetOutOfRange(SUBSCRIPTION, f"the checkpoint has {subscription!r} as its name")
        if not (began is None or isinstance(began, dict)):
            raise OffsetOutOfRange(BEGAN, f"the checkpoint has {began!r} as its offsets")
        marks = _marks(topics.pop(MARKS, {}))
        anew = topics.pop(ANEW, [])
        if not isinstance(anew, list):
            raise OffsetOutOfRange(ANEW, f"the checkpoint has {anew!r} as its topics")
        return cls(
            _positions(topics),
            subscription,
            None if began is None else _positions(began),
            marks,
            tuple(map(str, anew)),
        )

    def as_json(self) -> dict[str, object]:
        """As Spark keeps it."""
        found: dict[str, object] = {**_texts(self.positions)}
        if self.subscription is not None:
            found[SUBSCRIPTION] = self.subscription
        if self.began is not None:
            found[BEGAN] = _texts(self.began)
        if self.marks:
            found[MARKS] = {name: str(self.marks[name]) for name in sorted(self.marks)}
        if self.anew:
            found[ANEW] = sorted(self.anew)
        return found


def _texts(positions: Mapping[str, Position]) -> dict[str, str]:
    return {name: str(positions[name]) for name in sorted(positions)}


def _positions(given: Mapping[str, object]) -> dict[str, Position]:
    found: dict[str, Position] = {}
    for name, value in given.items():
        if not isinstance(value, str):
            raise OffsetOutOfRange(name, f"the checkpoint has {value!r} as its offset")
        try:
            found[name] = Position.parse(value)
        except ValueError as error:
            raise OffsetOutOfRange(name, f"the checkpoint's offset: {error}") from None
    return found


def _marks(given: object) -> dict[str, Mark]:
    try:
        if not isinstance(given, dict):
            raise ValueError("they are no JSON object")
        return {str(name): Mark.parse(str(text)) for name, text in given.items()}
    except ValueError as error:
        raise OffsetOutOfRange(MARKS, f"the checkpoint's marks: {error}") from None


def lag_of(read: Mapping[str, Position], ends: Mapping[str, Position]) -> dict[str, int]:
    """How many topics have more than was read of them, and how many entries at least: exact within
    a ledger, else those of the last ledger.
    """
    topics = entries = 0
    for topic, end in ends.items():
        at = read.get(topic, BEGIN)
        if end.reach > at.reach:
            topics += 1
            is_same = end.ledger_id == at.ledger_id
            entries += max(1, end.entry_id - at.entry_id) if is_same else end.entry_id + 1
    return {"topics": topics, "entries": entries}


def ranges(start: Offsets, end: Offsets) -> list[TopicRange]:
    """What a micro-batch reads. A topic that has no start is read from its beginning, and so is one
    that ends before it started: it is another topic by the same name.
    """
    found = []
    for topic, stop in end.positions.items():
        last = start.positions.get(topic, BEGIN)
        is_other = topic in end.anew or stop.reach < last.reach
        if stop == BEGIN or (last == stop and not is_other):
            continue
        first = BEGIN if last == BEGIN or is_other else last.after
        found.append(TopicRange(topic, partition_of(topic)[1], first, stop))
    return found
