"""The figures that stand in the document, row by row, so that a row can be measured again alone.

``docs/benchmarks.json`` keeps for each row its figures and the run that they are of: when, on which
machine, how fast its disk was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compat_tests.bench.model import Outcome, Row
from compat_tests.bench.profile import Profile
from compat_tests.bench.sdk_rows import ClientOutcome, ClientRow


def update(
    path: Path,
    run: str,
    outcomes: Sequence[Outcome],
    clients: Sequence[ClientOutcome],
    profiles: Sequence[Profile],
) -> None:
    """Write what was measured now over what stands there; a row that failed keeps its old figures,
    and those of one server alone leave the other's out, since they are of another run.
    """
    kept = _load(path)
    for outcome in (*outcomes, *clients):
        if outcome.figures:
            kept["rows"][outcome.row.name] = {"run": run, "figures": outcome.figures}
    if profiles:
        kept["profiles"] = [asdict(profile) for profile in profiles]
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def outcomes_of(path: Path, rows: Sequence[Row]) -> list[Outcome]:
    """What stands there of these rows; those that were never measured are left out."""
    kept: Mapping[str, Any] = _load(path)["rows"]
    return [
        Outcome(row, figures=kept[row.name]["figures"], run=kept[row.name]["run"])
        for row in rows
        if row.name in kept
    ]


def clients_of(path: Path, rows: Sequence[ClientRow]) -> list[ClientOutcome]:
    """The same of rows of clients."""
    kept: Mapping[str, Any] = _load(path)["rows"]
    return [
        ClientOutcome(row, figures=kept[row.name]["figures"], run=kept[row.name]["run"])
        for row in rows
        if row.name in kept
    ]


def profiles_of(path: Path) -> list[Profile]:
    """The last profiles."""
    return [Profile(**each) for each in _load(path)["profiles"]]


def _load(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"rows": {}, "profiles": []}
    kept: dict[str, Any] = json.loads(path.read_text())
    return kept
