"""``make bench``: Geminga and Apache Pulsar under the same loads, one after the other.

On a machine whose speed drifts, ``--rounds 3`` measures both by turns, thrice, and gives medians.
"""

from __future__ import annotations

import argparse
import compileall
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from compat_tests.apache.jars import PeerMissing, jars
from compat_tests.bench import profile, record, report, sdk_report
from compat_tests.bench.model import APACHE, GEMINGA, Outcome
from compat_tests.bench.rounds import Rounds, turns
from compat_tests.bench.rows import ROWS
from compat_tests.bench.sdk_rows import CLIENT_ROWS, ClientOutcome
from compat_tests.bench.side import Side
from compat_tests.processes import ROOT

RECORD = "benchmarks.json"
SERVERS = ("protocol", "bookie_core", "broker_core", "proxy", "sdk")


def main() -> int:
    """Run the rows that were asked for; 1 when one failed to run, 0 otherwise."""
    options = _options()
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    kinds = [kind for kind in (GEMINGA, APACHE) if options.side in (None, kind)]
    try:
        jars()
    except PeerMissing as reason:
        sys.exit(f"The load programs need Apache's Java client: {reason}")
    folder: Path = options.write or ROOT / "docs"
    folder.mkdir(parents=True, exist_ok=True)  # a wrong one is to be told before, not after
    for package in SERVERS:  # as pip does when it installs: a start doesn't compile
        compileall.compile_dir(str(ROOT / package), quiet=2)
    run = report.this_run(options.rounds)
    outcomes = [Outcome(row) for row in rows]
    clients = [
        ClientOutcome(row) for row in CLIENT_ROWS if not options.only or row.name in options.only
    ]
    profiles: list[profile.Profile] = []
    rounds = Rounds()
    work_dir = Path(tempfile.mkdtemp(prefix="bench-", dir=options.work_dir))
    try:
        for kind in turns(kinds, options.rounds):
            _measure(Side(kind, work_dir, quick=options.quick), outcomes, clients, rounds)
            # Some ten gigabytes, without which the other one's disk may be too full to write.
            shutil.rmtree(work_dir / f"{kind}-shared", ignore_errors=True)
        if GEMINGA in kinds and not options.no_profile:
            profiles = profile.profiles(Side(GEMINGA, work_dir, quick=options.quick))
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    report.show(outcomes, kinds)
    sdk_report.show(clients)
    if not options.quick:
        record.update(folder / RECORD, run, outcomes, clients, profiles)
        _write(folder)
    failures = [outcome.failures for outcome in outcomes] + [each.failures for each in clients]
    return 1 if any(failures) else 0


def _write(folder: Path) -> None:
    """The document from the record."""
    outcomes = record.outcomes_of(folder / RECORD, ROWS)
    clients = record.clients_of(folder / RECORD, CLIENT_ROWS)
    runs = sorted({each.run for each in (*outcomes, *clients)})
    profiles = record.profiles_of(folder / RECORD)
    target = folder / "BENCHMARKS.md"
    report.write(target, outcomes, profiles, sdk_report.document(clients, runs), runs)
    print(f"written to {target}")


def _measure(
    side: Side,
    outcomes: Sequence[Outcome],
    clients: Sequence[ClientOutcome],
    rounds: Rounds,
) -> None:
    try:
        for outcome in outcomes:
            if outcome.row.geminga_only and side.kind != GEMINGA:
                continue
            print(f"{side.kind}: {outcome.row.title} ...", file=sys.stderr, flush=True)
            try:
                outcome.figures[side.kind] = rounds.row(
                    outcome.row.name, side.kind, outcome.row.run(side)
                )
            except Exception as error:
                traceback.print_exc()
                outcome.failures[side.kind] = f"{type(error).__name__}: {error}"
                side.stop()
        for client in clients:
            print(f"{side.kind}: {client.row.name} ...", file=sys.stderr, flush=True)
            try:
                client.figures[side.kind] = rounds.clients(
                    client.row.name, side.kind, client.row.run(side)
                )
            except Exception as error:
                traceback.print_exc()
                client.failures[side.kind] = f"{type(error).__name__}: {error}"
    finally:
        side.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short loads: shows that all works")
    parser.add_argument(
        "--only",
        action="append",
        choices=[row.name for row in ROWS] + [each.name for each in CLIENT_ROWS],
        help="this row; repeatable",
    )
    parser.add_argument(
        "--rounds", type=_count, default=1, help="measure both by turns so often; medians are given"
    )
    sides = parser.add_mutually_exclusive_group()
    for kind in (GEMINGA, APACHE):
        sides.add_argument(f"--{kind}-only", dest="side", action="store_const", const=kind)
    parser.add_argument("--no-profile", action="store_true", help="leave the profiles out")
    parser.add_argument("--write", type=Path, help="write the figures into this folder, not docs")
    parser.add_argument("--work-dir", type=Path, help="where servers keep their data meanwhile")
    return parser.parse_args()


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count from 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
