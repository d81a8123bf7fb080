"""``make soak``: hours of mixed load through broker and proxy, with restarts and faults, and
whether memory, descriptors, threads, data and latency stay flat (spec OP-13).

Prints a line each minute and a table by the hour (by the quarter of an hour in runs of less than
three hours); writes `soak.jsonl` (a line each ten seconds), `soak.md` and `soak.svg` to `--write`.
Exit code 1 if something was lost, twice, out of order, or has grown.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec

from compat_tests.processes import ROOT, guarded
from compat_tests.soak import plot, verdict
from compat_tests.soak.samples import Held, Load, Sample, folder_mb, held_by
from compat_tests.soak.servers import Servers, running

DRAIN_S = 400.0
"""What the load program may take behind its time."""


class Run:
    """Samples, and the times of faults."""

    def __init__(self, servers: Servers, clients: subprocess.Popen[bytes], out: Path) -> None:
        self._servers = servers
        self._clients = clients
        self._out = out
        self.samples: list[Sample] = []

    def follow(self, seconds: float, fault_each_s: float, restart_each_s: float) -> None:
        """Until the load program ends. Raises StartError, RuntimeError."""
        assert self._clients.stdout is not None
        began = time.monotonic()
        next_fault, next_restart = began + fault_each_s, began + restart_each_s
        fault = ""
        with (self._out / "soak.jsonl").open("wb") as file:
            for line in self._clients.stdout:
                now = time.monotonic()
                self._note(now - began, msgspec.json.decode(line, type=Load), fault)
                file.write(msgspec.json.encode(self.samples[-1]) + b"\n")
                fault = ""
                if now - began > seconds - min(20, seconds / 10):
                    continue  # what is under way is to come
                if now >= next_restart:
                    next_restart += restart_each_s
                    fault = self._servers.restart()
                elif now >= next_fault:
                    next_fault += fault_each_s
                    fault = self._servers.trouble()
        code = self._clients.wait(60)
        if code != 0:
            raise RuntimeError(f"the load program ended with {code}")

    def _note(self, at_s: float, load: Load, fault: str) -> None:
        pids = {
            "server": self._servers.server.pid,
            "proxy": self._servers.proxy.pid,
            "clients": self._clients.pid,
        }
        held = {name: held_by(pid) for name, pid in pids.items()}
        present: dict[str, Held] = {name: each for name, each in held.items() if each is not None}
        sample = Sample(at_s, present, folder_mb(self._servers.data), load, fault)
        self.samples.append(sample)
        if fault or int(at_s // 60) != int(
            (self.samples[-2].at_s if self.samples[1:] else 0) // 60
        ):
            print(_line(sample), flush=True)


def _line(sample: Sample) -> str:
    counts, load = sample.load.counts, sample.load
    shown = [f"{sample.at_s / 60:6.1f} min"]
    shown += [f"{name} {counts.get(name, 0)}" for name in ("confirmed", "received", "lost")]
    if load.publish_ms is not None:
        shown.append(f"publish p99 {load.publish_ms.p99:.1f} ms")
    shown += [f"{name} {each.rss_mb:.0f} MB" for name, each in sample.held.items()]
    return ", ".join([*shown, sample.fault] if sample.fault else shown)


@contextmanager
def load_program(
    servers: Servers, rate: float, seconds: float, interval_s: float, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The load program, killed at the end."""
    command = [sys.executable, "-m", "compat_tests.soak.load"]
    command += [servers.server.service_url, servers.proxy.service_url, servers.server.web_url]
    command += [str(rate), str(seconds), str(interval_s)]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            guarded(command), stdout=subprocess.PIPE, stderr=errors, cwd=ROOT
        ) as program,
    ):
        try:
            yield program
        finally:
            program.kill()


def run(options: argparse.Namespace, folder: Path) -> int:
    """The exit code."""
    seconds = options.hours * 3600
    interval_s = min(10.0, seconds / 24)
    period_s = 3600.0 if options.hours > 3 else seconds / 4
    out: Path = options.write
    out.mkdir(parents=True, exist_ok=True)
    with (
        running(folder, Random(options.seed)) as servers,
        load_program(servers, options.rate, seconds, interval_s, out / "soak.log") as clients,
    ):
        whole = Run(servers, clients, out)
        whole.follow(seconds, options.fault_each_s, options.restart_each_s)
        servers.end()
    return tell(whole.samples, period_s, options, out)


def tell(samples: Sequence[Sample], period_s: float, options: argparse.Namespace, out: Path) -> int:
    """Print and write what was found; 1 if something is wrong."""
    title = f"{options.hours:g} h of {options.rate:g} messages a second, seed {options.seed}"
    wrong = verdict.faults_found(samples, period_s)
    last = samples[-1].load
    errors = ", ".join(f"{name} {count}" for name, count in sorted(last.errors.items()))
    counts = ", ".join(f"{name} {count}" for name, count in sorted(last.counts.items()))
    said = "; ".join(wrong) or "nothing lost, twice or out of order, and nothing has grown"
    text = "\n".join(
        [
            f"{title}.",
            "",
            verdict.table(samples, period_s),
            "",
            f"In all: {counts}.",
            "",
            f"Errors that clients were told and got over: {errors or 'none'}.",
            "",
            f"Verdict: {said}.",
            "",
        ]
    )
    print(text)
    (out / "soak.md").write_text(text)
    (out / "soak.svg").write_text(plot.svg(samples, title))
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description="Hours of mixed load with faults.")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=1000.0, help="messages a second, in all")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--fault-each-s", type=float, default=120.0)
    parser.add_argument("--restart-each-s", type=float, default=870.0)
    parser.add_argument("--write", type=Path, default=ROOT / "build" / "soak", help="a folder")
    given = parser.parse_args()
    for name in ("hours", "rate", "fault_each_s", "restart_each_s"):
        if getattr(given, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0")
    return given


def main() -> int:
    """The command."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        return run(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
