"""Write requirements/*.lock from pyproject.toml and requirements/*.in (`make lock`)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def resolve(*requirements: str) -> list[str]:
    """Name==version of everything that pip would install for these requirements, our own package
    left out.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet"]
        command += ["--ignore-installed", "--report", str(report), *requirements]
        subprocess.run(command, check=True, cwd=ROOT)
        entries = json.loads(report.read_text())["install"]
    found = {entry["metadata"]["name"].lower(): entry["metadata"]["version"] for entry in entries}
    found.pop("geminga", None)
    return sorted(f"{name}=={version}" for name, version in found.items())


def main() -> None:
    """The locks: what a user runs, what development needs beside it, what the API reference is made
    with.
    """
    run = resolve(".[server]", "hatchling", "editables")
    dev = resolve("-r", "requirements/dev.in")
    docs = resolve("-r", "requirements/docs.in")
    for name, pins in (("run", run), ("dev", dev), ("docs", docs)):
        head = "# Made by `make lock`; the ranges stand in pyproject.toml.\n"
        text = head + "\n".join(pins) + "\n"
        (ROOT / "requirements" / f"{name}.lock").write_text(text)


if __name__ == "__main__":
    main()
