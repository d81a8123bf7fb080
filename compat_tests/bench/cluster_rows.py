"""Rows about a cluster on one machine: ZooKeeper, three bookies that write through to the disk, and
a broker whose ledgers are on all three (write quorum 3, ack quorum 2).

Geminga's column is our broker on our bookies; "on Apache's bookies" is our broker on Apache's. Both
are compared with Apache's broker on Apache's bookies. All JVMs have warmed up on the same load.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.apache.jars import java_command
from compat_tests.bench.model import APACHE, GEMINGA, Measure, Row
from compat_tests.bench.side import MB, Side, run_program, settle
from compat_tests.processes import ServerProcess, cpu_s, status_bytes

BOOKIES = 3
_START_S = 2.0
"""The load program takes so long to begin."""


def publishes(side: Side) -> Mapping[str, float]:
    """Unbatched, batched with a consumer, and a steady 2 000/s."""
    figures = _publishes(side, brokers=side.kind, bookies=side.kind)
    mixed = figures
    if side.kind == GEMINGA:
        mixed = _publishes(side, brokers=GEMINGA, bookies=APACHE)
    return {**figures, **{f"mixed_{key}": value for key, value in mixed.items()}}


def _publishes(side: Side, *, brokers: str, bookies: str) -> dict[str, float]:
    with _running(side, brokers=brokers, bookies=bookies) as (cluster, server):
        seconds = side.seconds(15, 3)
        load = _Load(side, server)
        load.run(batching=0, warmup_s=0, duration_s=side.seconds(15, 1))
        load.run(batching=1, warmup_s=0, duration_s=side.seconds(10, 1))
        before = _cpu_s(cluster, server)
        alone = load.run(batching=0, warmup_s=side.seconds(4, 1), duration_s=seconds)
        used = [after - one for one, after in zip(before, _cpu_s(cluster, server), strict=True)]
        beside = load.run(
            batching=1, subscriptions=1, warmup_s=side.seconds(4, 1), duration_s=seconds
        )
        paced = load.run(
            batching=0, rate=2000, warmup_s=side.seconds(4, 1), duration_s=side.seconds(20, 3)
        )
        count = alone["acknowledged_in_all"]
        return {
            "unbatched_per_s": alone["publish_per_s"],
            "batched_per_s": min(beside["publish_per_s"], beside["consume_per_s"]),
            "broker_cpu_us": used[0] * 1e6 / count,
            "bookies_cpu_us": sum(used[1:]) * 1e6 / count,
            "paced_ms_p50": paced["publish_ms_p50"],
            "paced_ms_p99": paced["publish_ms_p99"],
            "bookie_rss_mb": max(status_bytes(pid, "VmHWM") for pid in _bookies(cluster)) / MB,
        }


def bookie_killed(side: Side) -> Mapping[str, float]:
    """A steady 2 000/s, unbatched; of four bookies one is killed that the ledger is on."""
    with _running(side, brokers=side.kind, bookies=side.kind, count=4) as (cluster, server):
        load = _Load(side, server)
        load.run(batching=0, rate=2000, warmup_s=0, duration_s=side.seconds(10, 2))
        warmup_s, duration_s = side.seconds(3, 1), side.seconds(20, 4)
        killer = threading.Timer(_START_S + warmup_s + duration_s / 2, _kill_busiest, (cluster,))
        killer.start()
        try:
            found = load.run(batching=0, rate=2000, warmup_s=warmup_s, duration_s=duration_s)
        finally:
            killer.join()
        return {"longest_ms": found["publish_ms_max"], "p999_ms": found["publish_ms_p999"]}


def _kill_busiest(cluster: Cluster) -> None:
    """The one that has used most of the processor in half a second: the ledger's own."""
    before = [cpu_s(each.pid) for each in cluster.bookies]
    settle(0.5)
    used = [cpu_s(each.pid) - one for each, one in zip(cluster.bookies, before, strict=True)]
    cluster.bookies[used.index(max(used))].kill()


def idle_bookie(side: Side) -> Mapping[str, float]:
    """A bookie that nobody uses."""
    with running_cluster(
        side.new_folder("cluster"), 1, lean=False, ours=int(side.kind == GEMINGA)
    ) as cluster:
        settle(side.seconds(10, 1))
        return {"rss_mb": status_bytes(_bookies(cluster)[0], "VmRSS") / MB}


@contextmanager
def _running(
    side: Side, *, brokers: str, bookies: str, count: int = BOOKIES
) -> Iterator[tuple[Cluster, ServerProcess]]:
    side.stop()
    folder = side.new_folder("cluster")
    with running_cluster(
        folder, count, lean=False, ours=count if bookies == GEMINGA else 0
    ) as cluster:
        server = cluster.start_ours() if brokers == GEMINGA else cluster.start_apache()
        try:
            yield cluster, server
        finally:
            server.stop()
    side.forget("cluster")


class _Load:
    """The Java load program on a cluster's broker, each run on a topic of its own."""

    def __init__(self, side: Side, server: ServerProcess) -> None:
        self._side = side
        self._url = server.service_url

    def run(self, **options: object) -> dict[str, float]:
        arguments = ["produce", "--url", self._url, "--topic", self._side.topic()]
        in_flight = 20_000 if "rate" in options else 1000
        for name, value in {"in_flight": in_flight, **options}.items():
            arguments += [f"--{name.replace('_', '-')}", str(value)]
        return run_program(java_command("Load", arguments, heap_mb=512, lean=False))


def _bookies(cluster: Cluster) -> list[int]:
    return [each.pid for each in cluster.bookies]


def _cpu_s(cluster: Cluster, server: ServerProcess) -> list[float]:
    """Of the broker and of each bookie."""
    return [cpu_s(pid) for pid in (server.pid, *_bookies(cluster))]


def _measures(
    prefix: str,
    where: str,
    ratio_min: float,
    ratio_aim: float | None,
    p99_ratio_max: float | None,
) -> list[Measure]:
    return [
        Measure(
            f"{prefix}unbatched_per_s",
            f"unbatched publishes on three bookies{where}",
            "msg/s",
            ratio_min=ratio_min,
            ratio_aim=ratio_aim,
        ),
        Measure(
            f"{prefix}batched_per_s",
            f"batched, each way, on three bookies{where}",
            "msg/s",
            ratio_min=ratio_min,
            ratio_aim=ratio_aim,
        ),
        Measure(f"{prefix}broker_cpu_us", f"broker's CPU per unbatched message{where}", "µs"),
        Measure(
            f"{prefix}bookies_cpu_us", f"three bookies' CPU per unbatched message{where}", "µs"
        ),
        Measure(f"{prefix}paced_ms_p50", f"publish p50 at 2 000 unbatched/s{where}", "ms"),
        Measure(
            f"{prefix}paced_ms_p99",
            f"publish p99 at 2 000 unbatched/s{where}",
            "ms",
            ratio_max=p99_ratio_max,
        ),
    ]


CLUSTER_ROWS: tuple[Row, ...] = (
    Row(
        "cluster-publish",
        "ZooKeeper, three bookies and a broker on the same cores, E 3, Wq 3, Aq 2",
        publishes,
        (
            *_measures("", "", 1.0, 1.5, 0.7),
            Measure("bookie_rss_mb", "highest memory of a bookie meanwhile", "MB"),
            # Without one for p99: Apache's bookies wait up to 1 ms for more, whoever writes.
            *_measures("mixed_", ", our broker on Apache's bookies", 1.0, None, None),
        ),
    ),
    Row(
        "cluster-bookie-killed",
        "2 000 unbatched/s on three of four bookies, one of the three killed",
        bookie_killed,
        (
            Measure("longest_ms", "longest wait for a receipt", "ms", ratio_max=1.0),
            Measure("p999_ms", "p99.9 meanwhile", "ms"),
        ),
    ),
    Row(
        "cluster-idle-bookie",
        "A bookie that nobody uses",
        idle_bookie,
        (Measure("rss_mb", "idle memory of a bookie", "MB", geminga_max=100),),
    ),
)
