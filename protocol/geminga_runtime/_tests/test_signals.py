"""Stopping by signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import trio
import trio.testing

from geminga_runtime.process import run_until_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signal_cancels_main(number: signal.Signals) -> None:
    cleaned: list[bool] = []

    async def main() -> None:
        try:
            os.kill(os.getpid(), number)
            await trio.sleep_forever()
        finally:
            cleaned.append(True)

    with trio.fail_after(60):
        assert await run_until_signal(main) is number
    assert cleaned == [True]


async def test_main_may_end_by_itself() -> None:
    assert await run_until_signal(trio.lowlevel.checkpoint) is None


async def test_errors_of_main_are_raised() -> None:
    async def main() -> None:
        raise ValueError("a defect")

    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a defect")):
        await run_until_signal(main)


STUBBORN = """
import logging, sys, trio
from geminga_runtime.process import run_until_signal
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)

async def main():
    print("up", flush=True)
    with trio.CancelScope(shield=True):
        await trio.sleep(60)

trio.run(run_until_signal, main)
"""


@pytest.mark.slow
def test_second_signal_ends_the_process() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, env=environment
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == b"SIGTERM: stopping\n"  # or it may take the next first
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 128 + signal.SIGINT


READY = """
import logging, os, signal, trio
from geminga_runtime.process import run_server
logging.basicConfig(level=logging.INFO, format="%(message)s")

async def serve(*, task_status):
    task_status.started("data=/tmp/\\xe9\\udcff")
    trio.lowlevel.current_trio_token().run_sync_soon(os.kill, os.getpid(), signal.SIGTERM)
    await trio.sleep_forever()

assert run_server(serve, str) is None
"""


def test_a_server_starts_though_its_line_cannot_be_encoded() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", READY],
        env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("ready in ")
    assert done.stdout.endswith("data=/tmp/\\xe9\\udcff\n")
    assert done.stderr.splitlines() == ["SIGTERM: stopping", "stopped"]


ENDING = """
import trio
from geminga_runtime.process import run_server

async def serve(*, task_status):
    task_status.started("up")
    await trio.sleep(0)

assert run_server(serve, str) is None
"""


def test_the_process_of_a_server_that_ends_ends_too() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ENDING]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)
    assert b": up\n" in done.stdout
