"""Load on Shared and Key_Shared with many consumers: ``python -m compat_tests.bench.key_load``.

A client of its own on one plain socket, so that it costs little more than reading: ``fill``
publishes messages of distinct keys, ``drain`` reads them by a new subscription of many consumers
and acknowledges ten times a second, as the official clients do. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import time
from urllib.parse import urlsplit

from compat_tests.wire.raw import RawClient
from geminga_protocol import encode, payload
from geminga_protocol.commands import consuming
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata

IN_FLIGHT_MAX = 1000
RECEIVER_QUEUE = 1000
"""Permits of each consumer; half of them are given anew when half are used."""
ACK_PERIOD_S = 0.1


def main() -> None:
    """Run one load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["fill", "drain"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--type", choices=["Shared", "Key_Shared"], default="Key_Shared")
    parser.add_argument("--consumers", type=int, default=100)
    options = parser.parse_args()
    where = urlsplit(options.url)
    with RawClient((where.hostname or "127.0.0.1", where.port or 6650), timeout_s=60) as client:
        look_up(client, options.topic)
        result = fill(client, options) if options.mode == "fill" else drain(client, options)
    print(json.dumps(result), flush=True)


def look_up(client: RawClient, topic: str) -> None:
    """Have the server load the topic."""
    command = BaseCommand(type=BaseCommand.LOOKUP)
    command.lookupTopic.topic = topic
    command.lookupTopic.request_id = client.request_id()
    client.send(command)
    client.wait_for(BaseCommand.LOOKUP_RESPONSE)


def fill(client: RawClient, options: argparse.Namespace) -> dict[str, float]:
    """Publish so many messages, each an entry, with as many keys, in two subscriptions' name."""
    for consumer_id, kind in enumerate((CommandSubscribe.Shared, CommandSubscribe.Key_Shared)):
        name = CommandSubscribe.SubType.Name(kind)
        client.subscribe(options.topic, name, consumer_id=consumer_id, kind=kind)
        client.send_bytes(consuming.close_consumer(consumer_id, client.request_id()))
    name = client.producer(options.topic)
    body = bytes(options.size)
    receipts = sent = 0
    began = time.perf_counter()
    while receipts < options.count:
        frames: list[bytes] = []
        while sent < min(options.count, receipts + IN_FLIGHT_MAX) and len(frames) < 100:
            metadata = MessageMetadata(
                producer_name=name, sequence_id=sent, publish_time=1, partition_key=f"key-{sent}"
            )
            rest = payload.build(metadata, body)
            frames += [encode.send(1, sent, 1, len(rest)), rest]
            sent += 1
        if frames:
            client.send_bytes(b"".join(frames))
        if sent == options.count or sent >= receipts + IN_FLIGHT_MAX:
            client.receive_some()
        receipts += sum(frame.type == BaseCommand.SEND_RECEIPT for frame in client.frames)
        client.frames.clear()
    return {"publish_per_s": options.count / (time.perf_counter() - began)}


def drain(client: RawClient, options: argparse.Namespace) -> dict[str, float]:
    """Read all by many consumers at once, from their first permits to the last message."""
    kind = CommandSubscribe.SubType.Value(options.type)
    numbers = range(options.consumers)
    for number in numbers:
        client.subscribe(options.topic, options.type, consumer_id=number, kind=kind)
    left = [RECEIVER_QUEUE] * options.consumers
    ids: list[list[tuple[int, int, tuple[int, ...]]]] = [[] for _ in numbers]
    began = ack_due = time.perf_counter()
    for number in numbers:
        client.flow(RECEIVER_QUEUE, number)
    received = 0
    while received < options.count:
        client.receive_some()
        for frame in client.frames:
            if frame.type == BaseCommand.MESSAGE:
                message = frame.command.message
                number = message.consumer_id
                place = message.message_id
                ids[number].append((place.ledgerId, place.entryId, ()))
                received += 1
                left[number] -= 1
                if left[number] == RECEIVER_QUEUE // 2:
                    left[number] = RECEIVER_QUEUE
                    client.flow(RECEIVER_QUEUE // 2, number)
        client.frames.clear()
        if time.perf_counter() > ack_due or received == options.count:
            ack_due = time.perf_counter() + ACK_PERIOD_S
            acks = [encode.individual_acks(n, each) for n, each in enumerate(ids) if each]
            client.send_bytes(b"".join(acks))
            ids = [[] for _ in numbers]
    seconds = time.perf_counter() - began
    return {"consume_per_s": received / seconds, "client_cpu_s": time.process_time()}


if __name__ == "__main__":
    main()
