"""The soak's own parts: what it counts, when it calls a run wrong, and a short run in whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from compat_tests.soak.__main__ import main
from compat_tests.soak.plot import svg
from compat_tests.soak.samples import Held, Load, Sample, Spread, spread
from compat_tests.soak.tracks import Track
from compat_tests.soak.verdict import PROCESSES, faults_found, table

PERIOD_S = 100.0


def test_what_does_not_come_is_lost_once_its_time_is_over() -> None:
    track = Track(in_order=True)
    for number in range(3):
        track.confirm(number, float(number))
    track.come(0)
    track.come(2)
    assert track.settle(10.9, 10.0) == []
    assert not track.is_drained
    assert track.settle(11.0, 10.0) == [1]
    assert track.settle(99.0, 10.0) == []
    assert dict(track.counts) == {"confirmed": 3, "received": 2, "lost": 1}
    assert track.is_drained


def test_what_comes_again_is_neither_new_nor_out_of_order() -> None:
    track = Track(in_order=True)
    for number in range(5):
        assert track.come(number) is None
        track.confirm(number, 0.0)
    assert track.come(1) is None  # before its time is over
    track.settle(1.0, 1.0)
    assert track.come(2) is None  # and after
    assert dict(track.counts) == {"confirmed": 5, "received": 5, "again": 2, "lost": 0}


def test_order_is_that_of_a_key() -> None:
    track = Track(in_order=True)
    assert [track.come(5, "a"), track.come(3, "b"), track.come(4, "a")] == [None, None, 5]
    assert track.counts["disordered"] == 1
    anyhow = Track(in_order=False)
    assert [anyhow.come(5), anyhow.come(4)] == [None, None]


FLAT = {"rss_mb": 100.0, "descriptors": 30, "threads": 10, "data_mb": 300.0, "p99": 5.0}
NOTHING: Mapping[str, float] = {}


def sample(at_s: float, changed: Mapping[str, float] = NOTHING, fault: str = "") -> Sample:
    """A sample of a run that is flat but for what is given."""
    given = {**FLAT, **changed}
    held = Held(given["rss_mb"], int(given["descriptors"]), int(given["threads"]), 1.0)
    times = Spread(1.0, given["p99"], given["p99"] * 2, 100)
    counts = {"received": 10, "lost": int(given.get("lost", 0))}
    return Sample(
        at_s,
        dict.fromkeys(PROCESSES, held),
        given["data_mb"],
        Load(at_s, counts, {}, times, times, None),
        fault,
    )


def run_of(change: Callable[[float], Mapping[str, float]]) -> list[Sample]:
    """A sample each ten seconds, four periods."""
    return [sample(10.0 * n, change(10.0 * n)) for n in range(1, 41)]


def test_a_flat_run_is_well() -> None:
    assert faults_found(run_of(lambda _: NOTHING), PERIOD_S) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rss_mb": 131.0}, "server, memory in MB: from 100 to 131, above 130"),
        ({"descriptors": 51}, "proxy, descriptors: from 30 to 51, above 50"),
        ({"threads": 19}, "clients, threads: from 10 to 19, above 18"),
        ({"p99": 21.0}, "publish p99 in ms: from 5 to 21, above 20"),
        ({"data_mb": 651.0}, "data in MB: from 300 to 651, above 650"),
        ({"lost": 1}, "lost: 1"),
    ],
)
def test_what_has_grown_is_told(change: dict[str, float], said: str) -> None:
    grown = run_of(lambda at_s: change if at_s > 3 * PERIOD_S else NOTHING)
    assert said in faults_found(grown, PERIOD_S)


def test_times_within_a_fault_do_not_count() -> None:
    samples = run_of(lambda _: NOTHING)
    for number in range(30, 40, 2):
        samples[number] = sample(samples[number].at_s, {"p99": 9000.0}, "kill")
    assert faults_found(samples, PERIOD_S) == []
    assert "kill, kill" in table(samples, PERIOD_S)


def test_a_run_that_is_too_short_says_so() -> None:
    assert faults_found([sample(10.0)], PERIOD_S) == ["the run was too short to say what grows"]


def test_spread() -> None:
    assert spread([]) is None
    assert spread(n / 1000 for n in range(101)) == Spread(50.0, 99.0, 100.0, 101)


def test_the_picture_has_all_panels() -> None:
    picture = svg(run_of(lambda _: NOTHING), "a < b")
    assert picture.count("<polyline") == 1 + 3 * 3 + 1
    assert "a &lt; b" in picture


@pytest.mark.slow
def test_a_short_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quarter of a minute with a kill: whether it was flat can't be said, and isn't asked."""
    given = {"hours": 0.004, "rate": 100, "fault-each-s": 6, "restart-each-s": 4, "write": tmp_path}
    monkeypatch.setattr(
        "sys.argv", ["soak", *(f"--{name}={value}" for name, value in given.items())]
    )
    main()
    said = capsys.readouterr().out
    assert "kill -9 and start" in said
    samples = [
        msgspec.json.decode(line, type=Sample)
        for line in (tmp_path / "soak.jsonl").read_bytes().splitlines()
    ]
    counts = samples[-1].load.counts
    assert counts["confirmed"] > 500
    assert counts["received"] >= counts["confirmed"]
    for wrong in ("lost", "disordered", "stale", "twice"):
        assert counts.get(wrong, 0) == 0, (wrong, counts)
    assert set(samples[0].held) == set(PROCESSES)
    assert (tmp_path / "soak.svg").read_text().startswith("<svg")
    assert "| until | confirmed |" in (tmp_path / "soak.md").read_text()
