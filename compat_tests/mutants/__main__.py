"""`python -m compat_tests.mutants`: does a test find each of the recorded mistakes?"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from compat_tests.mutants.records import ROOT, Mutant, faults, load
from compat_tests.mutants.runner import Copy, Outcome, Turns


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a mistake was found by no test and isn't explained, or a record is no good."""
    parser = argparse.ArgumentParser(prog="compat_tests.mutants", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the records and run nothing")
    parser.add_argument("--only", action="append", default=[], help="an area, or a part of names")
    parser.add_argument("--jobs", type=int, default=2, help="copies of the tree side by side")
    parser.add_argument("--verbose", action="store_true", help="print what pytest printed")
    parser.add_argument("--trust", action="store_true", help="don't run the tests unchanged first")
    chosen = parser.parse_args(arguments)
    mutants = _chosen(load(), chosen.only)
    if not mutants:
        parser.error("no record has such a name")
    if wrong := faults(mutants):
        print("\n".join(wrong))
        return 1
    if chosen.list:
        for mutant in mutants:
            note = f"; survives: {mutant.survives}" if mutant.survives else ""
            print(f"{mutant.name}  {mutant.file}\n    {mutant.why}{note}")
        return 0
    began_s = time.monotonic()
    jobs = max(1, min(chosen.jobs, len(mutants)))
    with tempfile.TemporaryDirectory(prefix="geminga-mutants-") as folder:
        copies = [Copy(ROOT, Path(folder) / str(n)) for n in range(jobs)]
        copies[0].check()
        if not chosen.trust and not _all_pass(copies[0], mutants):
            return 1
        outcomes = _run(copies, mutants, verbose=chosen.verbose)
    return _report(mutants, outcomes, time.monotonic() - began_s)


def _chosen(mutants: Sequence[Mutant], parts: Sequence[str]) -> list[Mutant]:
    """Those of the named areas, and those that have one of the other words in their names."""
    areas = {mutant.area for mutant in mutants}.intersection(parts)
    words = [part for part in parts if part not in areas]
    return [
        mutant
        for mutant in mutants
        if not parts or mutant.area in areas or any(word in mutant.name for word in words)
    ]


def _all_pass(copy: Copy, mutants: Sequence[Mutant]) -> bool:
    """Whether the tests pass without any mistake: else they would find everything."""
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    outcome = copy.run(tests, limit_s=1800)
    print(f"{len(tests)} tests or files without a mistake: {outcome.duration_s:.0f} s", flush=True)
    if not outcome.passed:
        print(f"{outcome.output}\na test fails without any mistake: {outcome.found_by}")
    return outcome.passed


def _run(copies: Sequence[Copy], mutants: Sequence[Mutant], *, verbose: bool) -> dict[str, Outcome]:
    turns = Turns(mutants)
    outcomes: dict[str, Outcome] = {}

    def work(copy: Copy) -> None:
        while (mutant := turns.next()) is not None:
            outcome = outcomes[mutant.name] = copy.run_with(mutant)
            print(_line(mutant, outcome), flush=True)
            if verbose or outcome.broken:
                print(outcome.output, flush=True)

    threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def _line(mutant: Mutant, outcome: Outcome) -> str:
    if outcome.passed:
        said = "SURVIVED" + (", as explained" if mutant.survives else "")
    else:
        said = outcome.found_by or f"BROKEN: {outcome.broken}"
    return f"{mutant.name:48} {outcome.duration_s:5.1f} s  {said}"


def _report(mutants: Sequence[Mutant], outcomes: dict[str, Outcome], took_s: float) -> int:
    """Print the totals; the exit code."""
    survived = [m for m in mutants if outcomes[m.name].passed]
    broken = [m for m in mutants if outcomes[m.name].broken]
    killed = len(mutants) - len(survived) - len(broken)
    unexplained = [m for m in survived if not m.survives]
    wrongly = [m for m in mutants if m.survives and m not in survived and m not in broken]
    print(f"\n{len(mutants)} mistakes: {killed} found, {len(survived)} survived, ", end="")
    print(f"{len(broken)} not tried; {took_s:.0f} s")
    for mutant in survived:
        print(f"  SURVIVED {mutant.name}: {mutant.survives or 'no test finds it'}")
    for mutant in wrongly:
        print(f"  {mutant.name} is found, though its record explains why it can't be")
    return 1 if unexplained or broken or wrongly else 0


if __name__ == "__main__":
    sys.exit(main())
