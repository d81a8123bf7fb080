"""Our SDK beside the official Python client: the same work on the same broker, each measurement in
a process and on a topic of its own. Medians of some runs, which take turns.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from compat_tests.bench.side import Side, run_program

TRIO, BLOCKING, AIO, OFFICIAL = "trio", "blocking", "aio", "official"
FACES = (TRIO, BLOCKING, AIO)
RUNS = 3

_IMPORTS = {
    TRIO: ("geminga", "connect"),
    BLOCKING: ("geminga.blocking", "connect"),
    AIO: ("geminga.aio", "connect"),
    OFFICIAL: ("pulsar", "Client"),
}
"""Module, and what a program uses of it first: ours read the rest of themselves then."""

_IMPORT_PROGRAM = """
import importlib, json, time
began = time.perf_counter()
module = importlib.import_module("{module}")
seconds = time.perf_counter() - began
module.{name}
used_seconds = time.perf_counter() - began
# Not getrusage: what it tells is inherited from the program that started this one.
lines = open("/proc/self/status").read().splitlines()
peak_kib = int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
times = {{"seconds": seconds, "used_seconds": used_seconds}}
print(json.dumps(times | {{"rss_mb": peak_kib * 1024 / 1e6}}))
"""


@dataclass(frozen=True)
class Target:
    """What a face must reach; ratios are its figure over the official client's, or the Trio
    face's.
    """

    ratio_min: float | None = None
    ratio_max: float | None = None
    of_trio_min: float | None = None
    value_max: float | None = None

    def text(self, unit: str) -> str:
        """As a reader sees it."""
        parts = []
        if self.ratio_min is not None:
            parts.append(f"≥ {self.ratio_min:g}×")
        if self.ratio_max is not None:
            parts.append(f"≤ {self.ratio_max:g}×")
        if self.of_trio_min is not None:
            parts.append(f"≥ {self.of_trio_min:g} of Trio's")
        if self.value_max is not None:
            parts.append(f"< {self.value_max:g} {unit}")
        return ", ".join(parts) or "none"

    def held(self, ours: float | None, official: float | None, trio: float | None) -> bool | None:
        """Whether it is reached; None when there is none, or nothing to compare with."""
        if ours is None:
            return None
        verdicts = []
        if official:
            if self.ratio_min is not None:
                verdicts.append(ours / official >= self.ratio_min)
            if self.ratio_max is not None:
                verdicts.append(ours / official <= self.ratio_max)
        if trio and self.of_trio_min is not None:
            verdicts.append(ours / trio >= self.of_trio_min)
        if self.value_max is not None:
            verdicts.append(ours < self.value_max)
        return all(verdicts) if verdicts else None


@dataclass(frozen=True)
class Figure:
    """One figure of a row, and its target for each face that is shown."""

    key: str
    title: str
    unit: str
    targets: Mapping[str, Target]


@dataclass(frozen=True)
class ClientRow:
    """Work that every client is given. `full` and `quick` are counts; a `filled` topic has them
    before.
    """

    name: str
    mode: str
    figures: tuple[Figure, ...]
    full: int = 0
    quick: int = 0
    filled: bool = False
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def clients(self) -> tuple[str, ...]:
        """Who does it."""
        return (*(face for face in FACES if face in self.figures[0].targets), OFFICIAL)

    def run(self, side: Side) -> dict[str, dict[str, float]]:
        """Figures of each client. Raises LoadFailed."""
        found: dict[str, list[dict[str, float]]] = {client: [] for client in self.clients}
        for _ in range(1 if side.quick else RUNS):
            for client, runs in found.items():
                runs.append(self._once(side, client))
        return {
            client: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            for client, runs in found.items()
        }

    def _once(self, side: Side, client: str) -> dict[str, float]:
        if self.mode == "import":
            module, name = _IMPORTS[client]
            program = _IMPORT_PROGRAM.format(module=module, name=name)
            return run_program([sys.executable, "-c", program])
        topic = side.topic()
        count = self.quick if side.quick else self.full
        if self.filled:
            _load(side, TRIO, "produce", topic, count, self.options)
        mode = self.mode
        if client == OFFICIAL:
            mode = mode.removesuffix("-many")
        return _load(side, client, mode, topic, count, self.options)


def _load(
    side: Side, client: str, mode: str, topic: str, count: int, options: Mapping[str, object]
) -> dict[str, float]:
    module = "sdk_official" if client == OFFICIAL else "sdk_load"
    program = [sys.executable, "-m", f"compat_tests.bench.{module}", mode, f"--face={client}"]
    program += [f"--url={side.server.service_url}", f"--topic={topic}", f"--count={count}"]
    return run_program([*program, *(f"--{name}={value}" for name, value in options.items())])


@dataclass
class ClientOutcome:
    """What a row gave: kind of server to client to figures, or to the reason for none."""

    row: ClientRow
    figures: dict[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    run: str = ""
    """The run that the figures are of, in words."""

    def figure(self, kind: str, client: str, key: str) -> float | None:
        """One figure, None when it was not measured."""
        return self.figures.get(kind, {}).get(client, {}).get(key)


def _faces(trio: Target) -> dict[str, Target]:
    other = Target(ratio_min=1.0, of_trio_min=0.7)
    return {TRIO: trio, BLOCKING: other, AIO: other}


def _with_callbacks(trio: Target) -> dict[str, Target]:
    return {TRIO: trio, **_same(Target(ratio_min=1.0), BLOCKING, AIO)}


def _rates(title: str, targets: Mapping[str, Target]) -> tuple[Figure, ...]:
    return (
        Figure("per_s", title, "msg/s", targets),
        Figure("client_cpu_us", f"{title}: client's CPU", "µs", dict.fromkeys(targets, Target())),
    )


def _same(target: Target, *faces: str) -> dict[str, Target]:
    return dict.fromkeys(faces, target)


CLIENT_ROWS: tuple[ClientRow, ...] = (
    ClientRow(
        "sdk-produce-100",
        "produce",
        _rates(
            "pipelined produce with callbacks, 100 B, batched",
            _with_callbacks(Target(ratio_min=2.0)),
        ),
        400_000,
        20_000,
        options={"size": 100},
    ),
    ClientRow(
        "sdk-produce-1k",
        "produce",
        _rates(
            "pipelined produce with callbacks, 1 KiB, batched",
            _with_callbacks(Target(ratio_min=2.0)),
        ),
        200_000,
        20_000,
    ),
    ClientRow(
        "sdk-forget-100",
        "forget",
        _rates("produce, fire and forget, 100 B, batched", _faces(Target(ratio_min=1.0))),
        400_000,
        20_000,
        options={"size": 100},
    ),
    ClientRow(
        "sdk-forget-1k",
        "forget",
        _rates("produce, fire and forget, 1 KiB, batched", _faces(Target(ratio_min=1.0))),
        200_000,
        20_000,
    ),
    ClientRow(
        "sdk-produce-single",
        "produce",
        _rates(
            "pipelined produce with callbacks, 1 KiB, unbatched",
            _with_callbacks(Target(ratio_min=1.5)),
        ),
        100_000,
        10_000,
        options={"batching": 0},
    ),
    ClientRow(
        "sdk-consume",
        "consume",
        _rates("receive and acknowledge, from batches", _faces(Target(ratio_min=1.0))),
        300_000,
        20_000,
        filled=True,
    ),
    ClientRow(
        "sdk-consume-many",
        "consume-many",
        _rates("receive_batch, from batches", _faces(Target(ratio_min=1.0))),
        300_000,
        20_000,
        filled=True,
    ),
    ClientRow(
        "sdk-consume-single",
        "consume",
        _rates("receive and acknowledge, single entries", _same(Target(), *FACES)),
        100_000,
        10_000,
        filled=True,
        options={"batching": 0},
    ),
    ClientRow(
        "sdk-shared",
        "consume",
        _rates("Shared, from batches", _same(Target(ratio_min=1.0), TRIO)),
        300_000,
        20_000,
        filled=True,
        options={"type": "Shared"},
    ),
    ClientRow(
        "sdk-key-shared",
        "consume",
        _rates("Key_Shared, from key-based batches", _same(Target(ratio_min=1.0), TRIO)),
        300_000,
        20_000,
        filled=True,
        options={"type": "Key_Shared", "keyed": 1, "keys": 10},
    ),
    ClientRow(
        "sdk-ping",
        "ping",
        (
            Figure(
                "ms_p50",
                "send one at a time, p50",
                "ms",
                {TRIO: Target(ratio_max=1.1), BLOCKING: Target(), AIO: Target()},
            ),
        ),
        2000,
        200,
    ),
    ClientRow(
        "sdk-paced",
        "paced",
        (
            Figure(
                "ms_p50",
                "end to end at 5 000 msg/s, p50",
                "ms",
                _same(Target(), TRIO, AIO),
            ),
            Figure(
                "ms_p99",
                "end to end at 5 000 msg/s, p99",
                "ms",
                {TRIO: Target(ratio_max=1.0), AIO: Target()},
            ),
        ),
        40_000,
        5000,
    ),
    ClientRow(
        "sdk-import",
        "import",
        (
            Figure("seconds", "import", "s", _same(Target(value_max=0.15), *FACES)),
            Figure("used_seconds", "import and first use", "s", _same(Target(), *FACES)),
            Figure("rss_mb", "memory then", "MB", _same(Target(value_max=40), *FACES)),
        ),
    ),
    ClientRow(
        "sdk-many",
        "many",
        (
            Figure(
                "rss_mb",
                "memory of 1 000 producers and 1 000 consumers",
                "MB",
                _same(Target(), TRIO),
            ),
        ),
        1000,
        50,
    ),
)
