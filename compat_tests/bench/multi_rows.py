"""Several broker processes of one standalone beside a single one.

Two cores are shared by brokers, bookie and client here, so that the rate says little: what counts
is the processor time of all server processes for a message, and the parent's part of it, which
bounds what one bookie serves. A machine's speed drifts by more within a minute than the two differ:
both servers run, and the load goes to them by short turns.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from compat_tests.bench.model import Measure, Row
from compat_tests.bench.rounds import medians, turns
from compat_tests.bench.side import MB, Side, settle
from compat_tests.processes import ServerProcess, cpu_s

BROKERS = 2
TOPICS = 32
TURNS = 9
"""Of each server and load."""
EFFICIENCY_MIN = 0.8
"""Of N brokers on N cores against one on one."""

_COUNTS: Mapping[str, int] = {"one": 1, "two": BROKERS}
_LOADS: Mapping[str, Mapping[str, int]] = {
    "unbatched": {"size": 1024, "batch": 1},
    "batched": {"size": 100, "batch": 20},
}


class _Standalone:
    """One of the two servers."""

    def __init__(self, side: Side, folder: Path, brokers: int) -> None:
        self._side = Side(side.kind, folder, quick=side.quick)
        self.server: ServerProcess = self._side.start(
            "brokers", options=["--brokers", str(brokers)]
        )
        self._topics = {name: self._side.topic() for name in _LOADS}

    def stop(self) -> None:
        """Stop it."""
        self._side.stop()

    def turn(self, name: str) -> dict[str, float]:
        """Figures of one turn. The first one of a load makes its topics, ledgers and files."""
        before = cpu_s(self.server.pid)
        count = int(self._side.seconds(40_000, 2_000))
        topic = self._topics[name]
        found = self._side.module(
            "brokers_load", "both", topic=topic, topics=TOPICS, count=count, **_LOADS[name]
        )
        messages = found["messages"]
        return {
            "cpu_us": found["server_cpu_s"] * 1e6 / messages,
            "parent_us": (cpu_s(self.server.pid) - before) * 1e6 / messages,
            "per_s": found["messages_per_s"],
        }


def standalone_brokers(side: Side) -> Mapping[str, float]:
    """The same loads on one process and on two brokers with their parent."""
    side.stop()
    figures: dict[str, float] = {}
    with _standalones(side) as servers:
        settle(side.seconds(5, 1))
        for prefix, each in servers.items():
            figures[f"{prefix}_idle_mb"] = each.server.rss_bytes() / MB
        for name in _LOADS:

            def turn(prefix: str, name: str = name) -> dict[str, float]:
                return servers[prefix].turn(name)

            figures |= compared(turn, name, int(side.seconds(TURNS, 1)))
        for prefix, each in servers.items():
            figures[f"{prefix}_peak_mb"] = each.server.rss_peak_bytes() / MB
    return figures


@contextmanager
def _standalones(side: Side) -> Iterator[dict[str, _Standalone]]:
    """Both servers, on new data that are deleted afterwards."""
    folder = side.new_folder("brokers")
    servers: dict[str, _Standalone] = {}
    try:
        for prefix, brokers in _COUNTS.items():
            servers[prefix] = _Standalone(side, folder / prefix, brokers)
        yield servers
    finally:
        for each in servers.values():
            each.stop()
        shutil.rmtree(folder)


def compared(
    turn: Callable[[str], Mapping[str, float]], name: str, rounds: int
) -> dict[str, float]:
    """Figures of the load of that name on "one" and "two", of which `turn` makes one turn: medians,
    also of the ratios of turns that followed each other.
    """
    for prefix in _COUNTS:
        turn(prefix)  # makes topics, ledgers and files
    taken: dict[str, list[Mapping[str, float]]] = {prefix: [] for prefix in _COUNTS}
    for prefix in turns(list(_COUNTS), rounds):
        taken[prefix].append(turn(prefix))
    found = {
        f"{prefix}_{name}_{key}": value
        for prefix, each in taken.items()
        for key, value in medians(each).items()
    }
    pairs = zip(taken["one"], taken["two"], strict=True)
    found[f"{name}_ratio"] = median(two["cpu_us"] / one["cpu_us"] for one, two in pairs)
    return found


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
