"""`geminga bookie` on a free port, as a process that is ours to kill and to pause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.apache.bookie import FRAME_BYTES_MAX
from compat_tests.apache.links import LOOPBACK, Place
from compat_tests.apache.zookeeper import ZooKeeperServer
from compat_tests.processes import ROOT, free_port, spawn, wait_until

START_S = 60.0
_SETTINGS = {
    "nettyMaxFrameSizeBytes": str(FRAME_BYTES_MAX),
    "diskUsageThreshold": "1",
    "zkTimeout": "5000",
    "journalMaxSizeMB": "16",
}


@dataclass
class OurBookie:
    """A bookie in a folder of its own; `start` and `wait` it."""

    folder: Path
    zookeeper: ZooKeeperServer
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    place: Place = LOOPBACK
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def bookie_id(self) -> str:
        """Its id in ledger metadata."""
        return self.settings.get("bookieId") or f"{self.place.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self.process is not None
        return self.process.pid

    @property
    def journal(self) -> Path:
        """Its journal directory."""
        return self.folder / "journal"

    @property
    def entries(self) -> Path:
        """Its ledger directory."""
        return self.folder / "entries"

    @property
    def log(self) -> Path:
        """What the last start wrote."""
        return self.folder / f"log-{self.starts}"

    @property
    def config(self) -> Path:
        """Its bookkeeper.conf, for its own process and for Apache's tools."""
        return self.folder / "bookkeeper.conf"

    def start(self) -> None:
        """`wait` returns when it serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        every = {
            **_SETTINGS,
            "advertisedAddress": self.place.host,
            "bookiePort": str(self.port),
            "metadataServiceUri": f"zk+hierarchical://{self.zookeeper.address}/ledgers",
            "journalDirectories": str(self.journal),
            "ledgerDirectories": str(self.entries),
            **self.settings,
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in every.items()))
        self.starts += 1
        command = [sys.executable, "-m", "geminga.cli", "bookie", "--config", str(self.config)]
        self.process = spawn([*self.place.enter, *command], log_path=self.log, cwd=ROOT)

    def wait(self) -> None:
        """Until it says that it serves. Raises StartError."""
        assert self.process is not None
        ready = f"bookie://{self.place.host}:{self.port} data=".encode()
        wait_until(
            lambda: ready in self.log.read_bytes(), self.process, self.log, timeout_s=START_S
        )

    def refusal(self) -> str:
        """Start it; what it says instead of serving."""
        self.start()
        assert self.process is not None
        assert self.process.wait(START_S) == 2, self.log.read_text()
        return self.log.read_text().splitlines()[-1]

    def signal(self, number: signal.Signals) -> None:
        """To its process."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.signal(signal.SIGTERM)
        assert self.process is not None
        return self.process.wait(START_S)

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            self.process.wait()
