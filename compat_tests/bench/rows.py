"""The rows of the table. Each takes a side and returns its figures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

from compat_tests.bench.broker_rows import BROKER_ROWS
from compat_tests.bench.cluster_rows import CLUSTER_ROWS
from compat_tests.bench.compaction_rows import COMPACTION_ROWS
from compat_tests.bench.many_brokers_rows import MANY_BROKERS_ROWS
from compat_tests.bench.model import Measure, Row
from compat_tests.bench.multi_rows import MULTI_ROWS
from compat_tests.bench.proxy_rows import PROXY_ROWS
from compat_tests.bench.recovery_rows import RECOVERY_ROWS
from compat_tests.bench.rest_rows import REST_ROWS
from compat_tests.bench.schema_rows import SCHEMA_ROWS
from compat_tests.bench.side import MB, Side, settle
from compat_tests.bench.spark_rows import SPARK_ROWS
from compat_tests.bench.stall_rows import STALL_ROWS
from compat_tests.bench.startup import seconds_to_first_receipt
from compat_tests.bench.tail_rows import TAIL_ROWS
from compat_tests.bench.tls_rows import TLS_ROWS

_MEMORY_MAX_MB = 500.0
_PEAK = Measure(
    "rss_peak_mb", "highest resident memory meanwhile", "MB", geminga_max=_MEMORY_MAX_MB
)
_CPU = Measure("server_cpu_us", "server CPU per message", "µs")


def unbatched(side: Side) -> Mapping[str, float]:
    """Each message is an entry of its own."""
    figures = side.java(
        "produce",
        topic=side.topic(),
        batching=0,
        in_flight=1000,
        warmup_s=side.seconds(6, 2),
        duration_s=side.seconds(15, 3),
    )
    return _with_cpu(figures, figures["acknowledged_in_all"])


def batched(side: Side) -> Mapping[str, float]:
    """Batches of up to 1 ms or 128 KiB, and a consumer of the same client beside."""
    figures = side.java(
        "produce",
        topic=side.topic(),
        batching=1,
        in_flight=1000,
        subscriptions=1,
        warmup_s=side.seconds(6, 2),
        duration_s=side.seconds(15, 3),
    )
    # What both directions keep up with: a publisher that runs away from its consumer is no gain.
    figures["both_per_s"] = min(figures["publish_per_s"], figures["consume_per_s"])
    return _with_cpu(figures, figures["acknowledged_in_all"])


def latency_unbatched(side: Side) -> Mapping[str, float]:
    """A steady 5 000 messages a second, each an entry."""
    return _paced(side, rate=5000, batching=0)


def latency_batched(side: Side) -> Mapping[str, float]:
    """A steady 10 000 messages a second in batches of up to 1 ms."""
    return _paced(side, rate=10_000, batching=1)


def _paced(side: Side, *, rate: int, batching: int) -> Mapping[str, float]:
    return side.java(
        "produce",
        topic=side.topic(),
        batching=batching,
        rate=rate,
        in_flight=20_000,
        warmup_s=side.seconds(6, 2),
        duration_s=side.seconds(20, 4),
    )


def backlog(side: Side) -> Mapping[str, float]:
    """1 GiB of 1 KiB messages, written in batches, read by a subscription made afterwards."""
    count = int(side.seconds(1 << 20, 1 << 16))
    topic = side.topic()
    side.java("produce", topic=topic, count=count, keep=1, batching=1, in_flight=10_000, warmup_s=0)
    settle(side.seconds(5, 0.5))
    return side.java("consume", topic=topic, count=count, receiver_queue=5000, ack_every=1000)


def fan_out(side: Side) -> Mapping[str, float]:
    """Every message goes to ten subscriptions; done when the last has come to all."""
    return side.java(
        "produce",
        topic=side.topic(),
        count=int(side.seconds(200_000, 20_000)),
        subscriptions=10,
        batching=1,
        in_flight=5000,
        warmup_s=0,
    )


def soak(side: Side) -> Mapping[str, float]:
    """A minute of unbatched messages with a consumer: memory must have settled."""
    return side.java(
        "produce",
        topic=side.topic(),
        batching=0,
        subscriptions=1,
        in_flight=1000,
        warmup_s=1,
        duration_s=side.seconds(60, 5),
    )


def start_up(side: Side) -> Mapping[str, float]:
    """From the start of the process to the first receipt; the median of some starts."""
    side.stop()
    rounds = 2 if side.quick else 5
    return {
        "seconds": statistics.median(
            seconds_to_first_receipt(side, number) for number in range(rounds)
        )
    }


def idle(side: Side) -> Mapping[str, float]:
    """Resident memory of a fresh server that nobody uses."""
    side.stop()
    side.forget("idle")
    server = side.start("idle")
    settle(side.seconds(10, 2))
    figures = {"rss_mb": server.rss_bytes() / MB, "start_cpu_s": server.cpu_s()}
    side.stop()
    side.forget("idle")
    return figures


def many_topics(side: Side) -> Mapping[str, float]:
    """Ten thousand topics with one subscription each, then a restart."""
    count = int(side.seconds(10_000, 300))
    side.stop()
    side.forget("topics")
    server = side.start("topics")
    before = server.rss_bytes()
    figures = dict(side.java("topics", count=count, in_flight=32))
    settle(side.seconds(3, 0.5))
    figures["rss_per_topic_kb"] = (server.rss_bytes() - before) / count / 1000
    side.stop()
    began = time.monotonic()
    server = side.start("topics")
    figures["restart_s"] = time.monotonic() - began
    side.stop()
    side.forget("topics")
    return figures


def python_client(side: Side) -> Mapping[str, float]:
    """The official Python client: publish batched and unbatched, consume, one at a time."""
    count = int(side.seconds(200_000, 20_000))
    batched_topic, single_topic = side.topic(), side.topic()
    figures = {
        "batched_per_s": side.python("produce", topic=batched_topic, count=count)["publish_per_s"],
        "single_per_s": side.python("produce", topic=single_topic, count=count // 4, batching=0)[
            "publish_per_s"
        ],
    }
    forgotten = side.python("produce", topic=side.topic(), count=count, callbacks=0)
    figures["forgotten_per_s"] = forgotten["publish_per_s"]
    # The subscription was made before the first message was sent.
    taken = side.python("consume", topic=batched_topic, count=count)
    figures["consume_per_s"] = taken["consume_per_s"]
    taken = side.python("consume", topic=single_topic, count=count // 4)
    figures["consume_single_per_s"] = taken["consume_per_s"]
    ping = side.python("ping", topic=side.topic(), count=int(side.seconds(1000, 100)))
    return figures | {"ping_ms_p50": ping["publish_ms_p50"], "ping_ms_p99": ping["publish_ms_p99"]}


def _with_cpu(figures: dict[str, float], messages: float) -> Mapping[str, float]:
    figures["server_cpu_us"] = figures["server_cpu_s"] * 1e6 / messages
    return figures


def _latency(at: str) -> tuple[Measure, ...]:
    return (
        Measure(
            "publish_ms_p50", f"publish latency p50 at {at}", "ms", ratio_max=0.7, ratio_aim=0.4
        ),
        Measure(
            "publish_ms_p99", f"publish latency p99 at {at}", "ms", ratio_max=0.7, ratio_aim=0.4
        ),
        Measure("publish_per_s", f"reached at {at}", "msg/s"),
        _PEAK,
    )


ROWS: tuple[Row, ...] = (
    Row(
        "startup",
        "Process start to first receipt",
        start_up,
        (Measure("seconds", "process start to first receipt", "s", geminga_max=1.0),),
    ),
    Row(
        "idle",
        "Idle",
        idle,
        (
            Measure("rss_mb", "idle memory", "MB", geminga_max=100.0),
            Measure("start_cpu_s", "CPU used by starting", "s"),
        ),
    ),
    Row(
        "unbatched",
        "Unbatched 1 KiB publishes, 1000 in flight",
        unbatched,
        (
            Measure("publish_per_s", "unbatched publishes", "msg/s", ratio_min=1.5, ratio_aim=2.0),
            _CPU,
            _PEAK,
        ),
    ),
    Row(
        "batched",
        "Batched 1 KiB publishes with a consumer beside",
        batched,
        (
            Measure("both_per_s", "batched, each way", "msg/s", ratio_min=1.2, ratio_aim=2.0),
            Measure("publish_per_s", "batched publishes", "msg/s"),
            Measure("end_to_end_ms_p50", "end to end p50", "ms"),
            _CPU,
            _PEAK,
        ),
    ),
    Row("latency-unbatched", "5 000 unbatched/s", latency_unbatched, _latency("5 000 unbatched/s")),
    Row("latency-batched", "10 000 batched/s", latency_batched, _latency("10 000 batched/s")),
    Row(
        "backlog",
        "1 GiB of backlog read from the start",
        backlog,
        (Measure("consume_mb_per_s", "backlog read", "MB/s", ratio_min=1.0), _PEAK),
    ),
    Row(
        "fan-out",
        "1 producer to 10 subscriptions",
        fan_out,
        (Measure("consume_per_s", "deliveries to 10 subscriptions", "msg/s", ratio_min=1.0), _PEAK),
    ),
    Row(
        "python-client",
        "Official Python client, 1 KiB",
        python_client,
        (
            Measure("batched_per_s", "send_async with a callback, batched", "msg/s"),
            Measure("forgotten_per_s", "send_async, callback=None, batched", "msg/s"),
            Measure("single_per_s", "send_async with a callback, unbatched", "msg/s"),
            Measure("consume_per_s", "receive and acknowledge, from batches", "msg/s"),
            Measure("consume_single_per_s", "receive and acknowledge, single entries", "msg/s"),
            Measure("ping_ms_p50", "send one at a time, p50", "ms"),
            Measure("ping_ms_p99", "send one at a time, p99", "ms"),
        ),
    ),
    Row(
        "soak",
        "A minute of unbatched load with a consumer",
        soak,
        (
            Measure("rss_growth_mb", "memory, 4th quarter less 2nd", "MB", geminga_max=25.0),
            Measure("publish_per_s", "unbatched publishes with a consumer", "msg/s"),
            _PEAK,
        ),
        geminga_only=True,
    ),
    Row(
        "topics",
        "10 000 topics with one subscription each",
        many_topics,
        (
            Measure("topics_per_s", "topics created", "1/s"),
            Measure("rss_per_topic_kb", "memory per topic", "kB"),
            Measure("restart_s", "restart to ready", "s", geminga_max=2.0),
        ),
    ),
    *STALL_ROWS,
    *BROKER_ROWS,
    *MULTI_ROWS,
    *TLS_ROWS,
    *SCHEMA_ROWS,
    *PROXY_ROWS,
    *TAIL_ROWS,
    *COMPACTION_ROWS,
    *CLUSTER_ROWS,
    *RECOVERY_ROWS,
    *MANY_BROKERS_ROWS,
    *REST_ROWS,
    *SPARK_ROWS,
)
