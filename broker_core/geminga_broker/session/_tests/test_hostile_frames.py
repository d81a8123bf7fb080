"""No frame of one client affects other clients (PR-16, PX-22)."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.abc
import trio.testing

from geminga_broker._tests.wire import Type, WireBroker, WireClient, message
from geminga_broker.cluster.records import JsonObject
from geminga_broker.session._tests.hostile_frames import LARGEST, Case, cases
from geminga_broker.session._tests.test_authentication import TOPIC, login, secured
from geminga_broker.session.limits import COMMAND_LIMITS
from geminga_broker.topic.api import SubType
from geminga_protocol.commands import connection, consuming, producing
from geminga_protocol.frames import SUBMESSAGE, FramingError
from geminga_runtime.logs import LineFormatter

VALUES = {
    "topic": TOPIC,
    "namespace": "acme/app",
    "subscription": "sub",
    "producer_id": 1,
    "consumer_id": 1,
    "request_id": 77,
    "watcher_id": 1,
    "type": 2,
    "subType": 1,
    "topics_pattern": ".*",
    "protocol_version": 19,
    "client_version": "c",
}
IN_ONE_READ = 250_000
CASES = list(cases(VALUES))
STEP_S = 0.05
"""How long no frame may hold the loop."""

SLACK = 4
TRIES = 3
"""A frame holds the loop if it does each time: a neighbour on the same core may slow one try."""
ROUNDS = 3
GROWN_BYTES_MAX = 48 << 20
"""What is kept of the frames would grow in each round; a process that ran other tests may get more
memory from the system in one of them.
"""


class Steps(trio.abc.Instrument):
    """The longest step of a task, in seconds of CPU: other load doesn't count."""

    def __init__(self, own: trio.lowlevel.Task) -> None:
        self._own = own
        self._began_s = 0.0
        self.longest_s = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began_s = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is not self._own:
            self.longest_s = max(self.longest_s, time.thread_time() - self._began_s)


class Lines(logging.Handler):
    """Logged texts; records would keep their arguments alive."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(LineFormatter("%(levelname)s %(message)s"))
        self.lines: list[str] = []
        self.tracebacks = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
        self.tracebacks += bool(record.exc_info)


def machine_factor() -> float:
    """How much slower than the machine on which STEP_S was decided this one is now."""
    best = 9.0
    for _ in range(3):
        began_s = time.thread_time()
        sum(number * number for number in range(500_000))
        best = min(best, time.thread_time() - began_s)
    return max(1.0, best / 0.03)


async def enter(broker: WireBroker, role: str) -> WireClient:
    """A client with all that it may open, and something to acknowledge."""
    client = await login(broker, role)
    if role == "both":
        producer = producing.producer(TOPIC, 1, 101)
        await client.ask(producer, Type.PRODUCER_SUCCESS)
        await client.ask(consuming.subscribe(TOPIC, "sub", SubType.Shared, 1, 102), Type.SUCCESS)
        await client.ask(message(0), Type.SEND_RECEIPT)
        await client.ask(consuming.flow(1, 10), Type.MESSAGE)
    return client


async def attack(broker: WireBroker, client: WireClient, role: str, frame: bytes) -> WireClient:
    """Send it; expect a response or the end. Returns a client for the next attack."""
    try:
        await client.send(frame, connection.PING)
        while (answer := await client.next()) is not None:
            if answer.type == Type.PONG:
                return client
    except (trio.BrokenResourceError, FramingError):
        pass
    await client.stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert not broker.service.connections.sessions
    return await enter(broker, role)


def _grant(policies: JsonObject) -> JsonObject:
    grants = {"namespace_auth": {"both": ["produce", "consume"]}}
    return policies | {"auth_policies": grants}


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def sizes_of(case: Case) -> list[int]:
    allowed = COMMAND_LIMITS.bytes_by_kind.get(case.kind, COMMAND_LIMITS.bytes_max)
    return [LARGEST, allowed, IN_ONE_READ]


@contextmanager
def logged() -> Iterator[Lines]:
    """Collect all logs, without pytest's handlers, which would keep the records."""
    found, root = Lines(), logging.getLogger()
    others, level = root.handlers[:], root.level
    root.handlers[:] = [found]
    root.setLevel(logging.INFO)
    try:
        yield found
    finally:
        root.handlers[:] = others
        root.setLevel(level)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["stranger", "both"])
async def test_no_field_of_any_command_blocks_the_loop(role: str) -> None:
    steps = Steps(trio.lowlevel.current_task())
    too_long: list[str] = []
    resident: list[int] = []
    limit_s = STEP_S * SLACK * machine_factor()
    with logged() as lines:
        async with secured() as broker:
            await broker.service.namespaces.tenants.update("acme/app", _grant)
            client = await enter(broker, role)
            # As a server does: a collection of all that pytest made is no step of the broker's.
            gc.collect()
            gc.freeze()
            trio.lowlevel.add_instrument(steps)
            for _ in range(ROUNDS):
                for case in CASES:
                    for size in sizes_of(case):
                        for _ in range(TRIES):
                            steps.longest_s = 0
                            with trio.fail_after(120):
                                client = await attack(broker, client, role, case.frame(size))
                            if steps.longest_s <= limit_s:
                                break
                        else:
                            too_long.append(f"{case.path} {size}: {steps.longest_s:.3f} s")
                resident.append(resident_bytes())
            trio.lowlevel.remove_instrument(steps)
            assert max(map(len, broker.service.topics.loaded), default=0) < 3000
            assert broker.service.connections.request_bytes == 0
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # as it was for the tests behind this one, without the broker
    assert too_long == []
    assert min(after - before for before, after in pairwise(resident)) < GROWN_BYTES_MAX
    assert max(map(len, lines.lines)) < 5000
    assert len(lines.lines) < 3 * ROUNDS * 3 * len(CASES)
    assert lines.tracebacks == 0


def test_all_commands_are_tried() -> None:
    with_fields = {
        kind
        for kind, name in SUBMESSAGE.items()
        if any(
            field.is_repeated or field.type in (field.TYPE_STRING, field.TYPE_BYTES)
            for field in Type.DESCRIPTOR.containing_type.fields_by_name[name].message_type.fields
        )
    }
    assert with_fields <= {case.kind for case in CASES}
