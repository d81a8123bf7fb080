"""The table on the screen and in ``docs/BENCHMARKS.md``."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from compat_tests.apache.jars import PULSAR_VERSION
from compat_tests.bench.model import APACHE, GEMINGA, Measure, Outcome
from compat_tests.bench.profile import Profile

NOTES_MARK = "<!-- What stands below this line is kept by make bench. -->"
_HEADINGS = ("work", "unit", "Geminga", "Apache", "ratio", "target", "held", "run")
_NOTHING = ("",) * (len(_HEADINGS) - 1)
"""Beside the title of a row."""


def show(outcomes: Sequence[Outcome], kinds: Sequence[str]) -> None:
    """Print the table."""
    table = Table(*_HEADINGS)
    for cells in _lines(outcomes, []):
        table.add_row(*cells)
    console = Console(width=None if os.isatty(1) else 140)
    console.print(table)
    for outcome in outcomes:
        for kind in kinds:
            if kind in outcome.failures:
                console.print(f"{outcome.row.name} on {kind}: {outcome.failures[kind]}")


def write(
    path: Path,
    outcomes: Sequence[Outcome],
    profiles: Sequence[Profile],
    sections: Iterable[str] = (),
    runs: Sequence[str] = (),
) -> None:
    """Write the table, other sections and the profiles; hand-written notes at the end of the file
    are kept.
    """
    notes = ""
    if path.exists() and NOTES_MARK in path.read_text():
        notes = path.read_text().partition(NOTES_MARK)[2]
    path.write_text(
        "\n".join(_document(outcomes, profiles, sections, runs))
        + "\n"
        + NOTES_MARK
        + (notes or "\n")
    )


def _document(
    outcomes: Sequence[Outcome],
    profiles: Sequence[Profile],
    sections: Iterable[str],
    runs: Sequence[str],
) -> Iterator[str]:
    yield "# Benchmarks\n"
    yield (
        "Written by `make bench`, which runs both servers one after the other on one machine, "
        "with the same load programs beside them on the same cores. Both write through to the "
        "disk before they acknowledge. Latency runs from the client's call to its callback. "
        "Ratios are Geminga's figure over Apache's. Single rows are measured anew by "
        '`make bench ARGS="--only ROW --rounds 3"`; the column "run" tells when and where each was '
        "measured:"
        "\n"
    )
    for number_, run in enumerate(runs, 1):
        yield f"- {number_}: {run}"
    yield ""
    yield "| " + " | ".join(_HEADINGS) + " |"
    yield "|---|---|--:|--:|--:|---|---|---|"
    for cells in _lines(outcomes, runs):
        yield "| " + " | ".join(cells) + " |"
    for outcome in outcomes:
        for kind, failure in outcome.failures.items():
            yield f"\n{outcome.row.title} did not run on {kind}: {failure.splitlines()[0]}"
    missed = list(_missed(outcomes))
    yield "\n## Missed targets\n"
    yield "\n".join(missed) if missed else "None."
    yield from sections
    if profiles:
        yield "\n## Where the time goes\n"
        yield "Shares of py-spy's samples of whichever thread holds the interpreter."
    for profile in profiles:
        yield from _profile(profile)
    yield ""


def run_mark(run: str, runs: Sequence[str]) -> str:
    """The number of a run in the list of them, from 1; nothing where there is no list."""
    return str(runs.index(run) + 1) if run in runs else ""


def _lines(outcomes: Sequence[Outcome], runs: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for outcome in outcomes:
        yield (f"**{outcome.row.title}** (`{outcome.row.name}`)", *_NOTHING)
        for measure in outcome.row.measures:
            ours, theirs = (outcome.figure(kind, measure.key) for kind in (GEMINGA, APACHE))
            held = measure.held(ours, theirs)
            yield (
                measure.title,
                measure.unit,
                number(ours),
                number(theirs),
                f"{ours / theirs:.2f}×" if ours is not None and theirs else "",
                measure.target(),
                "" if held is None else "yes" if held else "NO",
                run_mark(outcome.run, runs),
            )


def _missed(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        for measure in outcome.row.measures:
            ours, theirs = (outcome.figure(kind, measure.key) for kind in (GEMINGA, APACHE))
            if measure.held(ours, theirs) is False and ours is not None:
                yield f"- `{outcome.row.name}`: {measure.title}: {_miss(measure, ours, theirs)}"


def _miss(measure: Measure, ours: float, theirs: float | None) -> str:
    text = f"{number(ours)} {measure.unit}"
    if theirs and (measure.ratio_min or measure.ratio_max):
        text += f", {ours / theirs:.2f}× Apache's"
    return f"{text}; target {measure.target()}"


def _profile(profile: Profile) -> Iterator[str]:
    yield f"\n### {profile.title} ({profile.samples} samples)\n"
    yield "| in itself | share | with what it called | share |"
    yield "|---|--:|---|--:|"
    for (own, own_share), (within, within_share) in zip(
        profile.own.items(), profile.within.items(), strict=False
    ):
        yield f"| `{own}` | {own_share:.1%} | `{within}` | {within_share:.1%} |"


def this_run(rounds: int = 1) -> str:
    """When, where, how fast the disk was, and of how many rounds the figures are medians."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    version = (java.stderr.splitlines() or ["no Java"])[0]
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores of {model}; Python "
        f"{platform.python_version()}; {version}; Apache Pulsar {PULSAR_VERSION} standalone with "
        f"`-Xms64m -Xmx1g -XX:+UseSerialGC`; one fdatasync of 4 KiB takes {_fdatasync_ms():.2f} ms"
        + (f"; medians of {rounds} rounds, both servers by turns" if rounds > 1 else "")
    )


def _fdatasync_ms() -> float:
    """Median time of writing 4 KiB in place and syncing: the floor of any single publish."""
    times = []
    with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
        for number in range(50):
            began = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 4096, number * 4096)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2] * 1000


def number(value: float | None) -> str:
    """Three digits or more, thousands apart; nothing for what wasn't measured."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
