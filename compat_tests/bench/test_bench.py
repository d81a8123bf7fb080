"""The bench's own arithmetic: targets, profiles, the written document."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from compat_tests.bench import bounds, profile, record, report, sdk_report
from compat_tests.bench.model import APACHE, GEMINGA, Measure, Outcome, Row
from compat_tests.bench.multi_rows import compared
from compat_tests.bench.rounds import Rounds, turns
from compat_tests.bench.rows import ROWS
from compat_tests.bench.sdk_rows import (
    BLOCKING,
    CLIENT_ROWS,
    OFFICIAL,
    TRIO,
    ClientOutcome,
    ClientRow,
    Figure,
    Target,
)
from compat_tests.bench.side import LoadFailed, MemoryWatch, run_program

FASTER = Measure("rate", "publishes", "msg/s", ratio_min=1.5, ratio_aim=2.0)
SOONER = Measure("p50", "latency", "ms", ratio_max=0.7)
ENOUGH = Measure("lookups", "lookups", "1/s", geminga_min=100.0)
SMALLER = Measure("rss", "memory", "MB", geminga_max=100.0)


def outcome(**figures: tuple[float | None, float | None]) -> Outcome:
    """Figures of a row on (Geminga, Apache)."""
    result = Outcome(Row("row", "Row", lambda _: {}, (FASTER, SOONER, SMALLER)))
    for position, kind in enumerate((GEMINGA, APACHE)):
        result.figures[kind] = {
            key: value for key, pair in figures.items() if (value := pair[position]) is not None
        }
    return result


@pytest.mark.parametrize(
    ("measure", "geminga", "apache", "held"),
    [
        (FASTER, 150.0, 100.0, True),
        (FASTER, 149.0, 100.0, False),
        (FASTER, 149.0, None, None),
        (FASTER, None, 100.0, None),
        (SOONER, 7.0, 10.0, True),
        (SOONER, 7.1, 10.0, False),
        (SMALLER, 99.0, None, True),
        (SMALLER, 100.0, 5.0, False),
        (ENOUGH, 100.0, None, True),
        (ENOUGH, 99.0, 5.0, False),
        (Measure("x", "x", "x"), 1.0, 1.0, None),
    ],
)
def test_targets(
    measure: Measure, geminga: float | None, apache: float | None, held: bool | None
) -> None:
    assert measure.held(geminga, apache) is held


def test_every_row_has_its_own_name_and_measures() -> None:
    names = [row.name for row in ROWS] + [row.name for row in CLIENT_ROWS]
    assert len(set(names)) == len(names)
    for row in ROWS:
        keys = [measure.key for measure in row.measures]
        assert keys
        assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("target", "ours", "official", "trio", "held"),
    [
        (Target(ratio_min=2.0), 200.0, 100.0, 200.0, True),
        (Target(ratio_min=2.0), 199.0, 100.0, 199.0, False),
        (Target(ratio_min=2.0), None, 100.0, None, None),
        (Target(ratio_min=1.0, of_trio_min=0.7), 110.0, 100.0, 150.0, True),
        (Target(ratio_min=1.0, of_trio_min=0.7), 110.0, 100.0, 160.0, False),
        (Target(ratio_max=1.1), 1.2, 1.0, 1.2, False),
        (Target(value_max=40), 39.0, None, None, True),
        (Target(), 1.0, 1.0, 1.0, None),
    ],
)
def test_targets_of_faces(
    target: Target,
    ours: float | None,
    official: float | None,
    trio: float | None,
    held: bool | None,
) -> None:
    assert target.held(ours, official, trio) is held


def test_section_of_the_sdk() -> None:
    figure = Figure("per_s", "sends", "msg/s", {TRIO: Target(ratio_min=2.0), BLOCKING: Target()})
    outcome = ClientOutcome(ClientRow("row", "produce", (figure,)))
    assert outcome.row.clients == (TRIO, BLOCKING, OFFICIAL)
    rates = {TRIO: 3000.0, BLOCKING: 1500.0, OFFICIAL: 1000.0}
    outcome.figures[GEMINGA] = {client: {"per_s": rate} for client, rate in rates.items()}
    outcome.failures[APACHE] = "LoadFailed: no result"
    text = "\n".join(sdk_report.document([outcome]))
    assert "| sends | msg/s | geminga | trio | 3 000 | 1 000 | 3.00× |  | ≥ 2× | yes |  |" in text
    assert "| blocking | 1 500 | 1 000 | 1.50× | 0.50 | none |  |" in text
    assert "row did not run on apache: LoadFailed: no result" in text
    assert not list(sdk_report.document([]))


def test_profiles_count_own_time_and_time_within() -> None:
    stacks = (
        "main (a/cli.py:1);feed (a/frames.py:10) 30\nmain (a/cli.py:1);feed (a/frames.py:12) 10\n"
    )
    stacks += "main (a/cli.py:2);write (a/stream.py:7);feed (a/frames.py:10) 60\n"
    found = profile.summarise("title", stacks)
    assert found.samples == 100
    assert found.own == {"feed frames.py": 1.0}
    assert found.within == {
        "main cli.py": 1.0,
        "feed frames.py": 1.0,
        "write stream.py": 0.6,
    }


def test_written_document_keeps_the_notes(tmp_path: Path) -> None:
    path = tmp_path / "BENCHMARKS.md"
    first = outcome(rate=(80_000.0, 30_000.0), p50=(9.0, 10.0), rss=(80.0, 300.0))
    report.write(path, [first], [profile.Profile("Publish", 10, {"a": 0.5}, {"b": 0.9})])
    text = path.read_text()
    assert "| publishes | msg/s | 80 000 | 30 000 | 2.67× | ≥ 1.5×, aim 2× | yes |  |" in text
    assert "- `row`: latency: 9.00 ms, 0.90× Apache's; target ≤ 0.7×" in text
    assert "| `a` | 50.0% | `b` | 90.0% |" in text
    path.write_text(text + "By hand.\n")
    report.write(path, [outcome(rate=(1.0, 1.0))], [])
    assert path.read_text().endswith(report.NOTES_MARK + "\nBy hand.\n")
    assert "80 000" not in path.read_text()


def test_a_row_measured_again_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    row, other = outcome(rate=(3.0, 1.0)), outcome(rate=(5.0, 1.0))
    other.row = replace(other.row, name="other")
    record.update(path, "Monday", [row, other], [], [profile.Profile("P", 1, {"a": 1.0}, {})])
    again, failed = outcome(rate=(4.0, None)), Outcome(other.row, failures={GEMINGA: "no"})
    again.figures.pop(APACHE)
    record.update(path, "Tuesday", [again, failed], [], [])
    first, second = record.outcomes_of(path, [row.row, other.row, replace(row.row, name="third")])
    assert (first.run, second.run) == ("Tuesday", "Monday")
    assert first.figures == {GEMINGA: {"rate": 4.0}}
    assert second.figures == {GEMINGA: {"rate": 5.0}, APACHE: {"rate": 1.0}}
    assert [each.title for each in record.profiles_of(path)] == ["P"]
    report.write(tmp_path / "out.md", [first, second], [], runs=["Monday", "Tuesday"])
    text = (tmp_path / "out.md").read_text()
    assert "- 2: Tuesday" in text
    assert "| publishes | msg/s | 4.00 |  |  | ≥ 1.5×, aim 2× |  | 2 |" in text


def test_both_servers_are_measured_by_turns() -> None:
    assert list(turns((GEMINGA, APACHE), 1)) == [GEMINGA, APACHE]
    assert list(turns((GEMINGA, APACHE), 3)) == [GEMINGA, APACHE, APACHE, GEMINGA, GEMINGA, APACHE]


def test_rounds_give_medians_of_what_all_gave() -> None:
    rounds = Rounds()
    for rate in (1.0, 5.0, 3.0):
        rounds.row("row", APACHE, {"rate": 0.0})
        found = rounds.row("row", GEMINGA, {"rate": rate, f"only_{rate}": 1.0})
    assert found == {"rate": 3.0}
    rounds.clients("row", GEMINGA, {"trio": {"rate": 2.0}})
    by_client = rounds.clients("row", GEMINGA, {"trio": {"rate": 4.0}, "aio": {"rate": 9.0}})
    assert by_client == {"trio": {"rate": 3.0}}


def test_failed_loads_are_not_figures() -> None:
    program = [sys.executable, "-c"]
    assert run_program([*program, 'print(\'noise\'); print(\'{"rate": 2, "error": ""}\')']) == {
        "rate": 2
    }
    with pytest.raises(LoadFailed, match="3 operations failed: Timeout"):
        run_program([*program, 'print(\'{"failed": 3, "error": "Timeout"}\')'])
    with pytest.raises(LoadFailed, match="no result"):
        run_program([*program, "raise SystemExit(4)"])


def test_growth_compares_the_end_with_the_settled_part() -> None:
    watch = MemoryWatch.__new__(MemoryWatch)
    watch.samples = [10, 50, 100, 100, 100, 100, 150, 150]
    assert watch.peak_bytes() == 150
    assert watch.growth_bytes() == 50


def test_two_servers_are_compared_by_turns_that_follow_each_other() -> None:
    costs = {"one": 10.0, "two": 12.0}
    asked: list[str] = []

    def turn(prefix: str) -> dict[str, float]:
        asked.append(prefix)
        # The first ones are dearer, and the machine gets slower after three rounds.
        slowness = 9.0 if len(asked) <= 2 else 1.0 if len(asked) <= 8 else 3.0
        return {"cpu_us": costs[prefix] * slowness}

    found = compared(turn, "load", 5)

    assert asked == ["one", "two", *("one", "two", "two", "one") * 2, "one", "two"]
    assert found == {"one_load_cpu_us": 10.0, "two_load_cpu_us": 12.0, "load_ratio": 1.2}


@pytest.mark.slow
def test_the_broker_that_does_nothing_serves_both_clients() -> None:
    found = bounds.measure(1, 0.001)
    assert list(found) == [name for name, _, _ in bounds.loads(1.0)]
    assert all(per_s > 0 for per_s in found.values())
