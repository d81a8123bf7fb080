"""The loads of `sdk_load` through the official Python client, with the same bounds."""

from __future__ import annotations

import argparse
import json
import os
import threading
import time

import pulsar

from compat_tests.bench import sdk_common
from compat_tests.bench.sdk_common import BURST, QUEUE_SIZE, STAMP, SUBSCRIPTION, Clock, Figures

_TIMEOUT_MS = 30_000


def _producer(client: pulsar.Client, options: argparse.Namespace) -> pulsar.Producer:
    return client.create_producer(
        options.topic,
        batching_enabled=bool(options.batching),
        batching_max_messages=1000,
        batching_max_allowed_size_in_bytes=128 * 1024,
        batching_max_publish_delay_ms=1,
        max_pending_messages=sdk_common.PENDING_MAX,
        block_if_queue_full=True,
    )


def _consumer(client: pulsar.Client, options: argparse.Namespace) -> pulsar.Consumer:
    return client.subscribe(
        options.topic,
        SUBSCRIPTION,
        consumer_type=getattr(pulsar.ConsumerType, options.type.replace("_", "")),
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=QUEUE_SIZE,
    )


def produce(client: pulsar.Client, options: argparse.Namespace) -> Figures:
    """Send so many messages and wait for all receipts; a subscription keeps them."""
    client.subscribe(options.topic, SUBSCRIPTION).close()
    producer = _producer(client, options)
    payload = os.urandom(options.size)
    count = options.count
    named = sdk_common.keys(options)
    receipts = failed = 0
    done = threading.Event()

    def receipt(result: pulsar.Result, _: pulsar.MessageId) -> None:
        nonlocal receipts, failed
        receipts += 1
        if result != pulsar.Result.Ok:
            failed += 1
        if receipts == count:
            done.set()

    send = producer.send_async
    clock = Clock()
    if named:
        for number in range(count):
            send(payload, receipt, partition_key=named[number % len(named)])
    else:
        for _ in range(count):
            send(payload, receipt)
    producer.flush()
    done.wait(60)
    return clock.figures(receipts - failed, count)


def forget(client: pulsar.Client, options: argparse.Namespace) -> Figures:
    """The same without a callback: nothing of Python's runs for a message once it was handed over.
    The client's flush raises if one failed.
    """
    client.subscribe(options.topic, SUBSCRIPTION).close()
    producer = _producer(client, options)
    payload = os.urandom(options.size)
    send = producer.send_async
    clock = Clock()
    for _ in range(options.count):
        send(payload, None)
    producer.flush()
    figures = clock.figures(options.count, options.count)
    stored = producer.last_sequence_id() + 1
    return figures | {"failed": options.count - stored}


def consume(client: pulsar.Client, options: argparse.Namespace) -> Figures:
    """Take so many messages one by one and acknowledge each."""
    consumer = _consumer(client, options)
    receive = consumer.receive
    acknowledge = consumer.acknowledge
    size = 0
    clock = Clock()
    for _ in range(options.count):
        message = receive(_TIMEOUT_MS)
        size += len(message.data())
        acknowledge(message)
    return clock.figures(size // options.size, options.count)


def ping(client: pulsar.Client, options: argparse.Namespace) -> Figures:
    """One message at a time."""
    options.batching = 0
    producer = _producer(client, options)
    payload = os.urandom(options.size)
    times_s = []
    for _ in range(options.count):
        began = time.perf_counter()
        producer.send(payload)
        times_s.append(time.perf_counter() - began)
    return sdk_common.latencies(times_s)


def paced(client: pulsar.Client, options: argparse.Namespace) -> Figures:
    """A steady rate with a consumer in the same program, which has a thread."""
    consumer = _consumer(client, options)
    producer = _producer(client, options)
    count = options.count
    times_s: list[float] = []

    def receive() -> None:
        for _ in range(count):
            message = consumer.receive(_TIMEOUT_MS)
            times_s.append(time.perf_counter() - STAMP.unpack_from(message.data())[0])
            consumer.acknowledge(message)

    receiving = threading.Thread(target=receive)
    receiving.start()
    filling = bytes(options.size - STAMP.size)
    clock = time.perf_counter
    began = clock()
    for number in range(0, count, BURST):
        wait_s = began + number / options.rate - clock()
        if wait_s > 0:
            time.sleep(wait_s)
        for _ in range(BURST):
            producer.send_async(STAMP.pack(clock()) + filling, lambda _, __: None)
    receiving.join()
    return sdk_common.latencies(times_s) | {"failed": count - len(times_s)}


def many(client: pulsar.Client, options: argparse.Namespace) -> Figures:
    """So many topics, each with a producer and a consumer."""
    before = sdk_common.rss_bytes()
    kept: list[object] = []
    for number in range(options.count):
        topic = f"{options.topic}-{number}"
        kept.append(client.subscribe(topic, SUBSCRIPTION))
        kept.append(client.create_producer(topic))
    grown = sdk_common.rss_bytes() - before
    return {"rss_mb": grown / 1e6, "failed": 2 * options.count - len(kept)}


MODES = {
    "many": many,
    "produce": produce,
    "forget": forget,
    "consume": consume,
    "ping": ping,
    "paced": paced,
}


def main() -> None:
    """Run one load."""
    options = sdk_common.arguments()
    client = pulsar.Client(options.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    print(json.dumps(MODES[options.mode](client, options)), flush=True)
    # Closing takes up to seconds; nothing is lost by leaving.
    os._exit(0)


if __name__ == "__main__":
    main()
