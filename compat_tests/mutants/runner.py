"""Runs the tests of each mistake in a copy of the tree that holds that mistake and no other."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compat_tests.mutants.records import Mutant, applied

PACKAGES = ("protocol", "bookie_core", "broker_core", "proxy", "sdk")
TEST_LIMIT_S = 30
"""A test that takes longer has found the mistake by hanging."""

RUN_LIMIT_S = 180
"""All tests of a mistake together; then the run is ended, which counts as found too."""

_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)((?: - .*)?)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests said."""

    passed: bool
    found_by: str
    """The first failing test, and how it failed if it hung or died."""
    duration_s: float
    broken: str = ""
    """Why the run says nothing: no test was collected, or pytest itself failed."""
    output: str = ""


class Copy:
    """A copy of the tree, made anew; the working tree is never written to."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=source, capture_output=True, text=True, check=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            if (source / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, folder / name)

    def run(self, tests: Sequence[str], *, limit_s: float = RUN_LIMIT_S) -> Outcome:
        """Run the tests on the copy as it is, up to the first that fails."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--no-header"]
        command += ["--tb=short", "-p", "no:cacheprovider", "--show-capture=no"]
        command += [
            "-o",
            f"timeout={TEST_LIMIT_S}",
            "--basetemp",
            str(self.folder / ".tmp"),
            *tests,
        ]
        began_s = time.monotonic()
        with (self.folder / ".output").open("w+") as written:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment(), stdout=written, stderr=written,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = None
            _end(process)
            written.seek(0)
            output = written.read()
        return _judged(code, output, time.monotonic() - began_s)

    def run_with(self, mutant: Mutant) -> Outcome:
        """Run the mutant's tests on the copy with its mistake, which is taken back at the end."""
        path = self.folder / mutant.file
        text = path.read_text()
        try:
            self._write(path, applied(mutant, text))
            return self.run(mutant.tests)
        finally:
            self._write(path, text)

    def check(self) -> None:
        """Raises RuntimeError unless a test in the copy would import the copy's packages."""
        asked = "import geminga_broker, geminga; print(geminga_broker.__file__, geminga.__file__)"
        done = subprocess.run(
            [sys.executable, "-c", asked],
            cwd=self.folder, env=self._environment(), capture_output=True, text=True, check=True,
        )  # fmt: skip
        if not all(path.startswith(str(self.folder)) for path in done.stdout.split()):
            raise RuntimeError(f"the copy's tests would not test the copy, but {done.stdout}")

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(str(self.folder / name) for name in PACKAGES)
        # The short rounds of long models are enough.
        return {**os.environ, "PYTHONPATH": path, "GEMINGA_NIGHTLY": "0"}

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        # Python compares seconds and sizes only: a mistake of the same size would be overlooked.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def _end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End what the tests have started; a process that leads its own group ends itself."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _judged(code: int | None, output: str, duration_s: float) -> Outcome:
    failed = _FAILED.findall(output)
    name, rest = failed[0] if failed else ("", "")
    if code == 0:
        return Outcome(True, "", duration_s, output=output)
    if code is None:
        return Outcome(False, f"{name} hung: ended".strip(), duration_s, output=output)
    if code < 0:
        return Outcome(False, f"{name} died by signal {-code}".strip(), duration_s, output=output)
    if code == 1 and name:
        hung = " hung" if "Timeout (>" in rest or "Timeout (>" in output else ""
        return Outcome(False, name + hung, duration_s, output=output)
    broken = f"pytest ended with {code}: {(output.strip().splitlines() or ['nothing'])[-1]}"
    return Outcome(False, "", duration_s, broken, output)


class Turns:
    """Hands out the mistakes, one after the other, to whoever has a free copy."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self._left = list(mutants)
        self._lock = threading.Lock()

    def next(self) -> Mutant | None:
        """The next mistake; None when all are taken."""
        with self._lock:
            return self._left.pop(0) if self._left else None
