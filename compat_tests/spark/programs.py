"""Programs that tests run as drivers of their own: they print lines of JSON, which the test reads.

A process has one Spark, and a test that kills its driver, or has it on a cluster, must not do so to
the process of all tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from compat_tests.processes import ROOT, guarded
from compat_tests.spark.session import spark_environment


def start_program(
    module: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> subprocess.Popen[str]:
    """Start `python -m module` with the tests' Spark environment, its output in pipes."""
    return subprocess.Popen(
        guarded([python, "-m", module, *arguments]),
        cwd=ROOT,
        env={**os.environ, **spark_environment(python), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_program(
    module: str,
    *arguments: str,
    timeout_s: float = 200,
    env: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> list[Any]:
    """Run it to its end; the JSON values that it printed, a line each. Raises AssertionError with
    the end of what it said when it fails.
    """
    process = start_program(module, *arguments, env=env, python=python)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"{module} did not end in {timeout_s:g} s:\n{err[-4000:]}") from None
    assert process.returncode == 0, f"{module} ended with {process.returncode}:\n{err[-4000:]}"
    return [json.loads(line) for line in out.splitlines()]
