"""Apache ZooKeeper, one server on a free port, with short ticks and without fsync."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from compat_tests.apache.jars import java_command
from compat_tests.apache.links import LOOPBACK, Place
from compat_tests.processes import StartError, free_port, spawn, wait_until

TICK_MS = 100
"""Sessions live at least two and at most 600 of them."""

START_S = 120.0
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@dataclass
class ZooKeeperServer:
    """A ZooKeeper whose process is ours to stop, to pause and to kill."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    place: Place = LOOPBACK

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.place.host}:{self.port}"

    @property
    def url(self) -> str:
        """The metadata store's URL, without a chroot."""
        return f"zk:{self.address}"

    def start(self) -> None:
        """Start it again, on the same port and data."""
        self.process = _spawn(self.folder, self.place)
        self._wait_ready()

    def _wait_ready(self) -> None:
        try:
            wait_until(self.is_serving, self.process, self.folder / "log", timeout_s=START_S)
        except StartError:
            self.kill()
            raise

    def is_serving(self) -> bool:
        """Whether it says that it is."""
        try:
            with socket.create_connection((self.place.host, self.port), timeout=5) as connection:
                connection.sendall(b"isro")
                return connection.recv(16) == b"rw"
        except OSError:
            return False

    def pause(self) -> None:
        """Stop its process; connections stay, and nobody answers."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        wait_until(self._is_paused, self.process, self.folder / "log", timeout_s=START_S)

    def _is_paused(self) -> bool:
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        try:
            return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)
        except (FileNotFoundError, ProcessLookupError):  # a thread has ended meanwhile
            return False

    def resume(self) -> None:
        """Let it go on."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start_zookeeper(folder: Path, place: Place = LOOPBACK) -> ZooKeeperServer:
    """Start one on an empty folder, wait until it serves. Raises PeerMissing, StartError."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = {
        "tickTime": TICK_MS,
        "dataDir": folder / "data",
        "clientPort": port,
        "clientPortAddress": place.host,
        "maxSessionTimeout": 600 * TICK_MS,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "isro",
    }
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    (folder / "zoo.cfg").write_text(text)
    server = ZooKeeperServer(folder, port, _spawn(folder, place), place)
    server._wait_ready()
    return server


def _spawn(folder: Path, place: Place) -> subprocess.Popen[bytes]:
    command = java_command(_MAIN, [str(folder / "zoo.cfg")], heap_mb=256)
    flags = ("-Dzookeeper.forceSync=no", "-Djute.maxbuffer=1048575")
    at = command.index("-cp")
    command[at:at] = flags
    return spawn([*place.enter, *command], log_path=folder / "log", cwd=folder)
