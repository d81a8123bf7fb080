"""One of the two servers under load: started when first needed, watched while it works."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from compat_tests.apache.jars import java_command
from compat_tests.apache.server import start_apache
from compat_tests.bench.model import APACHE
from compat_tests.processes import ROOT, ServerProcess, guarded, start_geminga

_LOAD_TIMEOUT_S = 900.0
MB = 1e6


class LoadFailed(Exception):
    """A load program ended without a result or with failed operations."""


class Side:
    """A kind of server, its data, and the load programs that are pointed at it."""

    def __init__(self, kind: str, work_dir: Path, *, quick: bool) -> None:
        self.kind = kind
        self.work_dir = work_dir
        self.quick = quick
        self._server: ServerProcess | None = None
        self._serial = 0

    @property
    def server(self) -> ServerProcess:
        """The running server; started on first use."""
        if self._server is None:
            self._server = self.start("shared")
        return self._server

    def start(self, name: str, *, options: Sequence[str] = ()) -> ServerProcess:
        """Start a server on the data of that name, new or left from an earlier one. Options are
        those of ``geminga standalone``.
        """
        if self._server is not None:
            raise RuntimeError("one server at a time, or they share the two cores")
        folder = self.work_dir / f"{self.kind}-{name}"
        if self.kind == APACHE:
            self._server = start_apache(folder, timeout_s=300, lean=False)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self._server = start_geminga(folder / "data", options=options, timeout_s=60)
        return self._server

    def stop(self) -> None:
        """Stop the server, if one runs, as its user would."""
        if self._server is not None:
            self._server.stop(timeout_s=60)
            self._server = None

    def forget(self, name: str) -> None:
        """Delete the data of that name."""
        shutil.rmtree(self.work_dir / f"{self.kind}-{name}", ignore_errors=True)

    def new_folder(self, name: str) -> Path:
        """An empty folder for data of that name."""
        self.forget(name)
        folder = self.work_dir / f"{self.kind}-{name}"
        folder.mkdir(parents=True)
        return folder

    def seconds(self, full: float, quick: float) -> float:
        """A duration, short when the run is only to show that all works."""
        return quick if self.quick else full

    def topic(self) -> str:
        """A fresh topic name."""
        self._serial += 1
        return f"persistent://public/default/bench-{os.getpid()}-{self._serial}"

    def java(self, mode: str, **options: object) -> dict[str, float]:
        """Run our Java load program and add what the server used meanwhile."""
        arguments = [mode, "--url", self.server.service_url]
        for name, value in options.items():
            arguments += [f"--{name.replace('_', '-')}", str(value)]
        return self._watched(java_command("Load", arguments, heap_mb=512, lean=False))

    def python(self, mode: str, **options: object) -> dict[str, float]:
        """Run the load program for the official Python client."""
        return self.module("python_load", mode, **options)

    def module(self, module: str, mode: str, **options: object) -> dict[str, float]:
        """Run a load program of this package."""
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        program = [sys.executable, "-m", f"compat_tests.bench.{module}"]
        return self._watched([*program, mode, f"--url={self.server.service_url}", *arguments])

    def _watched(self, command: Sequence[str]) -> dict[str, float]:
        server = self.server
        cpu_before = server.cpu_s()
        with MemoryWatch(server) as memory:
            result = run_program(command)
        result["server_cpu_s"] = server.cpu_s() - cpu_before
        result["rss_peak_mb"] = memory.peak_bytes() / MB
        result["rss_growth_mb"] = memory.growth_bytes() / MB
        return result


class MemoryWatch:
    """Samples a server's resident memory while a load runs."""

    def __init__(self, server: ServerProcess, period_s: float = 0.2) -> None:
        self.samples: list[int] = [server.rss_bytes()]
        self._server = server
        self._period_s = period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def peak_bytes(self) -> int:
        """The highest sample."""
        return max(self.samples)

    def growth_bytes(self) -> float:
        """Mean of the last quarter of the time less that of the second: what still grows."""
        quarter = max(1, len(self.samples) // 4)
        settled = self.samples[quarter : 2 * quarter] or self.samples
        return statistics.fmean(self.samples[-quarter:]) - statistics.fmean(settled)

    def _sample(self) -> None:
        while not self._stop.wait(self._period_s):
            try:
                self.samples.append(self._server.rss_bytes())
            except (ProcessLookupError, FileNotFoundError):
                return


def run_program(command: Sequence[str]) -> dict[str, float]:
    """Run a load program to its end; its last line is its result. Raises LoadFailed."""
    program = subprocess.Popen(
        guarded(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        output, errors = program.communicate(timeout=_LOAD_TIMEOUT_S)
    except BaseException:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        raise
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise LoadFailed(f"no result, code {program.returncode}: {errors[-1500:]}")
    result = json.loads(lines[-1])
    if result.get("failed"):
        raise LoadFailed(f"{result['failed']} operations failed: {result.get('error')}")
    return {key: value for key, value in result.items() if isinstance(value, int | float)}


def settle(seconds: float) -> None:
    """Let a server finish what it does after a load before the next one."""
    time.sleep(seconds)
