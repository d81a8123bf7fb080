"""`examples/spark_tour.py` runs as it stands, on a broker of its own."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

from compat_tests.processes import ROOT, guarded
from compat_tests.spark.session import spark_environment


def test_the_tour(tmp_path: Path) -> None:
    plot = tmp_path / "tour.png"
    tour = [sys.executable, str(ROOT / "examples" / "spark_tour.py"), "--plot", str(plot)]
    done = subprocess.run(
        guarded(tour),
        cwd=tmp_path,
        env={**os.environ, **spark_environment(), "MPLCONFIGDIR": str(tmp_path / "matplotlib")},
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for line in (
        "2880 readings\n",
        "2880 readings streamed\n0 after a restart",
        "written once\nwritten and again\n480 hours of 480\n",
    ):
        assert line in done.stdout
    image = plot.read_bytes()
    assert image.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">II", image[16:24]) == (1320, 660)
    assert b"IEND" in image[-12:]
