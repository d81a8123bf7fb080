"""Whether a run was flat and lost nothing, and its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from compat_tests.soak.samples import Sample

GROWTH_MAX = 1.1
ROOM_MB = 20.0
DESCRIPTORS_MORE = 20
THREADS_MORE = 8
P99_TIMES_MAX = 2.0
P99_MORE_MS = 10.0
DATA_TIMES_MAX = 1.5
DATA_MORE_MB = 200.0
WRONG = ("lost", "disordered", "stale", "twice")
"""Counts that must be 0."""
PROCESSES = ("server", "proxy", "clients")


def periods(samples: Sequence[Sample], period_s: float) -> list[list[Sample]]:
    """The samples by hours, or whatever a period is; a last one shorter than half is left out."""
    found: list[list[Sample]] = []
    for sample in samples:
        number = int(max(sample.at_s - 1e-6, 0.0) // period_s)
        while len(found) <= number:
            found.append([])
        found[number].append(sample)
    full = max(map(len, found), default=0)
    return [each for each in found if len(each) * 2 >= full]


def settled(period: Sequence[Sample], of: Callable[[Sample], float | None]) -> float | None:
    """The median of a figure over those of the period's intervals in which nothing went wrong."""
    values = [of(each) for each in period if not each.fault]
    present = [value for value in values if value is not None]
    return median(present) if present else None


def memory(process: str) -> Callable[[Sample], float | None]:
    """The figure of a process."""
    return lambda each: each.held[process].rss_mb if process in each.held else None


def descriptors(process: str) -> Callable[[Sample], float | None]:
    """The figure of a process."""
    return lambda each: each.held[process].descriptors if process in each.held else None


def threads(process: str) -> Callable[[Sample], float | None]:
    """The figure of a process."""
    return lambda each: each.held[process].threads if process in each.held else None


def publish_p50(each: Sample) -> float | None:
    """In ms."""
    return each.load.publish_ms.p50 if each.load.publish_ms is not None else None


def publish_p99(each: Sample) -> float | None:
    """In ms."""
    return each.load.publish_ms.p99 if each.load.publish_ms is not None else None


def faults_found(samples: Sequence[Sample], period_s: float) -> list[str]:
    """Sentences, none if all is well. The first period is the yardstick: it must be so long that
    caches are full and ledgers are trimmed by its middle.
    """
    found = []
    last = samples[-1].load
    found += [f"{name}: {last.counts[name]}" for name in WRONG if last.counts.get(name, 0)]
    if not last.counts.get("received", 0):
        found.append("nothing was received")
    parts = periods(samples, period_s)
    if len(parts) < 2:
        return [*found, "the run was too short to say what grows"]
    for process in PROCESSES:
        for title, of, limit in (
            ("memory in MB", memory(process), lambda first: first * GROWTH_MAX + ROOM_MB),
            ("descriptors", descriptors(process), lambda first: first + DESCRIPTORS_MORE),
            ("threads", threads(process), lambda first: first + THREADS_MORE),
        ):
            found += _grown(parts, f"{process}, {title}", of, limit)
    found += _grown(
        parts, "publish p99 in ms", publish_p99, lambda p99: p99 * P99_TIMES_MAX + P99_MORE_MS
    )
    found += _grown(
        parts,
        "data in MB",
        lambda each: each.data_mb,
        lambda first: first * DATA_TIMES_MAX + DATA_MORE_MB,
    )
    return found


def _grown(
    parts: Sequence[Sequence[Sample]],
    title: str,
    of: Callable[[Sample], float | None],
    limit: Callable[[float], float],
) -> list[str]:
    first, end = settled(parts[0], of), settled(parts[-1], of)
    if first is None or end is None:
        return [f"{title}: no figures"]
    most = limit(first)
    return [f"{title}: from {first:.0f} to {end:.0f}, above {most:.0f}"] if end > most else []


COLUMNS = (
    "until",
    "confirmed",
    "received",
    "again",
    "lost",
    "p50 ms",
    "p99 ms",
    "longest ms",
    *(f"{process} {what}" for process in PROCESSES for what in ("MB", "fds", "threads")),
    "data MB",
    "faults",
)


def table(samples: Sequence[Sample], period_s: float) -> str:
    """Markdown; medians of the intervals without a fault, the longest wait of all."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    before: dict[str, int] = {}
    for part in periods(samples, period_s):
        counts = part[-1].load.counts
        cells = [_clock(part[-1].at_s)]
        cells += [
            f"{counts.get(name, 0) - before.get(name, 0):,}".replace(",", " ")
            for name in ("confirmed", "received", "again", "lost")
        ]
        cells += [
            _shown(
                settled(part, lambda s: s.load.publish_ms.p50 if s.load.publish_ms else None), 1
            ),
            _shown(settled(part, publish_p99), 1),
            _shown(
                max((s.load.publish_ms.max for s in part if s.load.publish_ms), default=None), 0
            ),
        ]
        for process in PROCESSES:
            cells += [
                _shown(settled(part, of(process)), 0) for of in (memory, descriptors, threads)
            ]
        cells += [_shown(settled(part, lambda s: s.data_mb), 0)]
        cells += [", ".join(s.fault for s in part if s.fault)]
        lines.append(f"| {' | '.join(cells)} |")
        before = counts
    return "\n".join(lines)


def _shown(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02d}"
