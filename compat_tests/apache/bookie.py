"""One of Apache's bookies on a free port, with little memory and a real fsync, and a ZooKeeper for
it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from compat_tests.apache.jars import java_command
from compat_tests.apache.links import LOOPBACK, Place
from compat_tests.apache.zookeeper import ZooKeeperServer, start_zookeeper
from compat_tests.processes import free_port, spawn, wait_until
from geminga_broker.cli_cluster import initialize_cluster_metadata
from geminga_protocol.bookkeeper import v3
from geminga_protocol.pb.bookkeeper_protocol_pb2 import READ_LAC

FRAME_BYTES_MAX = 5 * 1024 * 1024 + 10 * 1024
"""As brokers of Pulsar set it, which is more than a bookie has of its own accord."""

START_S = 120.0
_MAIN = "org.apache.bookkeeper.server.Main"
_SETTINGS = {
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    "dbStorage_rocksDB_blockCacheSize": "4194304",
    "nettyMaxFrameSizeBytes": str(FRAME_BYTES_MAX),
    "journalMaxSizeMB": "64",
    "journalPreAllocSizeMB": "4",
    "diskUsageThreshold": "0.999",
    "diskUsageWarnThreshold": "0.99",
    "httpServerEnabled": "false",
    "prometheusStatsHttpEnable": "false",
}
_CACHES = {
    "dbStorage_writeCacheMaxSizeMb": "128",
    "dbStorage_readAheadCacheMaxSizeMb": "128",
    "dbStorage_rocksDB_blockCacheSize": "33554432",
    "journalMaxSizeMB": "2048",
    "journalPreAllocSizeMB": "16",
}


@dataclass
class ApacheBookie:
    """A running bookie."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    zookeeper: ZooKeeperServer
    owns_zookeeper: bool = False

    @property
    def bookie_id(self) -> str:
        """Its id in ledger metadata."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def is_serving(self) -> bool:
        """Whether it answers: it resets its first connections, before it has started."""
        request = v3.request(READ_LAC, 1)
        request.readLacRequest.ledgerId = 0
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5) as opened:
            opened.settimeout(5)
            opened.sendall(v3.frame(request))
            return bool(opened.recv(64))
        return False

    def wait(self) -> None:
        """Until it serves. Raises StartError."""
        try:
            wait_until(self.is_serving, self.process, self.folder / "log", timeout_s=START_S)
        except BaseException:
            self.kill()
            raise

    def pause(self) -> None:
        """Stop the process; connections stay, and nobody answers."""
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
        """kill -9, also of its ZooKeeper if that is its own."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.owns_zookeeper:
            self.zookeeper.kill()


def start_bookie(folder: Path, settings: Mapping[str, str] | None = None) -> ApacheBookie:
    """Start one on an empty folder, with a ZooKeeper, and wait until it serves. Raises PeerMissing,
    StartError.
    """
    zookeeper = start_metadata(folder / "zookeeper")
    try:
        bookie = launch_bookie(folder, zookeeper, settings)
    except BaseException:
        zookeeper.kill()
        raise
    bookie.owns_zookeeper = True
    bookie.wait()
    return bookie


def start_metadata(folder: Path, place: Place = LOOPBACK) -> ZooKeeperServer:
    """A ZooKeeper with what a bookie expects in it. Raises PeerMissing, StartError."""
    zookeeper = start_zookeeper(folder, place)
    try:
        _prepare(zookeeper)
    except BaseException:
        zookeeper.kill()
        raise
    return zookeeper


def launch_bookie(
    folder: Path,
    zookeeper: ZooKeeperServer,
    settings: Mapping[str, str] | None = None,
    *,
    lean: bool = True,
) -> ApacheBookie:
    """Start one on an empty folder; `wait` returns when it serves. A lean one is for tests; one
    that is not has the caches and the heap of a bookie at work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    every = {
        **_SETTINGS,
        **({} if lean else _CACHES),
        "bookiePort": str(port),
        "metadataServiceUri": f"zk+hierarchical://{zookeeper.address}/ledgers",
        "journalDirectories": str(folder / "journal"),
        "ledgerDirectories": str(folder / "entries"),
        **(settings or {}),
    }
    config = folder / "bookie.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in every.items()))
    command = java_command(_MAIN, ["--conf", str(config)], heap_mb=256 if lean else 512, lean=lean)
    at = command.index("-cp")
    command[at:at] = [f"-XX:MaxDirectMemorySize={256 if lean else 1024}m"]
    process = spawn(command, log_path=folder / "log", cwd=folder)
    return ApacheBookie(folder, port, process, zookeeper)


def _prepare(zookeeper: ZooKeeperServer) -> None:
    """What a bookie expects in an empty ZooKeeper."""
    done = CliRunner().invoke(
        initialize_cluster_metadata,
        ["-c", "c1", "-md", zookeeper.url, "-cms", zookeeper.url, "-uw", "http://127.0.0.1:1"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
