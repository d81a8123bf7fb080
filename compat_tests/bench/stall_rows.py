"""Rows about the slowest publishes: two minutes of a steady load on a disk where nothing else is
dirty, and beside another program whose dirty pages the system writes out in bursts.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from compat_tests.bench.model import Measure, Row
from compat_tests.bench.side import Side

_DIRTIED_BYTES = 300 << 20
_DIRTIED_EACH_S = 40.0
"""Linux writes out what has been dirty for 30 s: each round meets the measured time once."""
_MESSAGE_BYTES = 1024
_SECTOR_BYTES = 512
_SECTORS_WRITTEN = 6
"""Which number of a device's ``stat`` counts written sectors (Linux, iostats.rst)."""


def stalls(rate: int, batching: int) -> Callable[[Side], Mapping[str, float]]:
    """The row's function for that rate in messages a second."""

    def run(side: Side) -> Mapping[str, float]:
        figures: dict[str, float] = {}
        side.server  # noqa: B018 - started before the disk is settled
        os.sync()
        before = written_bytes(side.work_dir)
        clean = _steady(side, rate, batching)
        os.sync()
        published = clean["acknowledged_in_all"] * _MESSAGE_BYTES
        figures["disk_per_byte"] = (written_bytes(side.work_dir) - before) / published
        with dirtying(side.work_dir / "dirty", int(side.seconds(_DIRTIED_BYTES, 1 << 20))):
            beside = _steady(side, rate, batching)
        os.sync()
        for name, found in (("clean", clean), ("beside", beside)):
            for part in ("p50", "p99", "p999", "max"):
                figures[f"{name}_ms_{part}"] = found[f"publish_ms_{part}"]
        return figures

    return run


def _steady(side: Side, rate: int, batching: int) -> Mapping[str, float]:
    return side.java(
        "produce",
        topic=side.topic(),
        batching=batching,
        rate=rate,
        in_flight=20_000,
        size=_MESSAGE_BYTES,
        warmup_s=side.seconds(6, 2),
        duration_s=side.seconds(120, 4),
    )


def written_bytes(folder: Path) -> int:
    """Bytes that have been written to the device on which the folder stands, by anybody, since the
    machine started.
    """
    device = os.stat(folder).st_dev
    stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return int(stat.read_text().split()[_SECTORS_WRITTEN]) * _SECTOR_BYTES


@contextmanager
def dirtying(path: Path, size_bytes: int) -> Iterator[None]:
    """Another program that writes a file again and again, and never syncs it."""
    stop = threading.Event()
    block = os.urandom(1 << 20)

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            while not stop.is_set():
                for offset in range(0, size_bytes, len(block)):
                    os.pwrite(file.fileno(), block, offset)
                stop.wait(_DIRTIED_EACH_S)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        path.unlink()


def _measures(at: str) -> tuple[Measure, ...]:
    return (
        *(
            Measure(f"{key}_ms_{part}", f"publish {title} at {at}, {when}", "ms")
            for key, when in (("clean", "a clean disk"), ("beside", "300 MB dirtied beside"))
            for part, title in (("p99", "p99"), ("p999", "p99.9"), ("max", "longest wait"))
        ),
        Measure("disk_per_byte", f"bytes to the disk for each published one at {at}", "×"),
    )


STALL_ROWS: tuple[Row, ...] = (
    Row(
        "stalls-unbatched",
        "Two minutes of 5 000 unbatched/s, alone and beside dirty pages",
        stalls(5000, 0),
        _measures("5 000 unbatched/s"),
    ),
    Row(
        "stalls-batched",
        "Two minutes of 10 000 batched/s, alone and beside dirty pages",
        stalls(10_000, 1),
        _measures("10 000 batched/s"),
    ),
)
