"""`geminga perf`: pulsar-perf's commands, flags and output."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga.cli import GuessingGroup
from geminga.cli._access import Access, access_options
from geminga.cli._figures import (
    AMOUNT,
    COMPRESSION,
    Figures,
    Source,
    duration_option,
    measure,
    messages_option,
    names_of,
    receive,
)
from geminga.cli._run import options_of, run
from geminga.cli.monitor_brokers import monitor_brokers
from geminga.cli.perf_read import perf_read

if TYPE_CHECKING:
    from geminga._producing.receipt import Receipt
    from geminga.client import Client
    from geminga.producer import Producer

RATE_STEP_S = 0.001
"""Interval of the rate control."""


@click.group(cls=GuessingGroup)
def perf() -> None:
    """Measure throughput and latency, watch the brokers' load."""


perf.add_command(monitor_brokers)
perf.add_command(perf_read)


@dataclass(frozen=True)
class ProduceLoad:
    """The messages of `perf produce`."""

    rate: float
    payload: bytes
    key: str | None
    key_mode: str | None
    num_messages: int


@perf.command("produce", context_settings={"show_default": True})
@click.argument("topic")
@access_options
@click.option("-r", "--rate", default=100.0, type=AMOUNT, help="Messages/s in all, 0: unlimited.")
@click.option("-s", "--size", default=1024, type=click.IntRange(0), help="Bytes of a message.")
@click.option("-f", "--payload-file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-t", "--num-topic", "--num-topics", "topics", default=1, type=click.IntRange(1))
@click.option("-n", "--num-producers", default=1, type=click.IntRange(1), help="Per topic.")
@messages_option
@click.option("-o", "--max-outstanding", default=50_000, type=click.IntRange(1))
@click.option("-c", "--max-connections", default=1, type=click.IntRange(1), help="Per broker.")
@click.option("-z", "--compression", type=COMPRESSION, default="NONE")
@click.option("-b", "--batch-time-window", default=1.0, type=AMOUNT, help="Milliseconds.")
@click.option("-bm", "--batch-max-messages", default=1000, type=click.IntRange(1))
@click.option("-bb", "--batch-max-bytes", default=128 * 1024, type=click.IntRange(1))
@click.option("-db", "--disable-batching", is_flag=True)
@click.option("-k", "--message-key", help="Key of every message.")
@click.option(
    "-mk", "--message-key-generation-mode", type=click.Choice(["autoIncrement", "random"])
)
@click.option("-pn", "--producer-name")
@duration_option
@click.option("--warmup-time", default=0.0, type=AMOUNT, help="Seconds that don't count.")
def perf_produce(topic: str, **given: object) -> None:
    """Send messages to TOPIC at a rate and print throughput and latency."""
    _perf_produce(topic, options_of(ProduceOptions, given))


@dataclass(frozen=True)
class ProduceOptions:
    """The flags of `perf produce`, under their long names."""

    access: Access
    rate: float
    size: int
    payload_file: Path | None
    topics: int
    num_producers: int
    num_messages: int
    max_outstanding: int
    max_connections: int
    compression: str
    batch_time_window: float
    batch_max_messages: int
    batch_max_bytes: int
    disable_batching: bool
    message_key: str | None
    message_key_generation_mode: str | None
    producer_name: str | None
    test_duration: float
    warmup_time: float


def _perf_produce(topic: str, options: ProduceOptions) -> None:
    file = options.payload_file
    load = ProduceLoad(
        options.rate,
        bytes(options.size) if file is None else file.read_bytes(),
        options.message_key,
        options.message_key_generation_mode,
        options.num_messages,
    )

    async def main() -> None:
        figures = Figures("produced")
        async with options.access.connect(connections_per_broker=options.max_connections) as client:
            producers = await _producers(client, topic, options)
            figures.restart()
            await measure(
                figures,
                lambda: _produce(producers, load, figures),
                test_duration_s=options.test_duration,
                warmup_s=options.warmup_time,
            )

    run(main)


async def _producers(client: Client, topic: str, options: ProduceOptions) -> list[Producer]:
    from geminga.options import CompressionType

    return [
        await client.create_producer(
            name,
            producer_name=options.producer_name,
            max_pending_messages=options.max_outstanding,
            compression_type=CompressionType[options.compression],
            batching_enabled=not options.disable_batching,
            batching_max_messages=options.batch_max_messages,
            batching_max_bytes=options.batch_max_bytes,
            batching_max_publish_delay_s=options.batch_time_window / 1000,
        )
        for name in names_of(topic, options.topics)
        for _ in range(options.num_producers)
    ]


async def _produce(producers: list[Producer], load: ProduceLoad, figures: Figures) -> None:
    import random

    import trio

    size_bytes = len(load.payload)

    def handed_over(receipt: Receipt) -> None:
        began_s = time.perf_counter()

        def done(settled: Receipt) -> None:
            if settled.error is not None:
                figures.failures += 1
                figures.window_failures += 1
                return
            figures.count(1, size_bytes)
            figures.window.record(int((time.perf_counter() - began_s) * 1e6))

        receipt.add_done_callback(done)

    began_s = time.perf_counter()
    sent = 0
    while not load.num_messages or sent < load.num_messages:
        due = math.inf
        if load.rate:
            due = int((time.perf_counter() - began_s) * load.rate) + 1
        if sent >= due:
            await trio.sleep(RATE_STEP_S)
            continue
        key = load.key
        if load.key_mode is not None:
            key = str(sent if load.key_mode == "autoIncrement" else random.getrandbits(32))
        producer = producers[sent % len(producers)]
        if key is None:
            handed_over(await producer.submit(load.payload))
        else:
            handed_over(await producer.submit(load.payload, partition_key=key))
        sent += 1
    for producer in producers:
        await producer.flush()


@perf.command("consume", context_settings={"show_default": True})
@click.argument("topic")
@access_options
@click.option("-t", "--num-topics", default=1, type=click.IntRange(1))
@click.option("-n", "--num-consumers", default=1, type=click.IntRange(1), help="Per subscription.")
@click.option("-ns", "--num-subscriptions", default=1, type=click.IntRange(1), help="Per topic.")
@click.option("-ss", "--subscriptions", default="sub", show_default=True, help="Name, or prefix.")
@click.option(
    "-st",
    "--subscription-type",
    default="Exclusive",
    type=click.Choice(["Exclusive", "Shared", "Failover", "Key_Shared"], case_sensitive=False),
)
@click.option(
    "-sp",
    "--subscription-position",
    default="Latest",
    type=click.Choice(["Latest", "Earliest"], case_sensitive=False),
)
@click.option("-q", "--receiver-queue-size", default=1000, type=click.IntRange(1))
@click.option("-r", "--rate", default=0.0, type=AMOUNT, help="Messages/s, 0: unlimited.")
@messages_option
@click.option("-c", "--max-connections", default=1, type=click.IntRange(1), help="Per broker.")
@click.option("--batch-index-ack", is_flag=True)
@duration_option
def perf_consume(topic: str, **given: object) -> None:
    """Receive messages of TOPIC and print throughput and end-to-end latency."""
    _perf_consume(topic, options_of(ConsumeOptions, given))


@dataclass(frozen=True)
class ConsumeOptions:
    """The flags of `perf consume`, under their long names."""

    access: Access
    num_topics: int
    num_consumers: int
    num_subscriptions: int
    subscriptions: str
    subscription_type: str
    subscription_position: str
    receiver_queue_size: int
    rate: float
    num_messages: int
    max_connections: int
    batch_index_ack: bool
    test_duration: float


def _perf_consume(topic: str, options: ConsumeOptions) -> None:
    async def main() -> None:
        import geminga

        figures = Figures("received")
        async with options.access.connect(connections_per_broker=options.max_connections) as client:
            consumers = [
                await client.subscribe(
                    name,
                    options.subscriptions
                    if options.num_subscriptions == 1
                    else f"{options.subscriptions}-{number}",
                    consumer_type=geminga.ConsumerType[options.subscription_type.upper()],
                    initial_position=geminga.InitialPosition[options.subscription_position.upper()],
                    receiver_queue_size=options.receiver_queue_size,
                    batch_index_ack_enabled=options.batch_index_ack,
                )
                for name in names_of(topic, options.num_topics)
                for number in range(options.num_subscriptions)
                for _ in range(options.num_consumers)
            ]
            sources = [
                Source(partial(each.receive_batch, 1000), each.acknowledge) for each in consumers
            ]
            figures.restart()
            await measure(
                figures,
                lambda: receive(
                    sources,
                    figures,
                    num_messages=options.num_messages,
                    rate=options.rate,
                ),
                test_duration_s=options.test_duration,
            )

    run(main)
