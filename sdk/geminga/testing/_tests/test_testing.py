"""The broker for tests: real, quick, several at once, stopped afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest
import trio

import geminga
import geminga.blocking
from geminga.testing import BrokerStartFailed, BrokerUrl, broker, open_broker


def threads() -> set[str]:
    return {each.name for each in threading.enumerate()}


def test_thread_broker_serves_and_stops() -> None:
    with broker() as url:
        assert url.startswith("pulsar://127.0.0.1:")
        assert "geminga-broker" in threads()
        with urllib.request.urlopen(f"{url.web_url}/admin/v2/clusters", timeout=60) as answer:
            assert answer.status == 200
    assert "geminga-broker" not in threads()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url.web_url, timeout=60)


@pytest.mark.alone
def test_second_broker_is_ready_at_once() -> None:
    took_s: list[float] = []
    for _ in range(4):  # the first one imports, and a neighbour on the same core may slow one
        began_s = time.process_time()
        with broker():
            took_s.append(time.process_time() - began_s)
    assert min(took_s[1:]) < 0.5


@pytest.mark.slow
def test_brokers_beside_each_other_know_nothing_of_each_other() -> None:
    with broker() as first, broker() as second:
        assert first != second
        for url in (first, second):
            with geminga.blocking.connect(url) as client:
                client.create_producer("same-topic").send(url.encode())
        for url in (first, second):
            with geminga.blocking.connect(url) as client:
                reader = client.create_reader("same-topic", geminga.EARLIEST)
                assert reader.read_next(60).data == url.encode()
                assert not reader.has_message_available()


@pytest.mark.slow
def test_several_brokers_share_the_topics() -> None:
    with broker(brokers=2) as url, geminga.blocking.connect(url) as client:
        topics = [f"shared-{number}" for number in range(12)]
        for topic in topics:
            client.create_producer(topic).send(topic.encode())
        for topic in topics:
            reader = client.create_reader(topic, geminga.EARLIEST)
            assert reader.read_next(60).data == topic.encode()
        owners: set[str] = set()
        for topic in topics:
            path = f"{url.web_url}/lookup/v2/topic/persistent/public/default/{topic}"
            with urllib.request.urlopen(path, timeout=60) as answer:
                owners.add(json.loads(answer.read())["brokerUrl"])
        assert len(owners) == 2
        assert url not in owners
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url.web_url, timeout=60)


def test_no_brokers() -> None:
    with pytest.raises(BrokerStartFailed, match="brokers: 0 is less than one"), broker(brokers=0):
        pass


def test_settings_are_the_brokers() -> None:
    with (
        broker({"allowAutoTopicCreation": "false"}) as url,
        geminga.blocking.connect(url, operation_timeout_s=10) as client,
        pytest.raises(geminga.TopicNotFoundError),
    ):
        client.create_producer("not-there")


def test_wrong_settings_are_told() -> None:
    with pytest.raises(BrokerStartFailed, match="maxMessageSize"), broker({"maxMessageSize": "x"}):
        pass
    assert "geminga-broker" not in threads()


def test_error_of_the_test_comes_out() -> None:
    with pytest.raises(KeyError), broker():
        raise KeyError("of the test")
    assert "geminga-broker" not in threads()


async def test_open_broker_in_the_same_loop() -> None:
    async with open_broker() as url, geminga.connect(url) as client:
        producer = await client.create_producer("t")
        sent = await producer.send(b"x")
        reader = await client.create_reader("t", geminga.EARLIEST)
        assert (await reader.read_next(60)).message_id == sent
    assert isinstance(url, BrokerUrl)


async def test_open_broker_lets_errors_and_cancellation_through() -> None:
    with pytest.raises(KeyError, match="of the test"):
        async with open_broker():
            raise KeyError("of the test")
    with trio.CancelScope() as scope:
        async with open_broker():
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_leaves_the_broker_alone() -> None:
    with broker() as url:
        pid = os.fork()
        if pid == 0:
            try:
                return_code = 1
                stop = broker()
                stop.__enter__()
                stop.__exit__(None, None, None)
                return_code = 0
            finally:
                os._exit(return_code)
        assert os.waitpid(pid, 0)[1] == 0
        with geminga.blocking.connect(url) as client:
            client.create_producer("t").send(b"x")


def test_settings_may_be_numbers() -> None:
    settings = {"maxMessageSize": 70_000, "topicLevelPoliciesEnabled": False}
    with broker(settings) as url, geminga.blocking.connect(url) as client:
        producer = client.create_producer("t", batching_enabled=False)
        with pytest.raises(geminga.MessageTooBigError):
            producer.send(b"x" * 80_000)


@pytest.mark.parametrize(
    ("value", "text"),
    [("abc", "maxMessageSize in settings: 'abc'"), (None, "maxMessageSize in settings: None")],
)
def test_wrong_settings_are_named(value: str, text: str) -> None:
    with pytest.raises(BrokerStartFailed, match=text), broker({"maxMessageSize": value}):
        pass


def test_asyncio_is_told_which_broker_to_use() -> None:
    async def wrong() -> None:
        async with open_broker():
            pass

    with pytest.raises(BrokerStartFailed, match="in asyncio"):
        asyncio.run(wrong())


def test_import_needs_no_broker() -> None:
    code = (
        "import sys, geminga.testing.pytest_plugin as p;"
        "print(*[m for m in ('trio', 'geminga_broker') if m in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == ""


FIXTURES = """
import geminga.blocking

names = set()

def test_first(geminga_broker, geminga_namespace):
    names.add(geminga_namespace)
    with geminga.blocking.connect(geminga_broker) as client:
        topic = f"persistent://{geminga_namespace}/t"
        client.create_producer(topic).send(b"x")
        assert client.subscribe(topic, "s", initial_position=geminga.InitialPosition.EARLIEST)

def test_second(geminga_broker, geminga_namespace):
    names.add(geminga_namespace)
    assert len(names) == 2

def test_both_are_gone(geminga_broker):
    import json, urllib.request
    url = f"{geminga_broker.web_url}/admin/v2/namespaces/public"
    with urllib.request.urlopen(url) as answer:
        assert not names & set(json.load(answer))
"""


@pytest.mark.slow
def test_pytest_finds_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(FIXTURES)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "3 passed" in run.stdout
