"""Finds the topics of a stream, which may appear and vanish while it runs (spec SP-05)."""

from __future__ import annotations

import math
from collections.abc import Callable

import geminga.blocking
from pyspark_pulsar._clients import for_each
from pyspark_pulsar._options import ReadOptions, TopicSelection
from pyspark_pulsar._plan._topics import expand
from pyspark_pulsar._positions import TopicPartition
from pyspark_pulsar.errors import TopicMissing


class Discovery:
    """The partitions of one query."""

    def __init__(
        self, client: geminga.blocking.Client, options: ReadOptions, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self.topics: dict[str, TopicPartition] = {}
        """By full name, as last seen."""
        self._looked_s = -math.inf

    def look(self, *, strictly: bool = False) -> dict[str, TopicPartition]:
        """All current partitions. A pattern is matched again every `discoveryIntervalMs`; new
        partitions and deleted topics are seen at once. Raises TopicMissing if `strictly`, but not
        for a pattern: its first topic may be created later.
        """
        selection = self._options.topics
        now_s = self._clock()
        if selection.pattern is None:
            parts = self._named(selection.names, strictly=strictly)
        elif strictly or now_s - self._looked_s >= self._options.discovery_interval_s:
            parts = self._matching(strictly=strictly)
            self._looked_s = now_s
        else:
            parents = dict.fromkeys(each.parent for each in self.topics.values())
            parts = self._named(tuple(parents), strictly=False)
        self.topics = {each.topic: each for each in parts}
        return self.topics

    def _matching(self, *, strictly: bool) -> list[TopicPartition]:
        selection = self._options.topics
        try:
            return expand(self._client, selection)
        except TopicMissing as error:
            # A topic may be deleted right after it matched; the others remain.
            if strictly and error.topic != selection.pattern:
                raise
            return []

    def _named(self, names: tuple[str, ...], *, strictly: bool) -> list[TopicPartition]:
        def find(name: str) -> list[TopicPartition]:
            try:
                return expand(self._client, TopicSelection(option, (name,)))
            except TopicMissing:
                if strictly:
                    raise
                return []

        option = self._options.topics.option
        return [each for found in for_each(find, names) for each in found]
