"""Whether a topic is still the one that a query has read (spec SP-05, decision 18).

Positions don't tell: a cluster that is set up anew counts its ledgers from the same number on, so
that another topic of the same name may have the same positions. So the offsets keep of each topic
a mark: one message of the ledger that the offset is in, and when that was published. As long as the
ledger is there, so is the message.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping

import geminga.blocking
from geminga import GemingaError, TopicNotFound
from pyspark_pulsar._clients import for_each
from pyspark_pulsar._options import ReadOptions
from pyspark_pulsar._plan._topics import Looks, entry_at
from pyspark_pulsar._positions import BEGIN, Mark, Position

logger = logging.getLogger("pyspark_pulsar")

LOOK_EVERY_S = 60.0
"""How often marks are looked at while a query runs; a query that begins looks at once."""


class Marks:
    """Makes and looks at the marks of one query's topics."""

    def __init__(
        self, client: geminga.blocking.Client, options: ReadOptions, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._looks = Looks(options.subscription_role_prefix)
        self._clock = clock
        self._looked_s = -math.inf

    def remade(self, marks: Mapping[str, Mark]) -> list[str]:
        """The topics that have another message where their mark is; none if it was looked lately.
        Raises GemingaError.
        """
        if self._clock() - self._looked_s < LOOK_EVERY_S:
            return []
        found = for_each(lambda item: self._is_other(*item), list(marks.items()))
        self._looked_s = self._clock()
        return [topic for topic, is_other in zip(marks, found, strict=True) if is_other]

    def _is_other(self, topic: str, mark: Mark) -> bool:
        now = self._at(topic, mark.entry)
        # A message that is gone says nothing: its ledger may have been trimmed.
        return now is not None and now != mark

    def renewed(
        self, marks: Mapping[str, Mark], ends: Mapping[str, Position], anew: Collection[str]
    ) -> dict[str, Mark]:
        """The marks for offsets at these positions: where a topic went on to another ledger, or is
        another one, that of its last message. What can't be had now is left out, and tried again.
        """
        found = {
            topic: mark
            for topic, mark in marks.items()
            if topic in ends and topic not in anew and mark.entry.ledger_id == ends[topic].ledger_id
        }
        wanted = [topic for topic, at in ends.items() if at != BEGIN and topic not in found]
        made = for_each(lambda topic: self._made(topic, ends[topic].entry), wanted)
        found.update((t, mark) for t, mark in zip(wanted, made, strict=True) if mark is not None)
        return found

    def _made(self, topic: str, entry: Position) -> Mark | None:
        try:
            return self._at(topic, entry)
        except GemingaError as error:
            logger.info("%s: no mark for now: %s", topic, error)
            return None

    def _at(self, topic: str, entry: Position) -> Mark | None:
        try:
            found = entry_at(self._client, topic, entry, self._looks)
        except TopicNotFound:
            return None
        return None if found is None else Mark(entry, found.publish_timestamp)
