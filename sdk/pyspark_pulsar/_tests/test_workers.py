"""Which Python Spark's workers run."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyspark_pulsar._workers import ensure_workers_python


def python3_in(folder: Path) -> str:
    """An environment with a `python3`; the folder is a PATH."""
    folder.mkdir()
    python = folder / "python3"
    # As environments do: the file is the same for all.
    python.symlink_to(Path(sys.executable).resolve())
    return str(folder)


def test_workers_run_the_programs_python(tmp_path: Path) -> None:
    path = python3_in(tmp_path / "other")
    own = python3_in(tmp_path / "own") + "/python"
    for environ in ({"PATH": path}, {"PATH": ""}):
        ensure_workers_python(environ, own)
        assert environ["PYSPARK_PYTHON"] == own


def test_a_chosen_python_is_kept(tmp_path: Path) -> None:
    path = python3_in(tmp_path / "other")
    own = python3_in(tmp_path / "own") + "/python"
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        environ = {"PATH": path, name: "x"}
        ensure_workers_python(environ, own)
        assert environ == {"PATH": path, name: "x"}
    for executable in ("", str(tmp_path / "other" / "python")):
        environ = {"PATH": path}
        ensure_workers_python(environ, executable)
        assert environ == {"PATH": path}


def test_too_late_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = python3_in(tmp_path / "other")
    context = SimpleNamespace(SparkContext=SimpleNamespace(_active_spark_context=object()))
    monkeypatch.setitem(sys.modules, "pyspark.core.context", context)
    with caplog.at_level(logging.WARNING, "pyspark_pulsar"):
        ensure_workers_python({"PATH": path}, "/venv/bin/python")
    assert f"its workers run {path}/python3, not this program's Python /venv/bin/python" in (
        caplog.text
    )
    assert "DATA_SOURCE_NOT_FOUND" in caplog.text


@pytest.mark.parametrize("module", ["pyspark_pulsar", "pyspark.sql.worker"])
def test_importing_does_it_but_not_in_a_worker(tmp_path: Path, module: str) -> None:
    environ = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    environ["PATH"] = python3_in(tmp_path / "other")
    program = (
        "import os, sys, types\n"
        f"sys.modules['__main__'].__spec__ = types.SimpleNamespace(name={module!r})\n"
        "import pyspark_pulsar\n"
        "print(os.environ.get('PYSPARK_PYTHON'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    wanted = sys.executable if module == "pyspark_pulsar" else "None"
    assert done.stdout.strip() == wanted
