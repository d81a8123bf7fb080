"""Load through our SDK: ``python -m compat_tests.bench.sdk_load MODE --face trio|aio|blocking``.

Modes: ``produce`` (as fast as the bound of pending messages allows, a Python callback for each
message), ``forget`` (the same without callbacks), ``consume`` (receive and
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
import time
from collections.abc import Awaitable, Callable, Mapping

import trio

import geminga
import geminga.aio
import geminga.blocking
from compat_tests.bench.sdk_common import (
    BURST,
    RECEIVE_TIMEOUT_S,
    STAMP,
    SUBSCRIPTION,
    Client,
    Clock,
    Consumer,
    Figures,
    Producer,
    Receipts,
    arguments,
    consumer_options,
    keys,
    latencies,
    producer_options,
    rss_bytes,
    stored,
)


async def _opened(client: Client, options: argparse.Namespace) -> Producer:
    await (await client.subscribe(options.topic, SUBSCRIPTION)).aclose()
    return await client.create_producer(options.topic, **producer_options(options))


async def produce(client: Client, options: argparse.Namespace) -> Figures:
    """Hand so many messages over, each with a callback; a subscription keeps them."""
    producer = await _opened(client, options)
    payload = os.urandom(options.size)
    count = options.count
    named = keys(options)
    submit = producer.submit
    receipts = Receipts()
    clock = Clock()
    if named:
        for number in range(count):
            receipt = await submit(payload, partition_key=named[number % len(named)])
            receipt.add_done_callback(receipts)
    else:
        for _ in range(count):
            (await submit(payload)).add_done_callback(receipts)
    await producer.flush()
    return clock.figures(receipts.stored, count, receipts.failed)


async def forget(client: Client, options: argparse.Namespace) -> Figures:
    """The same without callbacks: the producer's own numbers tell what was stored."""
    producer = await _opened(client, options)
    payload = os.urandom(options.size)
    submit = producer.submit
    clock = Clock()
    for _ in range(options.count):
        await submit(payload)
    await producer.flush()
    return stored(producer.statistics(), clock, options.count)


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
        messages = await consumer.receive_batch(wait_s=RECEIVE_TIMEOUT_S)
        if not messages:
            break
        done += len(messages)
        for message in messages:
            size += len(message.data)
        await consumer.acknowledge_all(messages)
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
            await producer.submit(STAMP.pack(clock()) + filling)


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
    "forget": forget,
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
    submit = producer.submit
    receipts = Receipts()
    clock = Clock()
    if named:
        for number in range(count):
            receipt = submit(payload, partition_key=named[number % len(named)])
            receipt.add_done_callback(receipts)
    else:
        for _ in range(count):
            submit(payload).add_done_callback(receipts)
    producer.flush()
    return clock.figures(receipts.stored, count, receipts.failed)


def forget_blocking(client: geminga.blocking.Client, options: argparse.Namespace) -> Figures:
    """As `forget`."""
    client.subscribe(options.topic, SUBSCRIPTION).close()
    producer = client.create_producer(options.topic, **producer_options(options))
    payload = os.urandom(options.size)
    submit = producer.submit
    clock = Clock()
    for _ in range(options.count):
        submit(payload)
    producer.flush()
    return stored(producer.statistics(), clock, options.count)


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
        messages = consumer.receive_batch(wait_s=RECEIVE_TIMEOUT_S)
        if not messages:
            break
        done += len(messages)
        for message in messages:
            size += len(message.data)
        consumer.acknowledge_all(messages)
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
    "forget": forget_blocking,
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
