"""What the loads of every client share: options, clocks, latencies, and the count of messages."""

from __future__ import annotations

import argparse
import os
import resource
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import geminga
import geminga.aio
import geminga.blocking
from geminga.options import ConsumerKeywords, ProducerKeywords

STAMP = struct.Struct(">d")
RECEIVE_TIMEOUT_S = 30.0
PENDING_MAX = 10_000
"""In-flight bound of every client in messages, so that none of them waits for round trips."""
QUEUE_SIZE = 1000
BURST = 5
"""Messages that a paced load hands over at once."""
SUBSCRIPTION = "sdk-load"
BATCHING_TYPES = (geminga.BatchingType.DEFAULT, geminga.BatchingType.KEY_BASED)

Producer = geminga.Producer | geminga.aio.Producer
Consumer = geminga.Consumer | geminga.aio.Consumer
Client = geminga.Client | geminga.aio.Client
Figures = dict[str, float]


def arguments() -> argparse.Namespace:
    """What to do; the same for every client."""
    parser = argparse.ArgumentParser(description=__doc__)
    modes = ["produce", "forget", "consume", "consume-many", "ping", "paced", "many"]
    parser.add_argument("mode", choices=modes)
    parser.add_argument("--face", choices=["trio", "aio", "blocking", "official"], default="trio")
    parser.add_argument("--url", default="")
    parser.add_argument("--topic", default="")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batching", type=int, default=1)
    parser.add_argument("--keys", type=int, default=0)
    parser.add_argument("--keyed", type=int, default=0, help="a batch is of one key")
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--type", default="Exclusive")
    return parser.parse_args()


class Clock:
    """Wall and processor time of a stretch of work, over all threads of the process."""

    def __init__(self) -> None:
        self._cpu_s = self._used()
        self._began = time.perf_counter()

    @staticmethod
    def _used() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def figures(self, done: int, wanted: int, failed: int = 0) -> dict[str, float]:
        """Rate and CPU seconds; what is missing counts as failed."""
        seconds = time.perf_counter() - self._began
        cpu_us = (self._used() - self._cpu_s) * 1e6
        return {
            "seconds": seconds,
            "per_s": done / seconds,
            "client_cpu_us": cpu_us / max(1, done),
            "failed": failed + wanted - done,
        }


def rss_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def latencies(times_s: Sequence[float]) -> dict[str, float]:
    """Percentiles in ms, without the first tenth."""
    settled = sorted(times_s[len(times_s) // 10 :])
    return {
        "ms_p50": settled[len(settled) // 2] * 1000,
        "ms_p99": settled[len(settled) * 99 // 100] * 1000,
        "failed": 0,
    }


def producer_options(options: argparse.Namespace) -> ProducerKeywords:
    """Batches of 1000 messages, 128 KiB or 1 ms, as every client has them here."""
    return {
        "batching_enabled": bool(options.batching),
        "batching_max_messages": 1000,
        "batching_max_bytes": 128 * 1024,
        "batching_max_publish_delay_s": 0.001,
        "batching_type": BATCHING_TYPES[bool(options.keyed)],
        "max_pending_messages": PENDING_MAX,
    }


def consumer_options(options: argparse.Namespace) -> ConsumerKeywords:
    """From the oldest message on."""
    return {
        "consumer_type": geminga.ConsumerType[options.type.upper()],
        "initial_position": geminga.InitialPosition.EARLIEST,
        "receiver_queue_size": QUEUE_SIZE,
    }


def keys(options: argparse.Namespace) -> list[str]:
    """Partition keys that messages take in turn."""
    return [f"key-{number}" for number in range(options.keys)]


class Receipts:
    """Counts messages in a callback for each, as a program that looks at every receipt does."""

    def __init__(self) -> None:
        self.stored = 0
        self.failed = 0

    def __call__(self, receipt: geminga.Receipt) -> None:
        if receipt.error is None:
            self.stored += 1
        else:
            self.failed += 1


def stored(statistics: geminga.ProducerStatistics, clock: Clock, count: int) -> Figures:
    """What the broker has confirmed."""
    return clock.figures(statistics.total_acks_received, count, statistics.total_send_failed)
