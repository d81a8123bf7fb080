"""Rows about several brokers of one cluster on one machine: ZooKeeper, one bookie of ours, two
brokers of one kind, and many topics that the official Python client publishes to and consumes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus

from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.bench.model import GEMINGA, Measure, Row
from compat_tests.bench.side import LoadFailed, Side, settle
from compat_tests.processes import ROOT, ServerProcess, free_port

TOPICS = 1000
MANY_TOPICS = 100_000
MANY_BROKERS = 4
SESSION_S = 10
_ONE_COPY = {
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "metadataStoreSessionTimeoutMillis": str(SESSION_S * 1000),
    "defaultNumberOfNamespaceBundles": "16",
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
}
_LOAD_TIMEOUT_S = 600.0


def lookups(side: Side) -> Mapping[str, float]:
    """One connection, 500 lookups in flight."""
    options = {"warmup": 500, "count": 1000} if side.quick else {}
    found = side.module("lookup_load", "pipelined", **options)
    found["cpu_us"] = found["server_cpu_s"] * 1e6 / found["lookups"]
    return found


def failover(side: Side) -> Mapping[str, float]:
    """One of two brokers is killed while 1 000 topics are published to and consumed, by the
    official client, then by one that tries again each second.
    """
    duration_s = side.seconds(45, 20)
    with _two_brokers(side) as brokers:
        found = _under_load(side, brokers, brokers[1].kill, duration_s)
    with _two_brokers(side) as brokers:
        steady = _under_load(side, brokers, brokers[1].kill, duration_s, "failover_load")
    return found | {f"served_{name}": steady[name] for name in ("longest_s", "median_s")}


def without_witness(side: Side) -> Mapping[str, float]:
    """As `failover` by the second client, the broker's witness killed before it: only the time-out
    ends the session. The connections of the clients are closed all the same, which they aren't when
    a machine is lost.
    """
    with _two_brokers(side) as brokers:
        lose = partial(_kill_all, brokers[1])
        return _under_load(side, brokers, lose, side.seconds(45, 20), "failover_load")


def _kill_all(server: ServerProcess) -> None:
    """Its witness before it, which would end the session."""
    for pid in reversed(server.pids):
        os.kill(pid, signal.SIGKILL)
    server.kill()


def planned(side: Side) -> Mapping[str, float]:
    """All bundles of one of two brokers are unloaded, one after the other."""
    with _two_brokers(side) as brokers:
        return _under_load(side, brokers, lambda: _unload_all(brokers), side.seconds(30, 10))


def many_topics(side: Side) -> Mapping[str, float]:
    """Topics on four broker processes, then a restart, then lookups of them in any order."""
    count = int(side.seconds(MANY_TOPICS, 400))
    side.stop()
    side.forget("many")
    server = side.start("many", options=["--brokers", str(MANY_BROKERS)])
    before = server.rss_bytes()
    topic = side.topic()
    figures = dict(side.java("topics", topic=topic, count=count, in_flight=64))
    settle(side.seconds(5, 0.5))
    figures["rss_per_topic_kb"] = (server.rss_bytes() - before) / count / 1000
    side.stop()
    began = time.monotonic()
    side.start("many", options=["--brokers", str(MANY_BROKERS)])
    figures["restart_s"] = time.monotonic() - began
    looked = int(side.seconds(20_000, 500))
    figures |= side.module("lookup_load", "each", topic=topic, topics=count, count=looked)
    side.stop()
    side.forget("many")
    return figures


@contextmanager
def _two_brokers(side: Side) -> Iterator[list[ServerProcess]]:
    side.stop()
    with running_cluster(side.new_folder("cluster"), 1, lean=False, ours=1) as cluster:
        second = replace(
            cluster, folder=cluster.folder / "second", ports=(free_port(), free_port())
        )
        second.folder.mkdir()
        found: list[ServerProcess] = []
        try:
            for each in (cluster, second):
                found.append(_start(each, side.kind))
            yield found
        finally:
            for server in found:
                server.kill()
    side.forget("cluster")


def _start(cluster: Cluster, kind: str) -> ServerProcess:
    start = cluster.start_ours if kind == GEMINGA else cluster.start_apache
    return start(_ONE_COPY)


def _under_load(
    side: Side,
    brokers: list[ServerProcess],
    act: Callable[[], None],
    duration_s: float,
    module: str = "many_topics_load",
) -> dict[str, float]:
    url = brokers[0].service_url + "," + brokers[1].service_url.removeprefix("pulsar://")
    program = [sys.executable, "-m", f"compat_tests.bench.{module}", f"--url={url}"]
    arguments = {
        "prefix": side.topic(),
        "topics": int(side.seconds(TOPICS, 20)),
        "duration-s": duration_s,
    }
    command = [*program, *(f"--{name}={value}" for name, value in arguments.items())]
    load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert load.stdout is not None
    try:
        if load.stdout.readline().strip() != "running":
            raise LoadFailed("the load program did not begin")
        settle(duration_s / 4)
        act()
        text, _ = load.communicate(timeout=_LOAD_TIMEOUT_S)
    finally:
        load.kill()
    found: dict[str, float] = json.loads(text)
    # Of Apache's a send may time out: how many did is a figure then.
    if found["lost"] or found["disorder"] or (found["failed"] and side.kind == GEMINGA):
        raise LoadFailed(f"messages were lost or came out of order: {found}")
    return found


def _unload_all(brokers: list[ServerProcess]) -> None:
    """By the admin API, as an operator drains a broker."""
    for low in range(0, 1 << 32, 1 << 28):
        high = min(low + (1 << 28), (1 << 32) - 1)
        path = f"/admin/v2/namespaces/public/default/0x{low:08x}_0x{high:08x}/unload"
        _put(brokers[0].web_url + path)


def _put(url: str) -> None:
    """Also where a broker redirects to, which urllib does for GET only."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=60):
            return
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.TEMPORARY_REDIRECT:
            raise
        location = error.headers["Location"]
    _put(location)


MANY_BROKERS_ROWS: tuple[Row, ...] = (
    Row(
        "lookups",
        "Lookups of 1 000 topics, one connection, 500 in flight",
        lookups,
        (
            Measure("lookups_per_s", "lookups", "1/s", geminga_min=10_000),
            Measure("cpu_us", "server CPU per lookup", "µs"),
        ),
    ),
    Row(
        "many-brokers-topics",
        "100 000 topics with one subscription each over four broker processes",
        many_topics,
        (
            Measure("topics_per_s", "topics created", "1/s"),
            Measure("rss_per_topic_kb", "memory per topic, all processes", "kB"),
            Measure("restart_s", "restart to ready", "s"),
            Measure("lookup_ms_p50", "lookup, one at a time, p50", "ms"),
            Measure("lookup_ms_p99", "lookup, one at a time, p99", "ms"),
            Measure("first_ms_max", "the longest of the first 100 after the restart", "ms"),
        ),
        geminga_only=True,
    ),
    Row(
        "cluster-failover",
        "1 000 topics on two brokers, 2 000 msg/s, one broker killed; sessions of 10 s",
        failover,
        (
            Measure(
                "served_longest_s",
                "a client that tries each second: longest wait for a receipt",
                "s",
                ratio_max=1.0,
                geminga_max=13.0,
            ),
            Measure("served_median_s", "the same, longest wait of a topic, median", "s"),
            Measure("longest_s", "official client: longest wait for a receipt", "s", ratio_max=1.0),
            Measure("median_s", "official client: longest wait of a topic, median", "s"),
            Measure("again", "official client: messages that came again", ""),
        ),
    ),
    Row(
        "cluster-failover-time-out",
        "The same, the broker's witness killed with it: its session ends by the time-out",
        without_witness,
        (
            Measure("longest_s", "longest wait for a receipt, tried each second", "s"),
            Measure("median_s", "the same, longest wait of a topic, median", "s"),
        ),
    ),
    Row(
        "cluster-unload",
        "1 000 topics on two brokers, 2 000 msg/s, all 16 bundles unloaded in turn",
        planned,
        (
            Measure("longest_s", "longest wait for a receipt", "s", ratio_max=1.0),
            Measure("median_s", "longest wait of a topic, median", "s"),
            Measure("failed", "publishes that timed out", ""),
            Measure("again", "messages that came again", ""),
        ),
    ),
)
