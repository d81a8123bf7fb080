"""What a process and a folder hold at a moment, from ``/proc``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from compat_tests.processes import children_of, cpu_s, status_bytes

MB = 1 << 20


class Held(msgspec.Struct, frozen=True):
    """What a process with its children holds."""

    rss_mb: float
    descriptors: int
    threads: int
    cpu_s: float


class Spread(msgspec.Struct, frozen=True):
    """Times of an interval, in ms."""

    p50: float
    p99: float
    max: float
    count: int


class Load(msgspec.Struct, frozen=True):
    """What the load program saw in an interval: counts are sums since its start."""

    at_s: float
    counts: dict[str, int]
    errors: dict[str, int]
    publish_ms: Spread | None
    arrive_ms: Spread | None
    rest_ms: Spread | None


class Sample(msgspec.Struct, frozen=True):
    """All figures of an interval, whose end is so many seconds after the run's begin."""

    at_s: float
    held: dict[str, Held]
    data_mb: float
    load: Load
    fault: str = ""
    """What went wrong on purpose within the interval."""


def held_by(pid: int) -> Held | None:
    """None if the process has ended."""
    try:
        pids = [pid, *children_of(pid)]
        return Held(
            rss_mb=sum(status_bytes(each, "VmRSS") for each in pids) / MB,
            descriptors=sum(len(list(Path(f"/proc/{each}/fd").iterdir())) for each in pids),
            threads=sum(len(list(Path(f"/proc/{each}/task").iterdir())) for each in pids),
            cpu_s=sum(cpu_s(each) for each in pids),
        )
    except (FileNotFoundError, ProcessLookupError):
        return None


def folder_mb(folder: Path) -> float:
    """The size of all files that stand beneath it now."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # removed meanwhile
            continue
    return total / MB


def spread(times_s: Iterable[float]) -> Spread | None:
    """None of no times."""
    ordered = sorted(times_s)
    if not ordered:
        return None
    last = len(ordered) - 1
    return Spread(
        p50=ordered[last // 2] * 1000,
        p99=ordered[round(last * 0.99)] * 1000,
        max=ordered[-1] * 1000,
        count=len(ordered),
    )
