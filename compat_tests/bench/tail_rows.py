"""Rows about what must not be felt: a reader of old entries, and messages that wait."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from compat_tests.bench.model import Measure, Row
from compat_tests.bench.side import MB, Side, settle

_RATE = 5000
_STARTING_S = 3


def tail_beside_catch_up(side: Side) -> Mapping[str, float]:
    """A steady 5 000 messages a second with a consumer, alone and beside one that reads 1 GiB of
    batches from the beginning, again and again.
    """
    count = int(side.seconds(1 << 20, 1 << 15))
    topic = side.topic()
    side.java("produce", topic=topic, count=count, keep=1, batching=1, in_flight=10_000, warmup_s=0)
    settle(side.seconds(5, 0.5))
    alone = tail(side)
    old: dict[str, float] = {}

    def catch_up() -> None:
        seconds = int(side.seconds(35, 8)) + _STARTING_S
        options = {"count": count, "receiver_queue": 5000, "ack_every": 1000, "again_s": seconds}
        old.update(side.java("consume", topic=topic, **options))

    thread = threading.Thread(target=catch_up)
    thread.start()
    settle(_STARTING_S)
    beside = tail(side)
    thread.join()
    return {
        "alone_ms_p99": alone["tail_ms_p99"],
        "beside_ms_p99": beside["tail_ms_p99"],
        "alone_ms_p50": alone["tail_ms_p50"],
        "beside_ms_p50": beside["tail_ms_p50"],
        "slower": beside["tail_ms_p99"] / alone["tail_ms_p99"],
        "catch_up_mb_per_s": old["consume_mb_per_s"],
    }


def tail(side: Side) -> Mapping[str, float]:
    """Latencies of a steady load with a consumer that keeps up."""
    return side.java(
        "produce",
        topic=side.topic(),
        batching=0,
        rate=_RATE,
        in_flight=20_000,
        subscriptions=1,
        stamp=1,
        warmup_s=side.seconds(8, 2),
        duration_s=side.seconds(20, 3),
    )


def delayed(side: Side) -> Mapping[str, float]:
    """A million messages that are to be delivered in an hour, beside as many that are not."""
    count = int(side.seconds(1_000_000, 20_000))
    plain = _shared(side, count, deliver_after_s=0)
    settle(side.seconds(3, 0.5))
    before = side.server.rss_bytes()
    later = _shared(side, count, deliver_after_s=3600)
    settle(side.seconds(3, 0.5))
    return {
        "plain_per_s": plain["publish_per_s"],
        "delayed_per_s": later["publish_per_s"],
        "slower": plain["publish_per_s"] / later["publish_per_s"],
        "rss_growth_mb": (side.server.rss_bytes() - before) / MB,
    }


def _shared(side: Side, count: int, *, deliver_after_s: int) -> Mapping[str, float]:
    return side.java(
        "produce",
        topic=side.topic(),
        batching=0,
        count=count,
        in_flight=1000,
        subscriptions=1,
        type="Shared",
        deliver_after_s=deliver_after_s,
        warmup_s=0,
    )


TAIL_ROWS: tuple[Row, ...] = (
    Row(
        "tail",
        "5 000 messages/s with a consumer, beside a reader of 1 GiB of backlog",
        tail_beside_catch_up,
        (
            Measure("alone_ms_p50", "end to end p50, alone", "ms"),
            Measure("beside_ms_p50", "end to end p50, beside a catch-up reader", "ms"),
            Measure("alone_ms_p99", "end to end p99, alone", "ms"),
            Measure("beside_ms_p99", "end to end p99, beside a catch-up reader", "ms"),
            Measure("slower", "p99 beside over p99 alone", "×", geminga_max=1.2),
            Measure("catch_up_mb_per_s", "catch-up reader beside the tail", "MB/s"),
        ),
    ),
    Row(
        "delayed",
        "A million delayed messages",
        delayed,
        (
            Measure("plain_per_s", "publishes to a Shared subscription", "msg/s"),
            Measure("delayed_per_s", "delayed publishes to one", "msg/s"),
            Measure("slower", "time of delayed over plain", "×", geminga_max=2.0),
            Measure("rss_growth_mb", "memory for a million delayed", "MB", geminga_max=200.0),
        ),
    ),
)
