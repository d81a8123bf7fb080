"""Rows on what operators use: the admin REST, metrics, the command ``geminga admin``, the console.

Calls go over one connection that is kept, one after the other, by the same program to both
servers. Apache's own command is not among the peers: a start of it is that of a JVM.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from compat_tests.bench.model import GEMINGA, Measure, Row
from compat_tests.bench.rest_load import Peer
from compat_tests.bench.side import Side, run_program, settle

TOPICS = 2000
LISTED = 10_000
SHOWN = 100_000
RATE = 1000
"""Messages a second beside the scrapes."""
SCRAPE_EACH_S = 1.0
_NAMESPACE = "public/rest"


def rest(side: Side) -> Mapping[str, float]:
    """Topics are made, asked about and listed; then ``geminga admin`` lists them."""
    count = int(side.seconds(TOPICS, 50))
    with _server(side, "rest"):
        figures = {
            **_load(side, "create", namespace=_NAMESPACE, count=count),
            **_load(side, "stats", namespace=_NAMESPACE, count=count),
        }
        _fill(side, count, int(side.seconds(LISTED, 100)))
        path = f"/admin/v2/persistent/{_NAMESPACE}"
        listed = _load(side, "get", path=path, count=10)
        figures["list_ms"] = listed["ms_p50"]
        if side.kind == GEMINGA:
            figures["command_s"] = _command_s(side)
    return figures


def scrapes(side: Side) -> Mapping[str, float]:
    """`/metrics` with many topics, alone and each second beside publishes."""
    with _server(side, "scrapes"):
        _fill(side, 0, int(side.seconds(LISTED, 100)))
        alone = _load(side, "get", path="/metrics/", count=5)
        figures = {"scrape_ms": alone["ms_p50"], "scrape_mb": alone["bytes"] / 1e6}
        _paced(side)  # what comes first is the runtime's warming up
        figures["publish_ms_p99"] = _paced(side)
        with _scraped(side):
            figures["scraped_ms_p99"] = _paced(side)
    figures["p99_ratio"] = figures["scraped_ms_p99"] / figures["publish_ms_p99"]
    return figures


def console(side: Side) -> Mapping[str, float]:
    """The console's page of a namespace's topics: the first page, and a search."""
    count = int(side.seconds(SHOWN, 300))
    with _server(side, "console"):
        _fill(side, 0, count)
        path = f"/console/namespaces/{_NAMESPACE}"
        first = _load(side, "get", path=path, count=1)
        again = _load(side, "get", path=path, count=10)
        searched = _load(side, "get", path=f"{path}?q=topic-{count - 1}", count=10)
        return {
            "first_s": first["ms_max"] / 1e3,
            "page_s": again["ms_p50"] / 1e3,
            "search_s": searched["ms_p50"] / 1e3,
            "rss_mb": side.server.rss_bytes() / 1e6,
        }


@contextmanager
def _server(side: Side, name: str) -> Iterator[None]:
    """A fresh one, with a namespace whose topics stay though nobody uses them."""
    side.stop()
    side.forget(name)
    web_url = side.start(name).web_url
    try:
        _send(web_url, "PUT", f"/admin/v2/namespaces/{_NAMESPACE}", None)
        _send(
            web_url,
            "POST",
            f"/admin/v2/namespaces/{_NAMESPACE}/inactiveTopicPolicies",
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 3600,
                "deleteWhileInactive": False,
            },
        )
        yield
    finally:
        side.stop()
        side.forget(name)


def _send(url: str, method: str, path: str, body: object) -> None:
    request = urllib.request.Request(
        url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass


def _load(side: Side, mode: str, **options: object) -> dict[str, float]:
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    program = [sys.executable, "-m", "compat_tests.bench.rest_load", mode]
    return run_program([*program, f"--url={side.server.web_url}", *arguments])


def _fill(side: Side, first: int, count: int) -> None:
    """The topics from `first` to `count`, by some connections at once; then a rest."""
    _load(side, "create", namespace=_NAMESPACE, first=first, count=count - first, at_once=16)
    settle(side.seconds(5, 0.2))


def _command_s(side: Side) -> float:
    """From the command's start to its end, the median of some."""
    command = [str(Path(sys.executable).parent / "geminga"), "admin"]
    command += ["--admin-url", side.server.web_url, "topics", "list", _NAMESPACE]
    taken: list[float] = []
    for _ in range(int(side.seconds(7, 2))):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def _paced(side: Side) -> float:
    """p99 of publishes at a steady rate, in ms."""
    load = side.java(
        "produce",
        topic=side.topic(),
        batching=0,
        rate=RATE,
        in_flight=20_000,
        warmup_s=side.seconds(5, 1),
        duration_s=side.seconds(20, 3),
    )
    return load["publish_ms_p99"]


@contextmanager
def _scraped(side: Side) -> Iterator[None]:
    """Metrics are read each second, as by Prometheus in a hurry."""
    done = threading.Event()
    failures: list[Exception] = []

    def scrape() -> None:
        peer = Peer(side.server.web_url)
        try:
            while not done.wait(SCRAPE_EACH_S):
                peer.call("GET", "/metrics/")
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failures:
        raise failures[0]


REST_ROWS: tuple[Row, ...] = (
    Row(
        "rest",
        "Admin REST: 2 000 topics, then 10 000",
        rest,
        (
            Measure("created_per_s", "topics created over REST, one by one", "1/s", ratio_min=5.0),
            Measure("stats_per_s", "stats of topics, one by one", "1/s", ratio_min=1.5),
            Measure("list_ms", "10 000 topics listed", "ms"),
            Measure("command_s", "`geminga admin topics list` of them", "s", geminga_max=0.3),
        ),
    ),
    Row(
        "scrapes",
        "`/metrics` with 10 000 topics",
        scrapes,
        (
            Measure("scrape_ms", "a scrape of 10 000 topics", "ms"),
            Measure("scrape_mb", "its size", "MB"),
            Measure("publish_ms_p99", f"publish p99 at {RATE}/s, without scrapes", "ms"),
            Measure("scraped_ms_p99", "publish p99 beside a scrape each second", "ms"),
            Measure("p99_ratio", "the one over the other", "×", geminga_max=1.1),
        ),
    ),
    Row(
        "console-topics",
        "Console: the page of a namespace with 100 000 topics",
        console,
        (
            Measure("first_s", "its first look at the page", "s", geminga_max=1.0),
            Measure("page_s", "the page again", "s", geminga_max=1.0),
            Measure("search_s", "a search for one topic", "s", geminga_max=1.0),
            Measure("rss_mb", "memory of the server", "MB"),
        ),
        geminga_only=True,
    ),
)
