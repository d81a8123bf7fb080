"""Spark's standalone cluster on loopback: a master and workers, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compat_tests.apache.jars import require_java
from compat_tests.processes import spawn, wait_until
from compat_tests.spark.session import JAVA_OPTIONS, LOOPBACK, SPARK_HOME, spark_environment

START_TIMEOUT_S = 120.0
EXECUTOR_MB = 512
WORKER_MB = 1024
"""A worker has room for an executor and for what Spark adds to one."""
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Registering worker ")


@dataclass(frozen=True)
class Cluster:
    """A running cluster; the workers' logs and those of their executors are in the folder."""

    master_url: str
    folder: Path
    workers: int

    def settings(self) -> dict[str, str]:
        """For a session on it: one executor of one core on each worker, all there before a job
        begins.
        """
        return {
            "spark.cores.max": str(self.workers),
            "spark.executor.cores": "1",
            "spark.executor.memory": f"{EXECUTOR_MB}m",
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_TIMEOUT_S:g}s",
        }


@contextlib.contextmanager
def spark_cluster(folder: Path, *, workers: int = 2) -> Iterator[Cluster]:
    """A cluster of workers of one core each, on free ports; its processes end with the block.

    Raises PeerMissing without Java, StartError.
    """
    require_java("java")
    folder.mkdir(parents=True, exist_ok=True)
    where = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
    with contextlib.ExitStack() as stack:
        master = _start(stack, folder, "master", ["master.Master", *where])
        found = _printed(master, folder / "master.log", _MASTER_URL, 1)
        size = ["--cores", "1", "--memory", f"{WORKER_MB}m"]
        for number in range(workers):
            name = f"worker-{number}"
            own = [*where, *size, "--work-dir", str(folder / name), found[0]]
            _start(stack, folder, name, ["worker.Worker", *own])
        _printed(master, folder / "master.log", _REGISTERED, workers)
        yield Cluster(found[0], folder, workers)


def _start(
    stack: contextlib.ExitStack, folder: Path, name: str, arguments: Sequence[str]
) -> subprocess.Popen[bytes]:
    environment: Mapping[str, str] = {
        **spark_environment(),
        "SPARK_HOME": str(SPARK_HOME),
        # It isn't there: with a folder on its class path Java uses no archive of classes.
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
    }
    program, *rest = arguments
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}"]
    log_path = folder / f"{name}.log"
    process = spawn([*command, *rest], log_path=log_path, cwd=folder, env=environment)
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """The daemon and its executors, which are in its group; their Pythons end with them."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _printed(
    process: subprocess.Popen[bytes], log_path: Path, pattern: re.Pattern[str], count: int
) -> list[str]:
    """Wait until a log has so many of the pattern; what was found."""
    found: list[str] = []

    def is_there() -> bool:
        found[:] = pattern.findall(log_path.read_text(errors="replace"))
        return len(found) >= count

    wait_until(is_there, process, log_path, timeout_s=START_TIMEOUT_S, poll_s=0.05)
    return found
