"""Detects topics that were deleted and created again (spec SP-05, decision 18).

Positions aren't enough: a new cluster numbers its ledgers from the same start, so a new topic with
the same name may have the same positions. So the offsets keep a mark for each topic: one message of
the offset's ledger, and its publish time. As long as the ledger exists, so does the message.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping

import geminga.blocking
from geminga import GemingaError, TopicNotFoundError
from pyspark_pulsar._clients import for_each
from pyspark_pulsar._options import ReadOptions
from pyspark_pulsar._plan._topics import TopicProbe
from pyspark_pulsar._positions import BEGIN, Mark, Position

logger = logging.getLogger("pyspark_pulsar")

LOOK_EVERY_S = 60.0
"""How often a running query checks marks; a starting query checks at once."""


class Marks:
    """Makes and checks the marks of one query's topics."""

    def __init__(
        self, client: geminga.blocking.Client, options: ReadOptions, clock: Callable[[], float]
    ) -> None:
        self._probe = TopicProbe(client, options.subscription_role_prefix)
        self._clock = clock
        self._looked_s = -math.inf

    def remade(self, marks: Mapping[str, Mark]) -> list[str]:
        """The topics with another message at their mark; none if marks were checked recently.
        Raises GemingaError.
        """
        if self._clock() - self._looked_s < LOOK_EVERY_S:
            return []
        found = for_each(lambda item: self._is_other(*item), list(marks.items()))
        self._looked_s = self._clock()
        return [topic for topic, is_other in zip(marks, found, strict=True) if is_other]

    def _is_other(self, topic: str, mark: Mark) -> bool:
        now = self._at(topic, mark.entry)
        # A missing message proves nothing: its ledger may have been trimmed.
        return now is not None and now != mark

    def renewed(
        self, marks: Mapping[str, Mark], ends: Mapping[str, Position], anew: Collection[str]
    ) -> dict[str, Mark]:
        """The marks for offsets at these positions: topics in a new ledger, and those in `anew`,
        get a mark of their last message. Marks that can't be made now are left out, and tried again
        later.
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
            logger.info("%s: can't read the message to mark for now: %s", topic, error)
            return None

    def _at(self, topic: str, entry: Position) -> Mark | None:
        try:
            found = self._probe.entry_at(topic, entry)
        except TopicNotFoundError:
            return None
        return None if found is None else Mark(entry, found.publish_time_ms)
