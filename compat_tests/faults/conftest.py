"""Servers of their own for the fault tests: they are killed, filled up and lied to."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.faults.attacked import attacked as attacked
from compat_tests.missing import skip_unpermitted
from compat_tests.processes import ServerProcess, start_geminga

# Acknowledgements reach the disk soon, so that what must not come again can be known in a test.
SETTINGS = {"managedLedgerDefaultMarkDeleteRateLimit": "2"}
TOPIC = "persistent://public/default/faults"

SMALL_DISK_BYTES = 256 << 20
SMALL_DISK = {**SETTINGS, "diskUsageThreshold": "0.95", "diskUsageLwmThreshold": "0.95"}
"""Settings of a server on a disk that the test alone fills: the thresholds that users have."""

Starter = Callable[..., ServerProcess]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room; skipped where mounting is not permitted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = f"size={SMALL_DISK_BYTES}"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        skip_unpermitted("mount is not installed")
        raise
    if done.returncode != 0:
        skip_unpermitted("mounting is not permitted")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def start(data_dir: Path) -> Iterator[Starter]:
    """Start a server on the test's data directory, again and again; the last one is killed."""
    running: list[ServerProcess] = []

    def begin(folder: Path = data_dir, **options: Any) -> ServerProcess:
        server = start_geminga(folder, **{"settings": SETTINGS, **options})
        running.append(server)
        return server

    yield begin
    for server in running:
        if server.process.poll() is None:
            server.kill()
