"""A consumer's counters (spec SDK-11; ConsumerStats and ConsumerStatsRecorderImpl of the Java
client).

Totals are always counted, per entry. Rates are of the last whole interval of the client's
`stats_interval_s`, and cost nothing if it is 0.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import sub
from typing import NamedTuple

logger = logging.getLogger("geminga")


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """A consumer's counters, over all partitions. Bytes are those of uncompressed payloads; a
    message counts as received when the program takes it (in `geminga.blocking` and `geminga.aio`:
    when it is prefetched).

    Names with `num_` and `rate_` are of the last whole interval of `stats_interval_s`; 0 before the
    end of the first one.
    """

    num_msgs_received: int = 0
    num_bytes_received: int = 0
    num_receive_failed: int = 0
    """Entries that were damaged or undecodable."""
    num_acks_sent: int = 0
    """Acknowledged messages; a cumulative acknowledgement counts once."""
    num_acks_failed: int = 0
    """Entries with an error receipt; only with `ack_receipt_enabled`."""
    rate_msgs_received: float = 0.0
    """Messages a second."""
    rate_bytes_received: float = 0.0
    total_msgs_received: int = 0
    """Since the consumer's creation, as all totals."""
    total_bytes_received: int = 0
    total_receive_failed: int = 0
    total_acks_sent: int = 0
    total_acks_failed: int = 0
    msg_num_in_receiver_queue: int = 0
    """Messages waiting for the program."""
    partitions_connected: int = 0
    partition_stats: Mapping[str, ConsumerStatistics] = field(default_factory=dict)
    """Those of each topic or partition, by full name; empty if there is only one."""


class MeasuredPart(NamedTuple):
    """What metrics tell of one partition's consumer, which is `key`."""

    key: object
    topic: str
    statistics: ConsumerStatistics
    counts: ConsumerCounts
    waiting_bytes: int


class Snapshot(NamedTuple):
    """Counts at a moment, or between two of them."""

    messages: int = 0
    size_bytes: int = 0
    failed: int = 0
    acks: int = 0
    acks_failed: int = 0


class ConsumerCounts:
    """Counters of one partition's consumer."""

    __slots__ = ("_began", "_last", "_length_s", "acks", "acks_failed", "dead_letters", "failed",
                 "messages", "refused", "size_bytes", "timed_out")  # fmt: skip

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.failed = 0
        self.acks = 0
        self.acks_failed = 0
        self.refused = 0
        """Entries of which redelivery was asked for after a negative acknowledgement."""
        self.timed_out = 0
        """Those after the ack timeout."""
        self.dead_letters = 0
        self._began = Snapshot()
        self._last = Snapshot()
        self._length_s = 0.0

    def roll(self, length_s: float) -> None:
        """End the interval, and begin the next one."""
        now = Snapshot(self.messages, self.size_bytes, self.failed, self.acks, self.acks_failed)
        self._last = Snapshot(*map(sub, now, self._began))
        self._began, self._length_s = now, length_s

    def statistics(
        self, queued: int, taken: int, taken_bytes: int, connected: bool
    ) -> ConsumerStatistics:
        """The counters of this partition; `taken` messages are not counted yet."""
        last = self._last
        return ConsumerStatistics(
            num_msgs_received=last.messages,
            num_bytes_received=last.size_bytes,
            num_receive_failed=last.failed,
            num_acks_sent=last.acks,
            num_acks_failed=last.acks_failed,
            rate_msgs_received=last.messages / self._length_s if self._length_s else 0.0,
            rate_bytes_received=last.size_bytes / self._length_s if self._length_s else 0.0,
            total_msgs_received=self.messages + taken,
            total_bytes_received=self.size_bytes + taken_bytes,
            total_receive_failed=self.failed,
            total_acks_sent=self.acks,
            total_acks_failed=self.acks_failed,
            msg_num_in_receiver_queue=queued,
            partitions_connected=int(connected),
        )


def summed(partitions: Mapping[str, ConsumerStatistics]) -> ConsumerStatistics:
    """A consumer's counters, summed over its partitions."""
    if len(partitions) == 1:
        return next(iter(partitions.values()))
    numbers = [each.name for each in fields(ConsumerStatistics) if each.name != "partition_stats"]
    totals = {name: sum(getattr(part, name) for part in partitions.values()) for name in numbers}
    return ConsumerStatistics(**totals, partition_stats=partitions)


def log_interval(subscription: str, name: str, found: ConsumerStatistics) -> None:
    """Log the last interval unless it was idle."""
    if not found.num_msgs_received and not found.num_acks_sent and not found.num_receive_failed:
        return
    logger.info(
        "%s: consumer %s: %.1f msg/s, %.3f Mbit/s, %d acknowledged, %d failed, %d in the queue",
        subscription,
        name,
        found.rate_msgs_received,
        found.rate_bytes_received * 8e-6,
        found.num_acks_sent,
        found.num_receive_failed,
        found.msg_num_in_receiver_queue,
    )
