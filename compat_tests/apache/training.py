"""Trains the JVM whose classes are archived for Apache's servers and clients (see `archives`)."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from compat_tests.apache import archives
from compat_tests.apache.jars import archive, java_command
from compat_tests.apache.server import standalone_settings
from compat_tests.processes import free_port

_TIMEOUT_S = 300.0


def prepare() -> None:
    """Once for each state of our programs. Raises PeerMissing."""
    archives.make(archive(), _trained)


def _trained(fresh: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="geminga-archive-") as folder:
        return _train(Path(folder), fresh)


def _train(folder: Path, fresh: Path) -> str:
    """A standalone with a ZooKeeper, and clients of it, in one JVM. Returns why it failed."""
    broker_port, web_port = free_port(), free_port()
    config = folder / "standalone.conf"
    settings = standalone_settings({}, broker_port, web_port)
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    of_server = {
        "--config": config,
        "--zookeeper-port": free_port(),
        "--bookkeeper-port": free_port(),
        "--zookeeper-dir": folder / "zookeeper",
        "--bookkeeper-dir": folder / "bookkeeper",
    }
    arguments = [str(part) for pair in of_server.items() for part in pair]
    urls = [f"pulsar://127.0.0.1:{broker_port}", f"http://127.0.0.1:{web_port}"]
    switches = ["--no-functions-worker", "--no-stream-storage"]
    command = java_command("Archive", [*urls, *arguments, *switches], heap_mb=1024, lean=False)
    command[1:1] = ["-XX:TieredStopAtLevel=1", *archives.recorded(fresh)]
    environment = {**os.environ, "PULSAR_STANDALONE_USE_ZOOKEEPER": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {_TIMEOUT_S:g} s"
    return "" if done.returncode == 0 else done.stderr or done.stdout
