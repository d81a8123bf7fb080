"""Limits of micro-batches (spec SP-05). Reads ahead on the driver to learn the sizes of the next
entries, which are counted and dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

import geminga.blocking
from geminga import TopicNotFoundError
from pyspark_pulsar._options import ReadOptions
from pyspark_pulsar._plan._topics import open_reader
from pyspark_pulsar._positions import Position, TopicRange
from pyspark_pulsar._scan._pace import Prefetch, Throttle
from pyspark_pulsar._scan._range_reader import RangeReader
from pyspark_pulsar._stream._admission import Admitted, Head, Limit, admit

QUEUE_MAX = 2000
"""Messages that the reader of one topic prefetches at most."""
AHEAD_BYTES_MAX = 1024 * 1024
"""Bytes of payload prefetched of one topic, about; at least one entry."""
READ_BYTES_MAX = 256 * 1024
"""Bytes of payload read of one topic at once; at least one entry."""


def probe_entries(
    client: geminga.blocking.Client, options: ReadOptions, wanted: TopicRange
) -> Generator[Head]:
    """The entries of a range, read lazily; none if the topic doesn't exist, which the task reports.
    The caller closes the generator. Raises GemingaError.
    """
    with suppress(TopicNotFoundError):
        yield from _probe_entries(client, options, wanted)


def _probe_entries(
    client: geminga.blocking.Client, options: ReadOptions, wanted: TopicRange
) -> Generator[Head]:
    prefetch = Prefetch(min(QUEUE_MAX, options.receiver_queue_size), AHEAD_BYTES_MAX)
    at: Position | None = wanted.start
    while at is not None:
        left = replace(wanted, start=at)
        at = None
        with open_reader(
            client, options, wanted.topic, left.start, queue_size=prefetch.queue_size
        ) as reader:
            throttle = Throttle(None, None)
            range_reader = RangeReader(
                reader, left, throttle, options.poll_timeout_s, bytes_max=READ_BYTES_MAX
            )
            for entry, first, stop in range_reader.slices():
                size_bytes = entry.size_bytes
                place = Position(entry.ledger_id, entry.entry_id)
                share = size_bytes * (stop - first) // len(entry.indexes)
                yield Head(place, entry.indexes[first:stop], share)
                is_last = place >= wanted.stop.entry
                if not is_last and prefetch.took(len(entry.indexes), size_bytes, more=True):
                    at = place.after
                    break


class Admission:
    """How much of its topics one query takes at a time."""

    def __init__(
        self, client: geminga.blocking.Client, options: ReadOptions, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self._planned_s = -math.inf
        self._turn = 0

    def planned(self) -> None:
        """A micro-batch that isn't empty was planned."""
        self._turn += 1
        self._planned_s = self._clock()

    def is_too_little(self, wanted: Sequence[TopicRange]) -> bool:
        """Whether to wait for more messages."""
        least = self._options.min_messages_per_trigger
        waited_s = self._clock() - self._planned_s
        if least is None or waited_s >= self._options.max_trigger_delay_s:
            return False
        return self._admit(wanted, Limit(messages=least)).messages < least

    def taken(self, wanted: Sequence[TopicRange]) -> Mapping[str, Position] | None:
        """The ends within the limits, of topics of which something is taken; None without limits.
        Raises GemingaError.
        """
        options = self._options
        limit = Limit(
            options.max_messages_per_trigger or math.inf, options.max_bytes_per_trigger or math.inf
        )
        return None if limit.is_none else self._admit(wanted, limit).ends

    def _admit(self, wanted: Sequence[TopicRange], limit: Limit) -> Admitted:
        with ExitStack() as readers:
            queues = {}
            for each in wanted:
                heads = closing(probe_entries(self._client, self._options, each))
                queues[each.topic] = readers.enter_context(heads), each.stop
            return admit(queues, limit, turn=self._turn)
