"""Several broker processes of one standalone beside a single one.

Two cores are shared by brokers, bookie and client here, so that the rate says little: what counts
is the processor time of all server processes for a message, and the parent's part of it, which
bounds what one bookie serves.
"""

from __future__ import annotations

from collections.abc import Mapping

from compat_tests.bench.model import Measure, Row
from compat_tests.bench.side import Side, settle
from compat_tests.processes import cpu_s

BROKERS = 2
TOPICS = 32
EFFICIENCY_MIN = 0.8
"""Of N brokers on N cores against one on one."""

_LOADS: Mapping[str, Mapping[str, int]] = {
    "unbatched": {"size": 1024, "batch": 1},
    "batched": {"size": 100, "batch": 20},
}


def standalone_brokers(side: Side) -> Mapping[str, float]:
    """The same loads on one process and on two brokers with their parent."""
    figures: dict[str, float] = {}
    for count, prefix in ((1, "one"), (BROKERS, "two")):
        side.stop()
        side.forget("brokers")
        server = side.start("brokers", options=["--brokers", str(count)])
        settle(side.seconds(5, 1))
        figures[f"{prefix}_idle_mb"] = server.rss_bytes() / 1e6
        for name, load in _LOADS.items():
            _run(side, load, 0.2)  # what comes first makes topics, ledgers and files
            before = cpu_s(server.pid)
            found = _run(side, load, 1.0)
            messages = found["messages"]
            figures[f"{prefix}_{name}_cpu_us"] = found["server_cpu_s"] * 1e6 / messages
            figures[f"{prefix}_{name}_parent_us"] = (cpu_s(server.pid) - before) * 1e6 / messages
            figures[f"{prefix}_{name}_per_s"] = found["messages_per_s"]
        figures[f"{prefix}_peak_mb"] = server.rss_peak_bytes() / 1e6
        side.stop()
        side.forget("brokers")
    for name in _LOADS:
        figures[f"{name}_ratio"] = figures[f"two_{name}_cpu_us"] / figures[f"one_{name}_cpu_us"]
    return figures


def _run(side: Side, load: Mapping[str, int], part: float) -> dict[str, float]:
    count = int(side.seconds(200_000, 10_000) * part)
    topic = side.topic()
    return side.module("brokers_load", "both", topic=topic, topics=TOPICS, count=count, **load)


def _measures() -> list[Measure]:
    found: list[Measure] = []
    for name in _LOADS:
        found += [
            Measure(f"one_{name}_cpu_us", f"{name}, one process: CPU per message", "µs"),
            Measure(f"two_{name}_cpu_us", f"{name}, two brokers: CPU per message", "µs"),
            Measure(f"two_{name}_parent_us", f"{name}, two brokers: the parent's part", "µs"),
            Measure(
                f"{name}_ratio",
                f"{name}: CPU of two brokers over that of one process",
                "×",
                geminga_max=1 / EFFICIENCY_MIN,
            ),
            Measure(f"one_{name}_per_s", f"{name}, one process", "msg/s"),
            Measure(f"two_{name}_per_s", f"{name}, two brokers on the same cores", "msg/s"),
        ]
    return found


MULTI_ROWS: tuple[Row, ...] = (
    Row(
        "standalone-brokers",
        f"Publish and dispatch over {TOPICS} topics: one process, and `--brokers {BROKERS}`",
        standalone_brokers,
        (
            *_measures(),
            Measure("one_idle_mb", "one process: idle memory", "MB"),
            Measure("two_idle_mb", "two brokers and their parent: idle memory", "MB"),
            Measure("two_peak_mb", "two brokers and their parent: highest memory of each", "MB"),
        ),
        geminga_only=True,
    ),
)
