"""Servers of their own for the fault tests: they are killed, filled up and lied to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.faults.attacked import attacked as attacked
from compat_tests.processes import ServerProcess, start_geminga

# Acknowledgements reach the disk soon, so that what must not come again can be known in a test.
SETTINGS = {"managedLedgerDefaultMarkDeleteRateLimit": "2"}
TOPIC = "persistent://public/default/faults"

Starter = Callable[..., ServerProcess]


@pytest.fixture
def start(data_dir: Path) -> Iterator[Starter]:
    """Start a server on the test's data directory, again and again; the last one is killed."""
    running: list[ServerProcess] = []

    def begin(folder: Path = data_dir, **options: Any) -> ServerProcess:
        settings = None if "--config" in options.get("options", ()) else SETTINGS
        server = start_geminga(folder, settings=settings, **options)
        running.append(server)
        return server

    yield begin
    for server in running:
        if server.process.poll() is None:
            server.kill()
