"""`make spark-versions`: the connector's tests on other versions of PySpark.

Each version has an environment of its own, in `$GEMINGA_PEERS_DIR` or `~/.cache/geminga-peers`: its
PySpark, and links to all other packages of the environment that runs this. It is made the first
time (half a gigabyte, a minute or two).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from compat_tests.apache.jars import peers_dir
from compat_tests.processes import ROOT
from compat_tests.spark.environments import linked_environment

VERSIONS = ("4.0.5", "4.1.4", "4.2.1")
"""The newest of each that `pyproject.toml` allows, beside the version of the lock file."""
_VERSION = re.compile(r"\d+(\.\d+)+")
TESTS = ("sdk/pyspark_pulsar", "compat_tests/spark")
ALLOWED = "ignore:unclosed <socket.socket:ResourceWarning"
"""Older ones leave the sockets between Python and the engine to the garbage collector."""


def environment(version: str) -> Path:
    """The interpreter with this PySpark. Raises CalledProcessError if there is none to be had."""
    folder = peers_dir() / f"pyspark-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = linked_environment(folder, without=("pyspark", "py4j"))
    if not list(folder.glob(f"lib/python*/site-packages/pyspark-{version}.dist-info")):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
        subprocess.run([*pip, "install", "--quiet", f"pyspark=={version}"], check=True)
    program = python.with_name("geminga")
    program.write_text(f"#!{python}\nfrom geminga.cli import main\nmain()\n")
    program.chmod(0o755)
    return python


def main() -> int:
    """Exit code 1 if tests failed on one of them. Arguments that are no versions are pytest's."""
    versions = [each for each in sys.argv[1:] if _VERSION.fullmatch(each)]
    others = [each for each in sys.argv[1:] if each not in versions]
    codes: dict[str, int] = {}
    for version in versions or VERSIONS:
        python = environment(version)
        print(f"PySpark {version}", flush=True)
        command = [str(python), "-m", "pytest", "-W", ALLOWED, *TESTS, *others]
        codes[version] = subprocess.run(command, cwd=ROOT, check=False).returncode
    for version, code in codes.items():
        print(f"PySpark {version}: {'failed' if code else 'passed'}")
    return 1 if any(codes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
