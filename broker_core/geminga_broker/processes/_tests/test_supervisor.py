"""What the parent does about processes that can't start, die, hang or are to stop."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from geminga_broker.config import BrokerConfig, NetworkConfig
from geminga_broker.processes import supervisor
from geminga_broker.processes.sockets import bind_service
from geminga_broker.processes.supervisor import (
    BrokerPlan,
    BrokerProcess,
    BrokerRefused,
    Services,
)
from geminga_runtime.observing.log_setup import LogSettings
from geminga_runtime.stream import FramedStream

CONFIG = BrokerConfig(
    network=NetworkConfig(
        bind_address="127.0.0.1",
        broker_service_port=0,
        web_service_port=0,
        shutdown_timeout_ms=1000,
    )
)

PROGRAM = """
import os, signal, socket, sys, time
from geminga_broker.processes import messages
end = socket.socket(fileno=int(sys.argv[-1]))
received = messages.to_broker()
def hear():
    while True:
        data = end.recv(65536)
        if not data:
            os._exit(9)
        for _, said, _ in received.feed(data):
            return said
begin = hear()
ports = [socket.socket(fileno=fds[0]).getsockname()[1] for fds in (
    begin.descriptors.broker, begin.descriptors.web)]
def serve():
    end.sendall(messages.message(messages.Serving([f"{port}" for port in ports])))
"""

WAIT_S = 60


async def nothing(stream: FramedStream) -> None:
    """Serve a connection until it ends."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_writer)
        while await stream.receive():
            pass
        nursery.cancel_scope.cancel()


SERVICES = Services(nothing, nothing)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF_S", 0.01)
    monkeypatch.setattr(supervisor, "BACKOFF_MAX_S", 0.05)


Plan = Callable[[str], BrokerPlan]


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Plan]:
    """Makes the plan of a broker whose program goes on like this."""
    with bind_service(CONFIG) as service:

        def made(rest: str) -> BrokerPlan:
            file = tmp_path / "program.py"
            file.write_text(PROGRAM + rest)
            own_ports: list[int | None] = [0, None, 0, None]
            command = (sys.executable, str(file))
            return BrokerPlan("broker-1", CONFIG, LogSettings(), service, own_ports, command)

        yield made


async def until(is_so: Callable[[], object]) -> None:
    with trio.fail_after(WAIT_S):
        while not is_so():  # noqa: ASYNC110
            await trio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
async def test_a_broker_that_dies_is_started_again_at_its_ports(
    plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker = BrokerProcess(plan("serve(); hear()"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run, SERVICES)
        ports = await broker.serving.wait()
        served = f"broker-1 serves: {' '.join(ports)} "
        for number in range(3):
            assert caplog.text.count(served) == number + 1
            assert broker.pid is not None
            os.kill(broker.pid, signal.SIGKILL)
            await until(lambda: caplog.text.count("serves: ") == number + 2)  # noqa: B023
        nursery.cancel_scope.cancel()
    assert caplog.text.count("ended with code -9: started again in 0.0") == 3


@pytest.mark.slow
async def test_it_is_told_to_stop_and_waited_for(plan: Plan, tmp_path: Path) -> None:
    left = tmp_path / "left"
    rest = f"serve(); said = hear(); time.sleep(0.3); open({str(left)!r}, 'w').write(repr(said))"
    broker = BrokerProcess(plan(rest))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run, SERVICES)
        await broker.serving.wait()
        nursery.cancel_scope.cancel()
    assert left.read_text() == "Stop()"


@pytest.mark.slow
async def test_one_that_does_not_stop_is_killed(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "GRACE_S", 0.1)
    network = replace(CONFIG.network, shutdown_timeout_ms=50)
    hanging = replace(plan("serve(); time.sleep(1000)"), config=replace(CONFIG, network=network))
    broker = BrokerProcess(hanging)
    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run, SERVICES)
        await broker.serving.wait()
        pid = broker.pid
        assert pid is not None
        nursery.cancel_scope.cancel()
    assert time.monotonic() - began < WAIT_S
    assert not is_alive(pid)


async def test_one_without_its_session_is_killed(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that hangs must not keep its ports when others have its bundles."""
    monkeypatch.setattr(supervisor, "GRACE_S", 0.1)
    broker = BrokerProcess(plan("serve(); time.sleep(1000)"))
    expired = trio.Event()

    async def expiring(stream: FramedStream) -> None:
        await expired.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run, Services(expiring, nothing))
        await broker.serving.wait()
        pid = broker.pid
        expired.set()
        await until(lambda: broker.pid not in (pid, None))
        nursery.cancel_scope.cancel()
    assert "broker-1 metadata is killed" in caplog.text


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        ("end.sendall(messages.message(messages.Refused('a key is wrong')))", "^a key is wrong$"),
        ("sys.exit(3)", "^broker-1 ended with code 3 before it served$"),
    ],
)
async def test_one_that_never_serves_ends_the_start(plan: Plan, rest: str, text: str) -> None:
    broker = BrokerProcess(plan(rest))
    with pytest.raises(BrokerRefused, match=text):
        await broker.run(SERVICES)


async def test_a_program_that_is_not_there(plan: Plan, tmp_path: Path) -> None:
    broker = BrokerProcess(replace(plan(""), command=(str(tmp_path / "absent"),)))
    with pytest.raises(BrokerRefused, match=r"broker-1 can't be started: .*No such file"):
        broker.spawn()


async def test_one_that_is_still_starting_is_not_waited_for(plan: Plan) -> None:
    """It hears nothing yet, and has no topics."""
    broker = BrokerProcess(plan("signal.pause()"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run, SERVICES)
        await until(lambda: broker.pid is not None)
        pid = broker.pid
        assert pid is not None
        began = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began < broker._plan.stop_s / 2
    assert not is_alive(pid)


async def test_a_process_that_was_not_needed(plan: Plan) -> None:
    broker = BrokerProcess(plan(""))
    broker.spawn()
    pid = broker.pid
    assert pid is not None
    broker.abandon()
    broker.abandon()
    assert not is_alive(pid)


async def test_no_descriptors_are_left(plan: Plan) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    broker = BrokerProcess(plan("serve(); hear()"))
    before = descriptors()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run, SERVICES)
        await broker.serving.wait()
        pid = broker.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: broker.pid not in (pid, None))
        nursery.cancel_scope.cancel()
    assert descriptors() <= before
