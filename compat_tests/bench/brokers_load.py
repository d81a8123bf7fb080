"""Load on many topics of several brokers: ``python -m compat_tests.bench.brokers_load``.

One plain socket for each broker that owns a topic, found by lookups at the one address. Each topic
has a producer with so many entries in flight and an exclusive consumer that acknowledges what it
got. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import select
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from compat_tests.wire.raw import RawClient
from geminga_protocol import encode, payload
from geminga_protocol.frames import Frame
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    MessageMetadata,
)

Address = tuple[str, int]
PERMITS = 1000


@dataclass
class _Topic:
    """Producer and consumer of one topic, by whose number both have their ids."""

    number: int
    name: str
    producer_name: str = ""
    sent: int = 0
    receipts: int = 0
    permits: int = PERMITS
    ids: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)


@dataclass
class _Broker:
    """A connection, and the topics that its broker owns."""

    client: RawClient
    topics: dict[int, _Topic] = field(default_factory=dict)


def main() -> None:
    """Run the load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["both"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--topics", type=int, required=True)
    parser.add_argument("--count", type=int, required=True, help="entries of all topics")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a message")
    parser.add_argument("--batch", type=int, default=1, help="messages of an entry")
    parser.add_argument("--in-flight", type=int, default=50, help="entries of a topic")
    options = parser.parse_args()
    brokers = prepare(options)
    result = run(brokers, options)
    finish(brokers)
    print(json.dumps(result), flush=True)


def prepare(options: argparse.Namespace) -> list[_Broker]:
    """Find the owners, and open producers and consumers there."""
    service = _address(options.url)
    by_address: dict[Address, _Broker] = {}
    for number in range(options.topics):
        topic = _Topic(number, f"{options.topic}-{number}")
        owner = _owner(service, topic.name)
        if owner not in by_address:
            by_address[owner] = _Broker(RawClient(owner))
        broker = by_address[owner]
        broker.topics[number] = topic
        broker.client.subscribe(topic.name, "load", consumer_id=number)
        topic.producer_name = broker.client.producer(topic.name, producer_id=number)
        broker.client.flow(PERMITS, number)
    return list(by_address.values())


def _address(url: str) -> Address:
    where = urlsplit(url)
    return where.hostname or "127.0.0.1", where.port or 6650


def _owner(address: Address, topic: str) -> Address:
    """Follow the redirects of a lookup."""
    authoritative = False
    while True:
        with RawClient(address) as client:
            command = BaseCommand(type=BaseCommand.LOOKUP)
            command.lookupTopic.topic = topic
            command.lookupTopic.request_id = client.request_id()
            command.lookupTopic.authoritative = authoritative
            client.send(command)
            answer = client.wait_for(BaseCommand.LOOKUP_RESPONSE).command.lookupTopicResponse
        if answer.response == CommandLookupTopicResponse.Failed:
            raise RuntimeError(answer.message)
        address, authoritative = _address(answer.brokerServiceUrl), answer.authoritative
        if answer.response == CommandLookupTopicResponse.Connect:
            return address


def run(brokers: list[_Broker], options: argparse.Namespace) -> dict[str, float]:
    """Publish and consume so many entries of all topics."""
    topics = [topic for broker in brokers for topic in broker.topics.values()]
    each = options.count // len(topics)
    by_socket = {broker.client.socket: broker for broker in brokers}
    began, cpu = time.perf_counter(), time.process_time()
    left = 2 * each * len(topics)
    ready = list(by_socket)
    while left:
        for sock in ready:
            _send(by_socket[sock], each, options)
        ready = select.select(list(by_socket), [], [], 60)[0]
        if not ready:
            raise TimeoutError("no answers for a minute")
        for sock in ready:
            left -= _receive(by_socket[sock], options.batch)
    seconds = time.perf_counter() - began
    count = each * len(topics) * options.batch
    return {
        "entries": each * len(topics),
        "messages": count,
        "messages_per_s": count / seconds,
        "client_cpu_us": (time.process_time() - cpu) * 1e6 / count,
        "brokers": len(brokers),
    }


def finish(brokers: list[_Broker]) -> None:
    """Acknowledge what is left, so that the next load on these topics finds them empty."""
    for broker in brokers:
        client = broker.client
        for number, topic in broker.topics.items():
            if topic.ids:
                client.send_bytes(encode.individual_acks(number, topic.ids))
        # A broker answers in order: when it has closed a consumer, it has read all before.
        command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
        command.close_consumer.consumer_id = next(iter(broker.topics))
        command.close_consumer.request_id = client.request_id()
        client.send(command)
        client.wait_for(BaseCommand.SUCCESS)
        client.socket.close()


def _send(broker: _Broker, each: int, options: argparse.Namespace) -> None:
    frames: list[bytes] = []
    for number, topic in broker.topics.items():
        until = min(each, topic.receipts + options.in_flight)
        while topic.sent < until:
            frames += _entry(topic, number, options)
            topic.sent += 1
        if topic.ids:
            frames.append(encode.individual_acks(number, topic.ids))
            topic.ids = []
        if topic.permits <= PERMITS // 2:
            broker.client.flow(PERMITS - topic.permits, number)
            topic.permits = PERMITS
    if frames:
        broker.client.send_bytes(b"".join(frames))


def _entry(topic: _Topic, number: int, options: argparse.Namespace) -> tuple[bytes, bytes]:
    rest = _payload(topic, options)
    return encode.send(number, topic.sent, options.batch, len(rest)), rest


def _payload(topic: _Topic, options: argparse.Namespace) -> bytes:
    """Metadata with the sequence id, and the body. A broker doesn't look into a batch."""
    metadata = MessageMetadata(
        producer_name=topic.producer_name, sequence_id=topic.sent, publish_time=1
    )
    if options.batch > 1:
        metadata.num_messages_in_batch = options.batch
    return payload.build(metadata, bytes(options.size * options.batch))


def _receive(broker: _Broker, batch: int) -> int:
    """Receipts and entries that have come."""
    broker.client.receive_some()
    done = 0
    for frame in broker.client.frames:
        done += _take(broker, frame, batch)
    broker.client.frames.clear()
    return done


def _take(broker: _Broker, frame: Frame, batch: int) -> int:
    if frame.type == BaseCommand.SEND_RECEIPT:
        broker.topics[frame.command.send_receipt.producer_id].receipts += 1
        return 1
    if frame.type == BaseCommand.MESSAGE:
        message = frame.command.message
        topic = broker.topics[message.consumer_id]
        topic.ids.append((message.message_id.ledgerId, message.message_id.entryId, ()))
        topic.permits -= batch
        return 1
    if frame.type in (BaseCommand.SEND_ERROR, BaseCommand.ERROR):
        raise RuntimeError(str(frame.command))
    return 0


if __name__ == "__main__":
    main()
