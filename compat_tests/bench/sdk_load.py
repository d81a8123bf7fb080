"""Load through our SDK: ``python -m compat_tests.bench.sdk_load MODE --face trio|aio|blocking``.

Modes: ``produce`` (as fast as the bound of pending messages allows), ``consume`` (receive and
acknowledge one by one), ``consume-many`` (in lists), ``ping`` (one message at a time, latency),
``paced`` (a steady rate, latency from end to end), ``many`` (memory of so many producers and
consumers). Prints one JSON line; every message is accounted for, or ``failed`` says how many
aren't. The same for the official client is `sdk_official`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import struct
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import trio

import geminga
import geminga.aio
import geminga.blocking
from geminga.options import ConsumerKeywords, ProducerKeywords

STAMP = struct.Struct(">d")
RECEIVE_TIMEOUT_S = 30.0
PENDING_MAX = 10_000
"""In-flight bound of every client in messages, so that none of them waits for round trips."""
QUEUE_SIZE = 1000
BURST = 5
"""Messages that a paced load hands over at once."""
SUBSCRIPTION = "sdk-load"
BATCHING_TYPES = (geminga.BatchingType.DEFAULT, geminga.BatchingType.KEY_BASED)

Producer = geminga.Producer | geminga.aio.Producer
Consumer = geminga.Consumer | geminga.aio.Consumer
Client = geminga.Client | geminga.aio.Client
Figures = dict[str, float]


def arguments() -> argparse.Namespace:
    """What to do; the same for every client."""
    parser = argparse.ArgumentParser(description=__doc__)
    modes = ["produce", "consume", "consume-many", "ping", "paced", "many"]
    parser.add_argument("mode", choices=modes)
    parser.add_argument("--face", choices=["trio", "aio", "blocking", "official"], default="trio")
    parser.add_argument("--url", default="")
    parser.add_argument("--topic", default="")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batching", type=int, default=1)
    parser.add_argument("--keys", type=int, default=0)
    parser.add_argument("--keyed", type=int, default=0, help="a batch is of one key")
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--type", default="Exclusive")
    return parser.parse_args()


class Clock:
    """Wall and processor time of a stretch of work, over all threads of the process."""

    def __init__(self) -> None:
        self._cpu_s = self._used()
        self._began = time.perf_counter()

    @staticmethod
    def _used() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def figures(self, done: int, wanted: int, failed: int = 0) -> dict[str, float]:
        """Rate and CPU seconds; what is missing counts as failed."""
        seconds = time.perf_counter() - self._began
        cpu_us = (self._used() - self._cpu_s) * 1e6
        return {
            "seconds": seconds,
            "per_s": done / seconds,
            "client_cpu_us": cpu_us / max(1, done),
            "failed": failed + wanted - done,
        }


def rss_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def latencies(times_s: Sequence[float]) -> dict[str, float]:
    """Percentiles in ms, without the first tenth."""
    settled = sorted(times_s[len(times_s) // 10 :])
    return {
        "ms_p50": settled[len(settled) // 2] * 1000,
        "ms_p99": settled[len(settled) * 99 // 100] * 1000,
        "failed": 0,
    }


def producer_options(options: argparse.Namespace) -> ProducerKeywords:
    """Batches of 1000 messages, 128 KiB or 1 ms, as every client has them here."""
    return {
        "batching_enabled": bool(options.batching),
        "batching_max_messages": 1000,
        "batching_max_bytes": 128 * 1024,
        "batching_max_publish_delay_s": 0.001,
        "batching_type": BATCHING_TYPES[bool(options.keyed)],
        "max_pending_messages": PENDING_MAX,
    }


def consumer_options(options: argparse.Namespace) -> ConsumerKeywords:
    """From the oldest message on."""
    return {
        "consumer_type": geminga.ConsumerType[options.type.upper()],
        "initial_position": geminga.InitialPosition.EARLIEST,
        "receiver_queue_size": QUEUE_SIZE,
    }


def keys(options: argparse.Namespace) -> list[str]:
    """Partition keys that messages take in turn."""
    return [f"key-{number}" for number in range(options.keys)]


def stored(statistics: geminga.ProducerStatistics, clock: Clock, count: int) -> Figures:
    """What the broker has confirmed."""
    return clock.figures(statistics.total_acks_received, count, statistics.total_send_failed)


async def produce(client: Client, options: argparse.Namespace) -> Figures:
    """Hand so many messages over and wait for all receipts; a subscription keeps them."""
    await (await client.subscribe(options.topic, SUBSCRIPTION)).aclose()
    producer = await client.create_producer(options.topic, **producer_options(options))
    payload = os.urandom(options.size)
    count = options.count
    named = keys(options)
    send_soon = producer.send_soon
    clock = Clock()
    if named:
        for number in range(count):
            await send_soon(payload, partition_key=named[number % len(named)])
    else:
        for _ in range(count):
            await send_soon(payload)
    await producer.flush()
    return stored(producer.statistics(), clock, count)


async def consume(client: Client, options: argparse.Namespace) -> Figures:
    """Take so many messages one by one and acknowledge each."""
    consumer = await client.subscribe(options.topic, SUBSCRIPTION, **consumer_options(options))
    receive = consumer.receive
    acknowledge = consumer.acknowledge
    size = 0
    clock = Clock()
    for _ in range(options.count):
        message = await receive(RECEIVE_TIMEOUT_S)
        size += len(message.data)
        await acknowledge(message)
    figures = clock.figures(size // options.size, options.count)
    await consumer.aclose()
    return figures


async def consume_many(client: Client, options: argparse.Namespace) -> Figures:
    """The same in lists."""
    consumer = await client.subscribe(options.topic, SUBSCRIPTION, **consumer_options(options))
    size = done = 0
    clock = Clock()
    while done < options.count:
        messages = await consumer.receive_many(timeout_s=RECEIVE_TIMEOUT_S)
        if not messages:
            break
        done += len(messages)
        for message in messages:
            size += len(message.data)
        await consumer.acknowledge_many(messages)
    figures = clock.figures(size // options.size, options.count)
    await consumer.aclose()
    return figures


async def ping(client: Client, options: argparse.Namespace) -> Figures:
    """One message at a time."""
    options.batching = 0
    producer = await client.create_producer(options.topic, **producer_options(options))
    payload = os.urandom(options.size)
    times_s: list[float] = []
    for _ in range(options.count):
        began = time.perf_counter()
        await producer.send(payload)
        times_s.append(time.perf_counter() - began)
    return latencies(times_s)


async def many(client: Client, options: argparse.Namespace) -> Figures:
    """So many topics, each with a producer and a consumer."""
    before = rss_bytes()
    kept: list[object] = []
    for number in range(options.count):
        topic = f"{options.topic}-{number}"
        kept.append(await client.subscribe(topic, SUBSCRIPTION))
        kept.append(await client.create_producer(topic))
    return {"rss_mb": (rss_bytes() - before) / 1e6, "failed": 2 * options.count - len(kept)}


async def _send_paced(
    producer: Producer, options: argparse.Namespace, sleep: Callable[[float], Awaitable[None]]
) -> None:
    filling = bytes(options.size - STAMP.size)
    clock = time.perf_counter
    began = clock()
    for number in range(0, options.count, BURST):
        wait_s = began + number / options.rate - clock()
        if wait_s > 0:
            await sleep(wait_s)
        for _ in range(BURST):
            await producer.send_soon(STAMP.pack(clock()) + filling)


async def _receive_paced(consumer: Consumer, count: int) -> list[float]:
    times_s: list[float] = []
    for _ in range(count):
        message = await consumer.receive(RECEIVE_TIMEOUT_S)
        times_s.append(time.perf_counter() - STAMP.unpack_from(message.data)[0])
        await consumer.acknowledge(message)
    return times_s


async def paced(client: Client, options: argparse.Namespace) -> Figures:
    """A steady rate with a consumer in the same program."""
    consumer = await client.subscribe(options.topic, SUBSCRIPTION, **consumer_options(options))
    producer = await client.create_producer(options.topic, **producer_options(options))
    count = options.count
    if options.face == "aio":
        receiving = asyncio.ensure_future(_receive_paced(consumer, count))
        await _send_paced(producer, options, asyncio.sleep)
        return latencies(await receiving)
    times_s: list[float] = []

    async def receive() -> None:
        times_s.extend(await _receive_paced(consumer, count))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await _send_paced(producer, options, trio.sleep)
    return latencies(times_s)


ASYNC_MODES = {
    "produce": produce,
    "consume": consume,
    "consume-many": consume_many,
    "ping": ping,
    "paced": paced,
    "many": many,
}


async def _in_trio(options: argparse.Namespace) -> Figures:
    async with geminga.connect(options.url) as client:
        return await ASYNC_MODES[options.mode](client, options)


async def _in_asyncio(options: argparse.Namespace) -> Figures:
    async with geminga.aio.connect(options.url) as client:
        return await ASYNC_MODES[options.mode](client, options)


def produce_blocking(client: geminga.blocking.Client, options: argparse.Namespace) -> Figures:
    """As `produce`."""
    client.subscribe(options.topic, SUBSCRIPTION).close()
    producer = client.create_producer(options.topic, **producer_options(options))
    payload = os.urandom(options.size)
    count = options.count
    named = keys(options)
    send_soon = producer.send_soon
    clock = Clock()
    if named:
        for number in range(count):
            send_soon(payload, partition_key=named[number % len(named)])
    else:
        for _ in range(count):
            send_soon(payload)
    producer.flush()
    return stored(producer.statistics(), clock, count)


def consume_blocking(client: geminga.blocking.Client, options: argparse.Namespace) -> Figures:
    """As `consume`."""
    consumer = client.subscribe(options.topic, SUBSCRIPTION, **consumer_options(options))
    receive = consumer.receive
    acknowledge = consumer.acknowledge
    size = 0
    clock = Clock()
    for _ in range(options.count):
        message = receive(RECEIVE_TIMEOUT_S)
        size += len(message.data)
        acknowledge(message)
    figures = clock.figures(size // options.size, options.count)
    consumer.close()
    return figures


def consume_many_blocking(client: geminga.blocking.Client, options: argparse.Namespace) -> Figures:
    """As `consume_many`."""
    consumer = client.subscribe(options.topic, SUBSCRIPTION, **consumer_options(options))
    size = done = 0
    clock = Clock()
    while done < options.count:
        messages = consumer.receive_many(timeout_s=RECEIVE_TIMEOUT_S)
        if not messages:
            break
        done += len(messages)
        for message in messages:
            size += len(message.data)
        consumer.acknowledge_many(messages)
    figures = clock.figures(size // options.size, options.count)
    consumer.close()
    return figures


def ping_blocking(client: geminga.blocking.Client, options: argparse.Namespace) -> Figures:
    """As `ping`."""
    options.batching = 0
    producer = client.create_producer(options.topic, **producer_options(options))
    payload = os.urandom(options.size)
    times_s: list[float] = []
    for _ in range(options.count):
        began = time.perf_counter()
        producer.send(payload)
        times_s.append(time.perf_counter() - began)
    return latencies(times_s)


BLOCKING_MODES: Mapping[str, Callable[[geminga.blocking.Client, argparse.Namespace], Figures]] = {
    "produce": produce_blocking,
    "consume": consume_blocking,
    "consume-many": consume_many_blocking,
    "ping": ping_blocking,
}


def main() -> None:
    """Run one load."""
    options = arguments()
    if options.face == "aio":
        result = asyncio.run(_in_asyncio(options))
    elif options.face == "blocking":
        with geminga.blocking.connect(options.url) as client:
            result = BLOCKING_MODES[options.mode](client, options)
    else:
        result = trio.run(_in_trio, options)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
