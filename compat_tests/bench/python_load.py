"""Load through the official Python client: ``python -m compat_tests.bench.python_load MODE``.

Modes: ``produce`` (as fast as the client's queue allows), ``consume`` (receive and acknowledge one
by one), ``ping`` (one message at a time, latency). Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time

import pulsar


def main() -> None:
    """Run one load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["produce", "consume", "ping"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batching", type=int, default=1)
    parser.add_argument("--callbacks", type=int, default=1)
    parser.add_argument("--type", default="Exclusive")
    options = parser.parse_args()
    client = pulsar.Client(options.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    modes = {"produce": produce, "consume": consume, "ping": ping}
    result = modes[options.mode](client, options)
    print(json.dumps(result), flush=True)
    os._exit(1 if result.get("failed") else 0)


def produce(client: pulsar.Client, options: argparse.Namespace) -> dict[str, float]:
    """Send so many messages and wait for all receipts; a subscription keeps them."""
    client.subscribe(options.topic, "python-load").close()
    producer = client.create_producer(
        options.topic,
        batching_enabled=bool(options.batching),
        batching_max_publish_delay_ms=1,
        max_pending_messages=1000,
        block_if_queue_full=True,
    )
    payload = os.urandom(options.size)
    receipts = 0
    failed = 0
    done = threading.Event()

    def receipt(result: pulsar.Result, _: pulsar.MessageId) -> None:
        nonlocal receipts, failed
        receipts += 1
        failed += result != pulsar.Result.Ok
        if receipts == options.count:
            done.set()

    began = time.perf_counter()
    callback = receipt if options.callbacks else None
    for _ in range(options.count):
        producer.send_async(payload, callback)
    producer.flush()
    if options.callbacks:
        done.wait(60)
    else:
        receipts = producer.last_sequence_id() + 1
    seconds = time.perf_counter() - began
    missing = options.count - receipts
    return {"seconds": seconds, "publish_per_s": receipts / seconds, "failed": failed + missing}


def consume(client: pulsar.Client, options: argparse.Namespace) -> dict[str, float]:
    """Take so many messages one by one and acknowledge each."""
    consumer = client.subscribe(
        options.topic,
        "python-load",
        consumer_type=getattr(pulsar.ConsumerType, options.type),
        initial_position=pulsar.InitialPosition.Earliest,
    )
    began = time.perf_counter()
    for _ in range(options.count):
        consumer.acknowledge(consumer.receive(30_000))
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "consume_per_s": options.count / seconds}


def ping(client: pulsar.Client, options: argparse.Namespace) -> dict[str, float]:
    """Send one message at a time."""
    producer = client.create_producer(options.topic, batching_enabled=False)
    payload = os.urandom(options.size)
    times_ms = []
    for _ in range(options.count):
        began = time.perf_counter()
        producer.send(payload)
        times_ms.append((time.perf_counter() - began) * 1000)
    times_ms = sorted(times_ms[len(times_ms) // 10 :])
    return {
        "publish_ms_p50": times_ms[len(times_ms) // 2],
        "publish_ms_p99": times_ms[len(times_ms) * 99 // 100],
    }


if __name__ == "__main__":
    main()
