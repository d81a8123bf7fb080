"""What Spark's processes use: the engine (a JVM) and its Python workers, below this process.

In local mode the engine is driver and executor in one. Each task that reads or writes Pulsar runs
in a Python worker, a child of a daemon that is a child of the engine.
"""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MB = 1e6


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    name: str
    ticks: int
    """Of itself."""
    ticks_of_dead: int
    """Of its children that have ended, and of theirs."""
    rss_bytes: int


@dataclass(frozen=True)
class Used:
    """Processor time so far, in seconds."""

    python_s: float
    engine_s: float

    def __sub__(self, earlier: Used) -> Used:
        return Used(self.python_s - earlier.python_s, self.engine_s - earlier.engine_s)


class Engine:
    """Watches the processes below this one while the block runs."""

    def __init__(self, period_s: float = 0.5, *, root: int | None = None) -> None:
        self._root = os.getpid() if root is None else root
        self._period_s = period_s
        self._worker_peak = self._engine_peak = 0
        self._python: list[int] = []
        self._engine: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Engine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def used(self) -> Used:
        """By Python workers, also those that have ended, and by the engine."""
        engine, workers = self._found()
        python = sum(each.ticks + each.ticks_of_dead for each in workers)
        return Used(
            (python + sum(each.ticks_of_dead for each in engine)) / _TICKS_PER_S,
            sum(each.ticks for each in engine) / _TICKS_PER_S,
        )

    def memory(self) -> dict[str, float]:
        """The highest so far, and what still grew in the last quarter of the time beside the
        second.
        """
        self._look()
        return {
            "worker_rss_mb": self._worker_peak / _MB,
            "engine_rss_mb": self._engine_peak / _MB,
            "python_mb": max(self._python) / _MB,
            "python_growth_mb": _growth(self._python) / _MB,
            "engine_growth_mb": _growth(self._engine) / _MB,
        }

    def _sample(self) -> None:
        while not self._stop.wait(self._period_s):
            self._look()

    def _look(self) -> None:
        engine, workers = self._found()
        self._engine.append(sum(each.rss_bytes for each in engine))
        self._python.append(sum(map(_shared_once, workers)))
        self._engine_peak = max(self._engine_peak, *map(_peak, engine), 0)
        self._worker_peak = max(self._worker_peak, *map(_peak, workers), 0)

    def _found(self) -> tuple[list[_Process], list[_Process]]:
        engine: list[_Process] = []
        workers: list[_Process] = []
        by_parent: dict[int, list[_Process]] = {}
        for each in _processes():
            by_parent.setdefault(each.parent, []).append(each)
        left = [(each, False) for each in by_parent.get(self._root, [])]
        while left:
            process, is_worker = left.pop()
            if is_worker:
                workers.append(process)
            elif process.name == "java":
                engine.append(process)
            below = is_worker or process.name == "java"
            left += [(each, below) for each in by_parent.get(process.pid, [])]
        return engine, workers


def _processes() -> Iterator[_Process]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        head, _, rest = text.rpartition(")")
        pid, _, name = head.partition(" (")
        fields = rest.split()
        yield _Process(
            int(pid),
            int(fields[1]),
            name,
            int(fields[11]) + int(fields[12]),
            int(fields[13]) + int(fields[14]),
            int(fields[21]) * _PAGE_BYTES,
        )


def _shared_once(process: _Process) -> int:
    """Resident memory in which a page counts by its part: workers are forks and share many."""
    try:
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = text.partition("\nPss:")[2].split()
    return int(found[0]) * 1024 if found else 0


def _peak(process: _Process) -> int:
    """Highest resident memory since its start; of one that is gone, the last that was seen."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return process.rss_bytes
    found = text.partition("VmHWM:")[2].split()
    return int(found[0]) * 1024 if found else process.rss_bytes


def _growth(samples: Sequence[int]) -> float:
    quarter = max(1, len(samples) // 4)
    settled = samples[quarter : 2 * quarter] or samples
    return statistics.fmean(samples[-quarter:]) - statistics.fmean(settled)
