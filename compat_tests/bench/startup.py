"""From the start of the process to the first receipt, seen by the official Python client."""

from __future__ import annotations

import os
import signal
import socket
import time

import pulsar

from compat_tests.apache.server import start_apache
from compat_tests.bench.model import APACHE
from compat_tests.bench.side import Side
from compat_tests.processes import free_port, spawn, standalone_command

_TIMEOUT_S = 120.0


def seconds_to_first_receipt(side: Side, number: int) -> float:
    """Start the side's server on fresh data, publish as soon as that works, kill it."""
    name = f"start-{number}"
    side.forget(name)
    folder = side.work_dir / f"{side.kind}-{name}"
    folder.mkdir(parents=True)
    port = free_port()
    if side.kind == APACHE:
        # The command line is made (and our programs are compiled) before the clock runs.
        began = time.monotonic()
        server = start_apache(folder, broker_port=port, wait_ready=False, lean=False)
        process = server.process
    else:
        command = standalone_command(folder / "data", broker_port=port)
        began = time.monotonic()
        process = spawn(command, log_path=folder / "data.log")
    try:
        _wait_for_port(port, began + _TIMEOUT_S)
        _publish_one(port, began + _TIMEOUT_S)
        return time.monotonic() - began
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        side.forget(name)


def _wait_for_port(port: int, deadline: float) -> None:
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.005)
    raise TimeoutError("the port never opened")


def _publish_one(port: int, deadline: float) -> None:
    while True:
        client = pulsar.Client(
            f"pulsar://127.0.0.1:{port}",
            operation_timeout_seconds=30,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        )
        try:
            client.create_producer("persistent://public/default/first").send(b"first")
            return
        except pulsar.PulsarException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        finally:
            client.close()
