"""Child processes of the tests and the bench: start, wait until ready, measure, stop, kill.

A child is put in its own process group and told to die with its parent, so that an aborted test
run leaves nothing behind. Memory and CPU are read from ``/proc``.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_GIVEN_BY_THE_KERNEL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PORT_MIN = 10_000
_PORT_MAX = 65_535
_SETTINGS = {"diskUsageThreshold": "1", "diskUsageLwmThreshold": "1"}
"""A machine whose disk is nearly full is no reason to refuse what the tests write."""
_answered: set[int] = set()
_READY_LINE = re.compile(
    r"^ready in (?P<seconds>[0-9.]+) s:( (?P<broker>pulsar://\S+))?"
    r"( (?P<broker_tls>pulsar\+ssl://\S+))?( (?P<web>http://\S+))?"
    r"( (?P<web_tls>https://\S+))?( brokers=\d+)? data=(.*)$"
)


class StartError(Exception):
    """A server ended, or did not become ready in time; the text holds the end of its output."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free now, and that no other call of this process answers, nor
    one of the workers beside it: a server may take seconds until it listens.

    It is below those that the kernel gives to whoever connects: else a client that tries to reach
    a server which is just being started again may be given the server's own port.
    """
    given_from = int(_GIVEN_BY_THE_KERNEL.read_text().split()[0])
    # Where the kernel gives nearly all of them, the client's bad luck can't be kept off.
    every = range(_PORT_MIN, given_from if given_from > _PORT_MIN + 1000 else _PORT_MAX + 1)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers
    chosen = every[len(every) * worker // workers : len(every) * (worker + 1) // workers]
    while True:
        port = secrets.choice(chosen)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _answered:
            _answered.add(port)
            return port


@dataclass
class ServerProcess:
    """A running server that speaks Pulsar's protocol, ours or Apache's."""

    kind: str
    process: subprocess.Popen[bytes]
    service_url: str
    web_url: str
    data_dir: Path
    log_path: Path
    ready_s: float = 0.0
    service_url_tls: str = ""
    web_url_tls: str = ""
    _stopped: bool = field(default=False, repr=False)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the binary protocol."""
        host, _, port = self.service_url.removeprefix("pulsar://").rpartition(":")
        return host, int(port)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def pids(self) -> list[int]:
        """The process and its children: a standalone may have several brokers."""
        return [self.pid, *children_of(self.pid)]

    def rss_bytes(self) -> int:
        """Resident memory of all processes now."""
        return sum(status_bytes(pid, "VmRSS") for pid in self.pids)

    def rss_peak_bytes(self) -> int:
        """Highest resident memory of each process since the start."""
        return sum(status_bytes(pid, "VmHWM") for pid in self.pids)

    def cpu_s(self) -> float:
        """Processor time that the processes have used so far, user and system."""
        return sum(cpu_s(pid) for pid in self.pids)

    def stop(self, timeout_s: float = 60.0) -> int:
        """Ask the server to end (SIGINT), kill it when it does not; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def kill(self) -> None:
        """kill -9 the process and what it started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def log_tail(self, lines: int = 40) -> str:
        """The last lines that the server printed."""
        return _tail(self.log_path, lines)


def spawn(
    command: Sequence[str],
    *,
    log_path: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child in its own group, output appended to a file, that dies with this process."""
    with log_path.open("ab") as log:
        return subprocess.Popen(
            guarded(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=None if env is None else {**os.environ, **env},
            start_new_session=True,
        )


def guarded(command: Sequence[str]) -> list[str]:
    """The command, killed by the kernel when its parent ends (where util-linux is there)."""
    return [*(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []), *command]


def wait_until(
    condition: Callable[[], bool],
    process: subprocess.Popen[bytes],
    log_path: Path,
    *,
    timeout_s: float,
    poll_s: float = 0.01,
) -> None:
    """Poll until ``condition`` holds. Raises StartError when the child ends or time runs out."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if process.poll() is not None:
            raise StartError(f"ended with code {process.returncode}:\n{_tail(log_path, 40)}")
        if time.monotonic() > deadline:
            raise StartError(f"not ready after {timeout_s:g} s:\n{_tail(log_path, 40)}")
        time.sleep(poll_s)


def geminga_command() -> list[str]:
    """The ``geminga`` program of the environment that runs the tests."""
    beside = Path(sys.executable).with_name("geminga")
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "geminga.cli"]


def standalone_command(
    data_dir: Path,
    *,
    options: Sequence[str] = (),
    broker_port: int = 0,
    web_port: int = 0,
    settings: Mapping[str, str] | None = None,
) -> list[str]:
    """Command line of ``geminga standalone``; ``settings`` (keys of Apache's ``broker.conf``) are
    written to a file beside the data directory.
    """
    command = [*geminga_command(), "standalone", "--data-dir", str(data_dir)]
    command += ["--host", "127.0.0.1"]
    command += ["--broker-port", str(broker_port), "--web-port", str(web_port), *options]
    if settings:
        config = data_dir.parent / f"{data_dir.name}.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command += ["--config", str(config)]
    return command


def start_geminga(
    data_dir: Path,
    *,
    options: Sequence[str] = (),
    broker_port: int = 0,
    web_port: int = 0,
    timeout_s: float = 60.0,
    settings: Mapping[str, str] | None = None,
) -> ServerProcess:
    """Start ``geminga standalone`` on a data directory and wait for its ready line.

    Its output goes to ``data_dir.log`` beside the directory. Raises StartError.
    """
    log_path = data_dir.parent / f"{data_dir.name}.log"
    offset = log_path.stat().st_size if log_path.exists() else 0
    command = standalone_command(
        data_dir,
        options=options,
        broker_port=broker_port,
        web_port=web_port,
        settings={**_SETTINGS, **(settings or {})},
    )
    process = spawn(command, log_path=log_path)
    found: list[re.Match[str]] = []

    def is_ready() -> bool:
        with log_path.open("rb") as log:
            log.seek(offset)
            for line in log.read().decode(errors="replace").splitlines():
                if match := _READY_LINE.match(line):
                    found.append(match)
                    return True
        return False

    try:
        wait_until(is_ready, process, log_path, timeout_s=timeout_s)
    except StartError:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise
    ready = found[0]
    return ServerProcess(
        kind="geminga",
        process=process,
        service_url=ready["broker"] or "",
        web_url=ready["web"] or "",
        service_url_tls=ready["broker_tls"] or "",
        web_url_tls=ready["web_tls"] or "",
        data_dir=data_dir,
        log_path=log_path,
        ready_s=float(ready["seconds"]),
    )


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, and that live."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for task in tasks for child in task.read_text().split())


def cpu_s(pid: int) -> float:
    """Processor time that a process has used so far, user and system."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / _CLOCK_TICKS_PER_S


def status_bytes(pid: int, key: str) -> int:
    """A size that the kernel tells of a process, as "VmRSS"."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} shows no {key}")


def _tail(path: Path, lines: int) -> str:
    if not path.exists():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
