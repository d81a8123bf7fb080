"""What Spark is compared with, and what it is fed: typed messages through our SDK.

``python -m compat_tests.bench.spark_load MODE --url URL --topic TOPIC --count N``. Modes: ``write``
(encode and send records as fast as pending messages allow), ``read`` (receive, decode and add up),
``paced`` (a steady rate). Prints one JSON line.
"""

from __future__ import annotations

import argparse
import gc
import json

import trio

import geminga
from compat_tests.bench.sdk_common import Clock, Figures
from compat_tests.bench.spark_values import AMOUNTS, BATCHES, amount_of_all, sales, schema

RECEIVE_TIMEOUT_S = 30.0
QUEUE_SIZE = 1000
"""Messages that wait in the client, as in the connector unless told."""
MADE_AHEAD_MAX = 1_000_000
"""Records made before the first is sent, so that making them isn't measured."""
BURST = 10
"""Messages that a paced load hands over at once."""
PACED_VALUES = 3 * AMOUNTS
"""Different records that a paced load repeats."""


async def write(client: geminga.Client, options: argparse.Namespace) -> Figures:
    """Hand so many records over and wait for all receipts."""
    producer = await client.create_producer(options.topic, schema=schema(), **BATCHES)
    submit = producer.submit
    ahead = min(options.count, MADE_AHEAD_MAX)
    values = list(sales(0, ahead))
    gc.freeze()
    clock = Clock()
    for value in values:
        await submit(value)
    for value in sales(ahead, options.count - ahead):
        await submit(value)
    await producer.flush()
    statistics = producer.statistics()
    return clock.figures(
        statistics.total_acks_received, options.count, statistics.total_send_failed
    )


async def read(client: geminga.Client, options: argparse.Namespace) -> Figures:
    """Take all records, in lists, and add their amounts up."""
    consumer = await client.subscribe(
        options.topic,
        "spark-load",
        schema=schema(),
        initial_position=geminga.InitialPosition.EARLIEST,
        receiver_queue_size=QUEUE_SIZE,
    )
    done, amount = 0, 0.0
    clock = Clock()
    while done < options.count:
        messages = await consumer.receive_batch(wait_s=RECEIVE_TIMEOUT_S)
        if not messages:
            break
        done += len(messages)
        for message in messages:
            amount += message.value.amount
    return clock.figures(done, options.count, failed=amount != amount_of_all(options.count))


async def paced(client: geminga.Client, options: argparse.Namespace) -> Figures:
    """A steady rate, whatever comes of it."""
    producer = await client.create_producer(options.topic, schema=schema(), **BATCHES)
    values = list(sales(0, PACED_VALUES))
    clock = Clock()
    began = trio.current_time()
    for number in range(0, options.count, BURST):
        await trio.sleep_until(began + number / options.rate)
        place = number % PACED_VALUES
        for value in values[place : place + BURST]:
            await producer.submit(value)
    await producer.flush()
    statistics = producer.statistics()
    return clock.figures(
        statistics.total_acks_received, options.count, statistics.total_send_failed
    )


async def _main(options: argparse.Namespace) -> Figures:
    async with geminga.connect(options.url) as client:
        return await {"write": write, "read": read, "paced": paced}[options.mode](client, options)


def main() -> None:
    """Run one load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["write", "read", "paced"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--rate", type=int, default=10_000)
    print(json.dumps(trio.run(_main, parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
