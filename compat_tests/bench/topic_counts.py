"""What loads over many topics count, whichever client they use."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


class TopicCounts:
    """One topic's messages, which are numbers from 0 on."""

    def __init__(self) -> None:
        self.sent = 0
        self.receipts = 0
        self.failed = 0
        self.longest_s = 0.0
        """The longest time from a message to its receipt."""
        self.received: set[int] = set()
        self.again = 0
        self.disorder = 0
        self._highest = -1

    def settled(self, took_s: float, *, is_stored: bool) -> None:
        """A message has its receipt, or failed."""
        self.longest_s = max(self.longest_s, took_s)
        if is_stored:
            self.receipts += 1
        else:
            self.failed += 1

    def came(self, number: int) -> None:
        """A consumer got that message."""
        if number in self.received:
            self.again += 1
        elif number < self._highest:
            self.disorder += 1
        self.received.add(number)
        self._highest = max(self._highest, number)


def result(topics: Sequence[TopicCounts]) -> dict[str, float]:
    """The longest time between a message and its receipt, over all topics and of the median one;
    what became of the messages.
    """
    waits = sorted(topic.longest_s for topic in topics)
    return {
        "longest_s": waits[-1],
        "median_s": waits[len(waits) // 2],
        "sent": sum(topic.sent for topic in topics),
        "failed": sum(topic.failed for topic in topics),
        "lost": sum(max(0, topic.receipts - len(topic.received)) for topic in topics),
        "again": sum(topic.again for topic in topics),
        "disorder": sum(topic.disorder for topic in topics),
    }


def arguments(about: str | None) -> argparse.ArgumentParser:
    """A parser of what such a load is told."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--url", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--topics", type=int, required=True)
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--duration-s", type=float, required=True)
    return parser
