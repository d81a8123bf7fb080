"""Who may publish once others are gone: topic epochs over unloading and restarts, names on dead
connections, topics that take encrypted messages only. At the wire, on our server and Apache's.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from pathlib import Path

import pytest

from compat_tests.clients.conftest import Peer
from compat_tests.processes import start_geminga
from compat_tests.wire.raw import ERROR_TYPES, RawClient
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandProducerSuccess,
    CommandSubscribe,
    ProducerAccessMode,
    ServerError,
)

CHECKED_S = 5.0
"""`connectionLivenessCheckTimeoutMillis` of both servers."""
KEEP_ALIVE_S = 30.0
"""`keepAliveIntervalSeconds`: without a check, such a connection lives for longer."""

Mode = ProducerAccessMode


def fresh_topic(namespace: str = "public/default") -> str:
    return f"persistent://{namespace}/takeover-{uuid.uuid4().hex[:8]}"


def made_topic(peer: Peer, namespace: str = "public/default") -> str:
    """A topic that this server has loaded: Apache's refuses clients that did not look it up."""
    topic = fresh_topic(namespace)
    peer.admin("PUT", topic.replace("://", "/"))
    return topic


def made_namespace(peer: Peer) -> str:
    """A fresh one, of a tenant that no other test lists."""
    tenant = f"enc{uuid.uuid4().hex[:8]}"
    peer.admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"]})
    peer.admin("PUT", f"namespaces/{tenant}/app")
    return f"{tenant}/app"


def open_producer(
    client: RawClient,
    topic: str,
    name: str,
    mode: ProducerAccessMode.ValueType = Mode.Shared,
    epoch: int | None = None,
    producer_id: int = 1,
) -> CommandProducerSuccess | ServerError.ValueType:
    """The answer to PRODUCER: success, or why not."""
    command = BaseCommand(type=BaseCommand.PRODUCER)
    producer = command.producer
    producer.topic = topic
    producer.producer_id = producer_id
    producer.request_id = client.request_id()
    producer.producer_name = name
    producer.user_provided_producer_name = True
    producer.producer_access_mode = mode
    if epoch is not None:
        producer.topic_epoch = epoch
    client.send(command)
    answer = client.wait_for(BaseCommand.PRODUCER_SUCCESS, *ERROR_TYPES).command
    if answer.type == BaseCommand.PRODUCER_SUCCESS:
        return answer.producer_success
    return answer.error.error


def opened(answer: CommandProducerSuccess | ServerError.ValueType) -> CommandProducerSuccess:
    assert isinstance(answer, CommandProducerSuccess), ServerError.Name(answer)
    return answer


@pytest.mark.parametrize("mode", [Mode.Exclusive, Mode.ExclusiveWithFencing])
def test_an_old_epoch_is_fenced_after_the_topic_was_unloaded(
    peer: Peer, mode: ProducerAccessMode.ValueType
) -> None:
    topic = made_topic(peer)
    with RawClient(peer.server.address) as first, RawClient(peer.server.address) as second:
        assert opened(open_producer(first, topic, "a", mode)).topic_epoch == 0
        taken = open_producer(second, topic, "b", Mode.ExclusiveWithFencing)
        assert opened(taken).topic_epoch == 1
        peer.admin("PUT", topic.replace("://", "/") + "/unload")
        second.wait_for(BaseCommand.CLOSE_PRODUCER)
        again = open_producer(first, topic, "a", mode, epoch=0, producer_id=2)
        assert again == ServerError.ProducerFenced
        assert opened(open_producer(second, topic, "b", mode, 1, producer_id=2)).topic_epoch == 1


def test_an_old_epoch_is_fenced_after_the_broker_was_killed(tmp_path: Path) -> None:
    topic = fresh_topic()
    server = start_geminga(tmp_path / "data")
    with RawClient(server.address) as first:
        assert opened(open_producer(first, topic, "a", Mode.Exclusive)).topic_epoch == 0
    with RawClient(server.address) as second:
        taken = open_producer(second, topic, "b", Mode.ExclusiveWithFencing)
        assert opened(taken).topic_epoch == 1
        server.kill()
    server = start_geminga(tmp_path / "data")
    try:
        with RawClient(server.address) as client:
            answer = open_producer(client, topic, "a", Mode.Exclusive, epoch=0)
            assert answer == ServerError.ProducerFenced
            answer = open_producer(client, topic, "b", Mode.Exclusive, 1, producer_id=2)
            assert opened(answer).topic_epoch == 1
    finally:
        server.stop()


@pytest.mark.slow
def test_a_name_on_a_connection_that_does_not_answer_is_taken_over(peer: Peer) -> None:
    topic, server = made_topic(peer), peer.server
    with RawClient(server.address) as silent, RawClient(server.address) as late:
        opened(open_producer(silent, topic, "a"))
        began = time.monotonic()
        opened(open_producer(late, topic, "a"))
        assert CHECKED_S * 0.9 < time.monotonic() - began < KEEP_ALIVE_S
    with RawClient(server.address) as alive, RawClient(server.address) as late:
        opened(open_producer(alive, topic, "b"))
        late.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            open_producer(late, topic, "b")
        alive.socket.settimeout(0.1)
        while not late.frames:
            for client in (alive, late):  # the first one answers the PING
                with contextlib.suppress(TimeoutError):
                    client.receive_some()
        assert late.wait_for(*ERROR_TYPES).command.error.error == ServerError.ProducerBusy


@pytest.mark.slow
def test_an_exclusive_subscription_on_a_dead_connection_is_taken_over(peer: Peer) -> None:
    topic, server = made_topic(peer), peer.server
    with RawClient(server.address) as silent, RawClient(server.address) as late:
        silent.subscribe(topic, "s", kind=CommandSubscribe.Exclusive)
        began = time.monotonic()
        late.subscribe(topic, "s", kind=CommandSubscribe.Exclusive)
        assert CHECKED_S * 0.9 < time.monotonic() - began < KEEP_ALIVE_S


def test_a_namespace_that_requires_encryption_refuses_plain_producers(peer: Peer) -> None:
    namespace = made_namespace(peer)
    topic = made_topic(peer, namespace)
    with RawClient(peer.server.address) as client:
        opened(open_producer(client, topic, "before"))
        peer.admin("POST", f"namespaces/{namespace}/encryptionRequired", True)
        deadline = time.monotonic() + 60
        producer_id = 1
        # Topics take policies a moment later.
        while time.monotonic() < deadline:
            producer_id += 1
            answer = open_producer(client, topic, f"p{producer_id}", producer_id=producer_id)
            if not isinstance(answer, CommandProducerSuccess):
                break
            time.sleep(0.1)
        assert answer == ServerError.MetadataError
        peer.admin("POST", f"namespaces/{namespace}/encryptionRequired", False)
