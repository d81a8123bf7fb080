"""The plugin that spreads the tests over workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_a_test_that_ends_its_worker_fails_once(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    path = folder / "test_ends.py"
    path.write_text("import os\n\ndef test_ends(): os._exit(1)\n\ndef test_stays(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "compat_tests.side_by_side", "-n", "2"]
    command += ["-q", "-c", str(tmp_path / "pytest.ini"), str(path)]
    environment = {name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.stdout.splitlines()[-1].startswith("1 failed, 1 passed")
