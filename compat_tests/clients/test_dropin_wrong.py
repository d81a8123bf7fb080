"""`geminga.pulsar` with what no client can send, and callbacks that exit (spec SDK-45): one call
fails, the client goes on.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import geminga.pulsar as pulsar
from compat_tests.clients.conftest import WAIT_MS
from compat_tests.clients.dropin_world import World, until
from compat_tests.processes import ServerProcess

WAIT_S = WAIT_MS / 1000
LIMIT_BYTES = (5 * 1024 + 10) * 1024
"""Of a frame: that of a message's payload, and what brokers leave for the rest."""
NOT_UNICODE = "\ud800"


def topic(about: str) -> str:
    return f"persistent://public/default/dropin-wrong-{about}"


@pytest.fixture
def client(standalone: ServerProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(standalone.service_url)
    yield made
    made.close()


def test_whole_numbers_of_other_libraries_are_ids() -> None:
    class Seven:
        def __index__(self) -> int:
            return 7

    made: Any = pulsar.MessageId
    assert made(ledger_id=Seven(), entry_id=Seven()) == pulsar.MessageId(-1, 7, 7)


def test_a_name_that_is_no_unicode_ends_only_its_call(client: pulsar.Client) -> None:
    name, earliest = topic("unicode"), pulsar.MessageId.earliest
    producer = client.create_producer(name)
    calls: list[Callable[[], Any]] = [
        partial(client.create_producer, name, NOT_UNICODE),
        partial(client.create_producer, name + NOT_UNICODE),
        partial(client.create_producer, name, properties={"a": NOT_UNICODE}),
        partial(client.subscribe, name, NOT_UNICODE),
        partial(client.subscribe, name, "s", consumer_name=NOT_UNICODE),
        partial(client.subscribe, [name, NOT_UNICODE], "s"),
        partial(client.create_reader, name, earliest, reader_name=NOT_UNICODE),
        partial(client.create_reader, name, earliest, subscription_role_prefix=NOT_UNICODE),
        partial(client.create_table_view, name, NOT_UNICODE),
        partial(client.get_topic_partitions, NOT_UNICODE),
    ]
    for call in calls:
        with pytest.raises(pulsar.InvalidConfiguration):
            call()
    producer.send(b"still here")


def test_numbers_that_no_id_can_have_are_refused(client: pulsar.Client) -> None:
    wrong: Any
    for wrong in ((1 << 31,), (0, 1 << 63), (0, 0, -(1 << 63) - 1), (0, 0, 0, 1 << 31), (None,)):
        with pytest.raises(TypeError):
            pulsar.MessageId(*wrong)
    with pytest.raises(pulsar.InvalidConfiguration):
        client.create_producer(topic("numbers"), initial_sequence_id=1 << 63)
    no_topics: Any = [5]
    with pytest.raises(TypeError):
        client.subscribe(no_topics, "s")


def test_what_cannot_be_called_is_refused(client: pulsar.Client) -> None:
    wrong: Any = "no function"
    name, earliest = topic("functions"), pulsar.MessageId.earliest
    producer, view = client.create_producer(name), client.create_table_view(name)
    for call in (
        partial(client.subscribe, name, "s", message_listener=wrong),
        partial(client.create_reader, name, earliest, reader_listener=wrong),
        partial(producer.send_async, b"", wrong),
        partial(view.for_each_and_listen, wrong),
    ):
        with pytest.raises(TypeError, match="must be a function"):
            call()


def test_properties_above_the_limit_fail_their_message_alone(client: pulsar.Client) -> None:
    """A broker closes the connection at such a frame, each time that it is sent again."""
    producer, other = (client.create_producer(topic(f"big-{each}")) for each in "ab")
    long = "x" * 6_000_000
    for send in (
        partial(producer.send, properties={"a": long}),
        partial(producer.send, partition_key=long),
    ):
        with pytest.raises(pulsar.MessageTooBig):
            send(b"")
    producer.send(b"", properties={"a": "x" * (LIMIT_BYTES - 1024)})
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(b"", properties={"a": "x" * LIMIT_BYTES})
    other.send(b"")


def leave(*_: object) -> int:
    sys.exit(3)


def test_callbacks_that_exit_end_no_client(standalone: ServerProcess, tmp_path: Path) -> None:
    world = World(pulsar, standalone, tmp_path)
    client, name = world.client, world.topic()
    producer = client.create_producer(name)
    view = client.create_table_view(name)
    view.for_each_and_listen(leave)
    producer.send_async(b"1", leave, partition_key="k")
    producer.send(b"2", partition_key="k")
    until(lambda: view.get("k") == b"2")
    custom = pulsar.PartitionsRoutingMode.CustomPartition
    routed = client.create_producer(
        world.partitioned("routed", 2), message_routing_mode=custom, message_router=leave
    )
    with pytest.raises(pulsar.InvalidConfiguration):
        routed.send(b"")
    producer.send(b"3")
    client.close()


def test_a_token_function_that_exits_is_an_error_of_authentication(
    standalone: ServerProcess,
) -> None:
    def token() -> str:
        return str(leave())

    client = pulsar.Client(standalone.service_url, pulsar.AuthenticationToken(token))
    with pytest.raises(pulsar.AuthenticationError):
        client.create_producer(topic("token"))
    client.close()


def test_the_error_of_a_refused_messages_callback_is_logged(
    client: pulsar.Client, caplog: pytest.LogCaptureFixture
) -> None:
    producer = client.create_producer(topic("refused"))
    producer.close()

    def fail(_result: pulsar.Result, _place: pulsar.MessageId) -> None:
        raise RuntimeError("the program's own")

    producer.send_async(b"", fail)
    assert "the program's own" in caplog.text


def test_listeners_may_close_each_others_consumers(standalone: ServerProcess) -> None:
    client = pulsar.Client(standalone.service_url, message_listener_threads=2)
    both = threading.Barrier(2)
    consumers: list[pulsar.Consumer] = []
    closed = threading.Semaphore(0)

    def close_other(mine: pulsar.Consumer, _message: pulsar.Message) -> None:
        both.wait(WAIT_S)
        for each in consumers:
            if each is not mine:
                each.close()
        closed.release()

    for name in "ab":
        consumers.append(client.subscribe(topic("each"), name, message_listener=close_other))
    client.create_producer(topic("each")).send(b"")
    assert closed.acquire(timeout=WAIT_S)
    assert closed.acquire(timeout=WAIT_S)
    client.close()
