"""Rows on what the broker alone does, with load programs that cost little beside it."""

from __future__ import annotations

from collections.abc import Mapping

from compat_tests.bench.model import Measure, Row
from compat_tests.bench.side import Side

KEY_SHARED_MIN = 0.7
"""Part of Shared's rate that Key_Shared must reach."""


def key_shared(side: Side) -> Mapping[str, float]:
    """A hundred consumers read a million messages of a million keys, as Shared, as Key_Shared."""
    count = int(side.seconds(1_000_000, 20_000))
    topic = side.topic()
    side.module("key_load", "fill", topic=topic, count=count)
    figures: dict[str, float] = {}
    for kind, name in (("Shared", "shared"), ("Key_Shared", "key_shared")):
        taken = side.module("key_load", "drain", topic=topic, count=count, type=kind)
        figures[f"{name}_per_s"] = taken["consume_per_s"]
        figures[f"{name}_cpu_us"] = taken["server_cpu_s"] * 1e6 / count
        figures["rss_peak_mb"] = max(taken["rss_peak_mb"], figures.get("rss_peak_mb", 0.0))
    figures["shared_over_key_shared"] = figures["shared_per_s"] / figures["key_shared_per_s"]
    return figures


BROKER_ROWS: tuple[Row, ...] = (
    Row(
        "key-shared",
        "1 000 000 keys, 100 B, to 100 consumers",
        key_shared,
        (
            Measure("key_shared_per_s", "Key_Shared", "msg/s"),
            Measure("shared_per_s", "Shared", "msg/s"),
            Measure(
                "shared_over_key_shared",
                "Shared's rate over Key_Shared's",
                "×",
                geminga_max=1 / KEY_SHARED_MIN,
            ),
            Measure("key_shared_cpu_us", "Key_Shared: server CPU per message", "µs"),
            Measure("shared_cpu_us", "Shared: server CPU per message", "µs"),
            Measure("rss_peak_mb", "highest resident memory meanwhile", "MB"),
        ),
    ),
)
