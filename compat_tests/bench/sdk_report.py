"""The SDK's part of the table, on the screen and in ``docs/BENCHMARKS.md``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from compat_tests.bench.report import number, run_mark
from compat_tests.bench.sdk_rows import OFFICIAL, RUNS, TRIO, ClientOutcome

_HEADINGS = (
    *("work", "unit", "broker", "face", "ours", "official", "ratio", "of Trio's"),
    *("target", "held", "run"),
)


def show(outcomes: Sequence[ClientOutcome]) -> None:
    """Print the table."""
    if not outcomes:
        return
    table = Table(*_HEADINGS)
    for cells in _lines(outcomes, ()):
        table.add_row(*cells)
    console = Console(width=None if os.isatty(1) else 160)
    console.print(table)
    for outcome in outcomes:
        for kind, failure in outcome.failures.items():
            console.print(f"{outcome.row.name} on {kind}: {failure}")


def document(outcomes: Sequence[ClientOutcome], runs: Sequence[str] = ()) -> Iterator[str]:
    """The section of the document, none without rows."""
    if not outcomes:
        return
    yield "\n## The SDK beside the official Python client\n"
    yield (
        f"Medians of {RUNS} short runs that take turns, each in a process and on a topic of its "
        "own, with the same batches (1000 messages, 128 KiB, 1 ms), 10 000 messages in flight at "
        "most and a receiver queue of 1000. Every message is accounted for. Ratios are our figure "
        "over the official client's on the same broker; CPU is that of the client's process for "
        "each message.\n"
    )
    yield "| " + " | ".join(_HEADINGS) + " |"
    yield "|---|---|---|---|--:|--:|--:|--:|---|---|---|"
    for cells in _lines(outcomes, runs):
        yield "| " + " | ".join(cells) + " |"
    for outcome in outcomes:
        for kind, failure in outcome.failures.items():
            yield f"\n{outcome.row.name} did not run on {kind}: {failure.splitlines()[0]}"


def _lines(outcomes: Sequence[ClientOutcome], runs: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for outcome in outcomes:
        for figure in outcome.row.figures:
            for kind in outcome.figures:
                official = outcome.figure(kind, OFFICIAL, figure.key)
                trio = outcome.figure(kind, TRIO, figure.key)
                for face, target in figure.targets.items():
                    ours = outcome.figure(kind, face, figure.key)
                    held = target.held(ours, official, trio)
                    yield (
                        figure.title,
                        figure.unit,
                        kind,
                        face,
                        number(ours),
                        number(official),
                        f"{ours / official:.2f}×" if ours and official else "",
                        f"{ours / trio:.2f}" if ours and trio and face != TRIO else "",
                        target.text(figure.unit),
                        "" if held is None else "yes" if held else "NO",
                        run_mark(outcome.run, runs),
                    )
