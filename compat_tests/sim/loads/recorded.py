"""A recorded trace: how the loads of bundles of a real broker went over the time."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("recorded.txt")


@cache
def factors() -> list[tuple[float, ...]]:
    """Of each bundle its throughput every ten seconds, as a part of its mean."""
    rows = []
    for line in _FILE.read_text().splitlines():
        if line and not line.startswith("#"):
            samples = [float(part) for part in line.split()]
            mean = sum(samples) / len(samples)
            rows.append(tuple(sample / mean for sample in samples))
    return rows
