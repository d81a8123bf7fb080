"""A stream's offsets, as stored in Spark's checkpoint (spec SP-05). Pure.

A JSON object of full topic name -> "ledger:entry" or "ledger:entry:batch", the last position read;
"-1:-1" if none. It also has the name of the query's subscription, if generated, by which a
restarted query finds it. The first offset of a query also contains its start: Spark doesn't keep
that, and asks for the initial offset again (which may have changed) if the first micro-batch has to
be read again. Spark compares offsets as text, so names are sorted. `marks` detect topics that were
deleted and created again (`_topic_marks.py`); `anew` names those, which are read from their
beginning. Offsets of older versions without either can be read.
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
"""Names that no topic can have: full names have a scheme."""


@dataclass(frozen=True)
class Offsets:
    """The last position read of each topic, the subscription's name if generated, and in the first
    offset of a query the positions after which it started. `anew` are the topics read from their
    beginning because they were deleted and created again.
    """

    positions: Mapping[str, Position]
    subscription: str | None = None
    began: Mapping[str, Position] | None = None
    marks: Mapping[str, Mark] = field(default_factory=dict)
    anew: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Offsets:
        """Parse what Spark passes. Raises OffsetOutOfRange if no query can have written it."""
        topics = {**given}
        subscription = topics.pop(SUBSCRIPTION, None)
        began = topics.pop(BEGAN, None)
        if not (subscription is None or isinstance(subscription, str)):
            raise OffsetOutOfRange(SUBSCRIPTION, f"the checkpoint's name is {subscription!r}")
        if not (began is None or isinstance(began, dict)):
            raise OffsetOutOfRange(BEGAN, f"the checkpoint has invalid offsets: {began!r}")
        marks = _marks(topics.pop(MARKS, {}))
        anew = topics.pop(ANEW, [])
        if not isinstance(anew, list):
            raise OffsetOutOfRange(ANEW, f"the checkpoint has invalid topics: {anew!r}")
        return cls(
            _positions(topics),
            subscription,
            None if began is None else _positions(began),
            marks,
            tuple(map(str, anew)),
        )

    def as_json(self) -> dict[str, object]:
        """As Spark stores it."""
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
            raise OffsetOutOfRange(name, f"the checkpoint has an invalid offset: {value!r}")
        try:
            found[name] = Position.parse(value)
        except ValueError as error:
            raise OffsetOutOfRange(name, f"the checkpoint's offset: {error}") from None
    return found


def _marks(given: object) -> dict[str, Mark]:
    try:
        if not isinstance(given, dict):
            raise ValueError("not a JSON object")
        return {str(name): Mark.parse(str(text)) for name, text in given.items()}
    except ValueError as error:
        raise OffsetOutOfRange(MARKS, f"the checkpoint's marks: {error}") from None


def lag_of(read: Mapping[str, Position], ends: Mapping[str, Position]) -> dict[str, int]:
    """The number of topics with unread messages, and a lower bound of unread entries: exact within
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
    """The ranges of a micro-batch. A topic without a start is read from its beginning, as is one
    that ends before its start: it was deleted and created again.
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
