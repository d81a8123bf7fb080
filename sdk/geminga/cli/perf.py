"""`geminga perf produce`, `consume` and `monitor-brokers`: pulsar-perf's flags and output."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga.cli._access import Access, access_options
from geminga.cli._histogram import Histogram
from geminga.cli._run import run
from geminga.cli.monitor_brokers import monitor_brokers

if TYPE_CHECKING:
    from geminga._producing.receipt import Receipt
    from geminga.client import Client
    from geminga.consumer import Consumer
    from geminga.producer import Producer

REPORT_INTERVAL_S = 10.0
RATE_STEP_S = 0.001
"""Interval of the rate control."""

_AMOUNT = click.FloatRange(0)
_COMPRESSION = click.Choice(["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"], case_sensitive=False)
_messages = click.option(
    "-m", "--num-messages", default=0, type=click.IntRange(0), help="In all, 0: for ever."
)
_duration = click.option(
    "-time", "--test-duration", default=0.0, type=_AMOUNT, help="Seconds, 0: for ever."
)


@click.group()
def perf() -> None:
    """Measure throughput and latency, watch the brokers' load."""


perf.add_command(monitor_brokers)


@dataclass
class Figures:
    """Counters, since the last report and in total."""

    verb: str
    message_bytes: int = 0
    messages: int = 0
    failures: int = 0
    window_messages: int = 0
    window_bytes: int = 0
    window_failures: int = 0
    window: Histogram = field(default_factory=Histogram)
    whole: Histogram = field(default_factory=Histogram)
    began_s: float = field(default_factory=time.perf_counter)
    window_began_s: float = field(default_factory=time.perf_counter)

    def count(self, messages: int, size_bytes: int) -> None:
        """Count completed messages."""
        self.messages += messages
        self.message_bytes += size_bytes
        self.window_messages += messages
        self.window_bytes += size_bytes

    def report(self) -> None:
        """Print the counters since the last report."""
        now_s = time.perf_counter()
        took_s = now_s - self.window_began_s
        rate, mbit = self.window_messages / took_s, self.window_bytes * 8 / took_s / 1e6
        failures = ""
        if self.verb == "produced":
            failures = f" --- failure {self.window_failures / took_s:8.1f} msg/s"
        click.echo(
            f"Throughput {self.verb}: {self.messages:7d} msg --- {rate:8.1f} msg/s"
            f" --- {mbit:8.1f} Mbit/s{failures} --- Latency: {self.window.describe_ms()}"
        )
        self._next_window(now_s)

    def _next_window(self, now_s: float) -> None:
        self.whole.add(self.window)
        self.window = Histogram()
        self.window_messages = self.window_bytes = self.window_failures = 0
        self.window_began_s = now_s

    def restart(self) -> None:
        """Restart all counters after the warm-up."""
        now_s = time.perf_counter()
        self._next_window(now_s)
        self.whole = Histogram()
        self.messages = self.message_bytes = self.failures = 0
        self.began_s = now_s

    def summary(self) -> None:
        """Print the aggregate."""
        self.whole.add(self.window)
        took_s = time.perf_counter() - self.began_s
        what = "sent" if self.verb == "produced" else "received"
        click.echo(
            f"Aggregated throughput stats --- {self.messages} records {what}"
            f" --- {self.messages / took_s:.3f} msg/s"
            f" --- {self.message_bytes * 8 / took_s / 1e6:.3f} Mbit/s"
        )
        click.echo(f"Aggregated latency stats --- Latency: {self.whole.describe_ms()}")


async def _measure(
    figures: Figures,
    work: Callable[[], Awaitable[None]],
    *,
    test_duration_s: float,
    warmup_s: float = 0.0,
) -> None:
    """Run the work with reports, until its end, the time limit or Ctrl-C; then the aggregate."""
    import trio

    async def report() -> None:
        while True:
            await trio.sleep(REPORT_INTERVAL_S)
            figures.report()

    async def warm_up() -> None:
        await trio.sleep(warmup_s)
        figures.restart()

    try:
        with trio.move_on_after(test_duration_s + warmup_s if test_duration_s else math.inf):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(report)
                if warmup_s:
                    nursery.start_soon(warm_up)
                await work()
                nursery.cancel_scope.cancel()
    finally:
        figures.summary()


@dataclass(frozen=True)
class ProduceLoad:
    """The messages of `perf produce`."""

    rate: float
    payload: bytes
    key: str | None
    key_mode: str | None
    num_messages: int


def _topics(topic: str, count: int) -> list[str]:
    return [topic] if count == 1 else [f"{topic}-{n}" for n in range(count)]


@perf.command("produce", context_settings={"show_default": True})
@click.argument("topic")
@access_options
@click.option("-r", "--rate", default=100.0, type=_AMOUNT, help="Messages/s in all, 0: unlimited.")
@click.option("-s", "--size", default=1024, type=click.IntRange(0), help="Bytes of a message.")
@click.option("-f", "--payload-file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-t", "--num-topic", "--num-topics", "topics", default=1, type=click.IntRange(1))
@click.option("-n", "--num-producers", default=1, type=click.IntRange(1), help="Per topic.")
@_messages
@click.option("-o", "--max-outstanding", default=50_000, type=click.IntRange(1))
@click.option("-c", "--max-connections", default=1, type=click.IntRange(1), help="Per broker.")
@click.option("-z", "--compression", type=_COMPRESSION, default="NONE")
@click.option("-b", "--batch-time-window", default=1.0, type=_AMOUNT, help="Milliseconds.")
@click.option("-bm", "--batch-max-messages", default=1000, type=click.IntRange(1))
@click.option("-bb", "--batch-max-bytes", default=128 * 1024, type=click.IntRange(1))
@click.option("-db", "--disable-batching", is_flag=True)
@click.option("-k", "--message-key", help="Key of every message.")
@click.option(
    "-mk", "--message-key-generation-mode", type=click.Choice(["autoIncrement", "random"])
)
@click.option("-pn", "--producer-name")
@_duration
@click.option("--warmup-time", default=0.0, type=_AMOUNT, help="Seconds that don't count.")
def perf_produce(topic: str, **given: object) -> None:
    """Send messages to TOPIC at a rate and print throughput and latency."""
    _perf_produce(topic, ProduceOptions(**given))  # type: ignore[arg-type]


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
            await _measure(
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
        for name in _topics(topic, options.topics)
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
@click.option("-r", "--rate", default=0.0, type=_AMOUNT, help="Messages/s, 0: unlimited.")
@_messages
@click.option("-c", "--max-connections", default=1, type=click.IntRange(1), help="Per broker.")
@click.option("--batch-index-ack", is_flag=True)
@_duration
def perf_consume(topic: str, **given: object) -> None:
    """Receive messages of TOPIC and print throughput and end-to-end latency."""
    _perf_consume(topic, ConsumeOptions(**given))  # type: ignore[arg-type]


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
                for name in _topics(topic, options.num_topics)
                for number in range(options.num_subscriptions)
                for _ in range(options.num_consumers)
            ]
            figures.restart()
            await _measure(
                figures,
                lambda: _consume(consumers, options, figures),
                test_duration_s=options.test_duration,
            )

    run(main)


async def _consume(consumers: list[Consumer], options: ConsumeOptions, figures: Figures) -> None:
    import trio

    async def consume(consumer: Consumer, nursery: trio.Nursery) -> None:
        began_s = time.perf_counter()
        taken = 0
        while True:
            for message in await consumer.receive_batch(1000):
                latency_ms = time.time() * 1000 - message.publish_time_ms
                figures.window.record(int(latency_ms * 1000))
                figures.count(1, len(message.data))
                await consumer.acknowledge(message)
                taken += 1
                if 0 < options.num_messages <= figures.messages:
                    nursery.cancel_scope.cancel()
                    return
            if options.rate:
                ahead_s = taken / options.rate - (time.perf_counter() - began_s)
                await trio.sleep(max(ahead_s, 0.0))

    async with trio.open_nursery() as nursery:
        for consumer in consumers:
            nursery.start_soon(consume, consumer, nursery)
