"""Reads ahead on the driver how large the next entries are, for limits of micro-batches (spec
SP-05). What comes is counted and let go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import geminga.blocking
from pyspark_pulsar._admission import Head
from pyspark_pulsar._offsets import Position, TopicRange
from pyspark_pulsar._open import open_reader
from pyspark_pulsar._options import ReadOptions
from pyspark_pulsar._throttle import Throttle
from pyspark_pulsar._walk import Walk

QUEUE_MAX = 200
"""Messages that the reader of one topic prefetches."""
READ_BYTES_MAX = 256 * 1024
"""Bytes of payload that are held of one topic at once, or one entry."""


def heads_of(
    readers: ExitStack,
    client: geminga.blocking.Client,
    options: ReadOptions,
    wanted: TopicRange,
) -> Iterator[Head]:
    """The entries of a range, one after the other as they are asked for; the reader is closed with
    `readers`. Raises GemingaError.
    """
    queue_size = min(QUEUE_MAX, options.receiver_queue_size)
    reader = readers.enter_context(
        open_reader(client, options, wanted.topic, wanted.start, queue_size=queue_size)
    )
    walk = Walk(
        reader, wanted, Throttle(None, None), options.poll_timeout_s, bytes_max=READ_BYTES_MAX
    )
    for entry, first, stop in walk.pieces():
        size_bytes = entry.size_bytes * (stop - first) // len(entry.indexes)
        position = Position(entry.ledger_id, entry.entry_id)
        yield Head(position, entry.indexes[first:stop], size_bytes)
