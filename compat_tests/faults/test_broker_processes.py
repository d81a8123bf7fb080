"""`geminga standalone --brokers 2`: topics of both brokers through one address, and what is left
when one of the processes dies.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pulsar
import pytest

from compat_tests.faults.conftest import Starter
from compat_tests.processes import ServerProcess, children_of, standalone_command

TOPICS = [f"persistent://public/default/shared-{number}" for number in range(24)]
WAIT_MS = 60_000
_SERVES = re.compile(r"supervisor (broker-\d+) serves: (.*)")
BROKERS = ["--brokers", "2"]


@contextmanager
def connected(server: ServerProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(
        server.service_url,
        operation_timeout_seconds=60,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )
    try:
        yield client
    finally:
        client.close()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())


def registered(server: ServerProcess) -> set[str]:
    """Web addresses of the brokers in the metadata store, where the proxy looks for them."""
    with sqlite3.connect(f"file:{server.data_dir}/metadata.sqlite?mode=ro", uri=True) as database:
        found = database.execute("SELECT name FROM nodes WHERE parent = '/loadbalance/brokers'")
        names = {f"http://{name}" for (name,) in found}
    database.close()
    return names


def told(server: ServerProcess) -> dict[str, list[str]]:
    """What the parent tells of each broker: its own addresses, and the process."""
    found = _SERVES.findall(server.log_path.read_text())
    return {name: line.split() for name, line in found}


def owner_of(server: ServerProcess, topic: str) -> str:
    path = topic.replace("://", "/")
    return str(get(f"{server.web_url}/lookup/v2/topic/{path}")["brokerUrl"])


def until(is_so: Any, what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def read_all(client: pulsar.Client, topic: str, count: int) -> list[str]:
    """Bodies from the first message on, at least so many."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    bodies: list[str] = []
    while len(bodies) < count or reader.has_message_available():
        bodies.append(reader.read_next(WAIT_MS).data().decode())
    reader.close()
    return bodies


def test_both_brokers_serve_behind_one_address(start: Starter) -> None:
    server = start(options=BROKERS)
    own = {url for lines in told(server).values() for url in lines[:2]}
    assert len(own) == 4
    assert not own & {server.service_url, server.web_url}
    assert registered(server) == {each[1] for each in told(server).values()}
    with connected(server) as client:
        consumers = [client.subscribe(topic, "sub") for topic in TOPICS]
        producers = [client.create_producer(topic) for topic in TOPICS]
        for number in range(20):
            for producer in producers:
                producer.send(b"%d" % number)
        for consumer in consumers:
            for number in range(20):
                message = consumer.receive(WAIT_MS)
                assert message.data() == b"%d" % number
                consumer.acknowledge(message)
            consumer.close()  # sends the acknowledgements that it has gathered
        owners = Counter(owner_of(server, topic) for topic in TOPICS)
        assert len(owners) == 2, owners
        assert set(owners) < own
        # The REST API of the one address answers for topics of both.
        for topic in TOPICS:
            path = topic.replace("://", "/")
            stats = get(f"{server.web_url}/admin/v2/{path}/stats")
            assert stats["msgInCounter"] == 20
            assert stats["subscriptions"]["sub"]["msgBacklog"] == 0
    assert server.stop() == 0, server.log_tail()
    log = server.log_path.read_text()
    assert "Traceback" not in log
    assert " broker-1 geminga_broker." in log or " broker-2 geminga_broker." in log


class _Load:
    """Publishes to all topics at once, and keeps what got a receipt."""

    def __init__(self, client: pulsar.Client) -> None:
        for topic in TOPICS:  # keeps every message from being trimmed
            client.subscribe(topic, "holder").close()
        self._producers = {
            topic: client.create_producer(topic, batching_enabled=False, send_timeout_millis=60_000)
            for topic in TOPICS
        }
        self._lock = threading.Lock()
        self.receipts: defaultdict[str, list[int]] = defaultdict(list)
        self._slots = threading.Semaphore(500)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for topic, producer in self._producers.items():
                self._slots.acquire()
                producer.send_async(b"%d" % number, self._callback(topic, number))
            number += 1

    def _callback(self, topic: str, number: int) -> Any:
        def done(result: pulsar.Result, _message_id: pulsar.MessageId) -> None:
            self._slots.release()
            if result == pulsar.Result.Ok:
                with self._lock:
                    self.receipts[topic].append(number)
                    self.count += 1

        return done

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for _each in range(500):  # those in flight when the server is gone for good
            self._slots.release()
        self._thread.join()

    def more(self, count: int) -> None:
        """Wait for so many more receipts."""
        wanted = self.count + count
        until(lambda: self.count >= wanted, "receipts come", 120)


def check_receipts(client: pulsar.Client, receipts: dict[str, list[int]]) -> None:
    for topic in TOPICS:
        confirmed = set(receipts[topic])
        found = [int(body) for body in read_all(client, topic, len(confirmed))]
        assert confirmed <= set(found), f"{topic}: {sorted(confirmed - set(found))[:5]} are lost"
        # What is sent again after a loss may be there twice; the order holds.
        first = list(dict.fromkeys(found))
        assert first == sorted(first)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_killed_under_load_loses_no_receipt(start: Starter) -> None:
    server = start(options=BROKERS)
    first, pids = told(server), children_of(server.pid)
    assert len(pids) == 2
    with connected(server) as client:
        with _Load(client) as load:
            load.more(2000)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                load.more(2000)  # the other one has its topics, and it comes back
                until(lambda: pid not in children_of(server.pid), "it is gone")  # noqa: B023
                until(lambda: len(children_of(server.pid)) == 2, "it is started again")
                load.more(1000)
        check_receipts(client, load.receipts)
    until(lambda: told(server) != first, "they serve again")
    assert server.stop() == 0, server.log_tail()
    for name, (*addresses, _pid) in told(server).items():
        assert first[name][:-1] == addresses, "it is the same broker to others"
    assert server.log_path.read_text().count("ended with code -9: started again") == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_parent_killed_under_load_loses_no_receipt(start: Starter, data_dir: Path) -> None:
    server = start(options=BROKERS)
    with connected(server) as client:
        load = _Load(client)
        with load:
            load.more(3000)
            pids = children_of(server.pid)
            assert len(pids) == 2
            server.process.kill()
            server.process.wait()
            until(lambda: not any(map(_is_alive, pids)), "no broker outlives the parent", 20)
    again = start(options=BROKERS)
    with connected(again) as client:
        check_receipts(client, load.receipts)
    assert again.stop() == 0, again.log_tail()
    # The data are those of a standalone: one broker serves them as well.
    with connected(start()) as client:
        check_receipts(client, load.receipts)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_that_stands_still_is_replaced(start: Starter) -> None:
    """Its session ends after 30 s: the other one serves its topics, and it is killed."""
    server = start(options=[*BROKERS, "--in-memory"])
    with connected(server) as client:
        for topic in TOPICS:
            client.create_producer(topic).close()
        first = told(server)
        owned = {topic: owner_of(server, topic) for topic in TOPICS}
        name, (own, _, pid) = next(iter(first.items()))
        os.kill(int(pid.removeprefix("pid=")), signal.SIGSTOP)
        try:
            until(lambda: told(server)[name] != first[name], "it is replaced", 90)
        finally:
            with suppress(ProcessLookupError):
                os.kill(int(pid.removeprefix("pid=")), signal.SIGCONT)
        for topic in TOPICS:
            client.create_producer(topic).send(b"served")
        assert own in owned.values()
    log = server.log_path.read_text()
    assert f"{name} metadata: silent for 3" in log
    assert f"{name} metadata is killed: it has no connection any more" in log
    assert server.stop() == 0, server.log_tail()


def test_a_broker_that_is_asked_to_end_comes_back(start: Starter) -> None:
    """SIGTERM to one of them alone: its topics move, then it is started again."""
    server = start(options=[*BROKERS, "--in-memory"])
    first, second = (
        int(told(server)[f"broker-{number}"][2].removeprefix("pid=")) for number in (1, 2)
    )
    os.kill(first, signal.SIGTERM)
    until(lambda: set(children_of(server.pid)) - {first, second}, "another one is started")
    assert second in children_of(server.pid)
    assert server.stop() == 0, server.log_tail()
    assert "broker-1 ended with code 0: started again" in server.log_path.read_text()


def test_a_broker_that_an_administrator_stops_comes_back(start: Starter) -> None:
    """Rolling restarts: its topics move, it ends, and another one has its ports."""
    server = start(options=[*BROKERS, "--in-memory"])
    (_, web, pid), other = (told(server)[f"broker-{number}"] for number in (1, 2))
    ask = urllib.request.Request(f"{web}/admin/v2/brokers/shutdown", method="POST")
    with urllib.request.urlopen(ask, timeout=60) as answer:
        assert answer.status == 204
    until(lambda: told(server)["broker-1"][2] != pid, "another one serves")
    assert told(server)["broker-1"][1] == web
    assert told(server)["broker-2"] == other
    assert server.stop() == 0, server.log_tail()
    log = server.log_path.read_text()
    assert (
        "INFO geminga_broker.processes.supervisor broker-1 ended with code 0: started again" in log
    )
    assert "Traceback" not in log


def test_own_ports_one_after_the_other(start: Starter, free_ports: int) -> None:
    server = start(options=[*BROKERS, "--in-memory", "--first-own-port", str(free_ports)])
    ports = [
        int(url.rpartition(":")[2])
        for name in sorted(told(server))
        for url in told(server)[name][:2]
    ]
    assert ports == list(range(free_ports, free_ports + 4))
    owners = {owner_of(server, topic) for topic in TOPICS}
    assert owners == {f"pulsar://127.0.0.1:{free_ports + at}" for at in (0, 2)}


@pytest.fixture
def free_ports() -> int:
    """The first of four free ports in a row."""
    import socket

    from compat_tests.processes import free_port

    while True:
        first = free_port()
        try:
            for port in range(first, first + 4):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def test_refused_starts(data_dir: Path, start: Starter) -> None:
    server = start(options=BROKERS)
    said = _refused(standalone_command(data_dir, options=BROKERS), 1)
    assert str(data_dir) in said
    assert "use" in said
    assert str(data_dir) in _refused(standalone_command(data_dir), 1)
    port = int(server.service_url.rpartition(":")[2])
    memory = [*BROKERS, "--in-memory"]
    said = _refused(standalone_command(data_dir, options=memory, broker_port=port), 1)
    assert f"--broker-port (brokerServicePort): can't listen on 127.0.0.1:{port}" in said
    # Only a broker finds this: it tells the parent, which says it once.
    settings = {"entryFilterNames": "nope"}
    said = _refused(standalone_command(data_dir, options=memory, settings=settings))
    assert said == "Error: entryFilterNames: entry filter 'nope' is not installed"


def test_settings_that_don_t_suit(data_dir: Path) -> None:
    command = standalone_command(data_dir, options=["--first-own-port", "7000"])
    said = _refused(command)
    assert said == "Error: --first-own-port: only several brokers have ports of their own"
    listeners = {"advertisedListeners": "inside:pulsar://127.0.0.1:6650"}
    said = _refused(standalone_command(data_dir, options=BROKERS, settings=listeners))
    assert said.startswith("Error: advertisedListeners: each of several brokers has ports")
    command = standalone_command(data_dir, options=[*BROKERS, "--first-own-port", "65534"])
    assert "2 brokers need 4 ports, and from 65534 on there are 2" in _refused(command)


@pytest.mark.parametrize("value", ["-1", "x", "65"])
def test_wrong_numbers_of_brokers(data_dir: Path, value: str) -> None:
    said = _refused(standalone_command(data_dir, options=["--brokers", value]))
    assert "--brokers" in said
    assert not data_dir.exists()


def _refused(command: list[str], code: int = 2) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, f"code {done.returncode}: {done.stderr}"
    assert "Traceback" not in done.stderr
    lines = [
        line
        for line in done.stderr.splitlines()
        if line and not line.startswith(("Usage:", "Try "))
    ]
    assert len(lines) == 1, f"one sentence is enough:\n{done.stderr}"
    return lines[0]
