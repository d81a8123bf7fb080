"""The official Java client: every scenario of our ``Exerciser`` program, against both servers."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from compat_tests.apache import jars
from compat_tests.missing import JAVA_CLIENT, skipped_without
from compat_tests.processes import ServerProcess

_SOURCES = Path(jars.__file__).parent / "java"
_COMPRESSIONS = ("none", "lz4", "zlib", "zstd", "snappy")


def _scenarios() -> list[str]:
    """The names that the program registers, read from its sources."""
    files = ("Scenarios.java", "MoreScenarios.java", "CompactedScenarios.java")
    text = "".join((_SOURCES / name).read_text() for name in files)
    names = [name for name in re.findall(r'on\.add\("(\w+)"', text) if name != "compression_"]
    return names + [f"compression_{name}" for name in _COMPRESSIONS]


@pytest.fixture(scope="session")
def results(server: ServerProcess) -> dict[str, dict[str, Any]]:
    """One run of the whole program: scenario name to its outcome."""
    with skipped_without(JAVA_CLIENT):
        command = jars.java_command("Exerciser", [server.service_url, server.web_url])
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert outcomes, f"the program said nothing:\n{done.stderr[-2000:]}"
    return {outcome["name"]: outcome for outcome in outcomes}


@pytest.mark.java
@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", _scenarios())
def test_java_client(results: dict[str, dict[str, Any]], name: str) -> None:
    assert name in results, f"not run; these were: {', '.join(results)}"
    assert results[name]["ok"], results[name]["error"]
