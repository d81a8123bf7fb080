"""`geminga perf read`: pulsar-perf's flags and output."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from geminga.cli._access import Access, access_options
from geminga.cli._figures import (
    AMOUNT,
    Figures,
    duration_option,
    measure,
    names_of,
)
from geminga.cli._run import place, run

if TYPE_CHECKING:
    import trio

    from geminga.reader import Reader
    from geminga_protocol.message_id import MessageId


@dataclass(frozen=True)
class ReadOptions:
    """The flags, under their long names."""

    access: Access
    num_topics: int
    start_message_id: MessageId
    receiver_queue_size: int
    rate: float
    num_messages: int
    max_connections: int
    test_duration: float


@click.command("read", context_settings={"show_default": True})
@click.argument("topic")
@access_options
@click.option("-t", "--num-topics", default=1, type=click.IntRange(1))
@click.option(
    "-m",
    "--start-message-id",
    default="earliest",
    callback=place,
    help="earliest, latest, or LEDGER:ENTRY.",
)
@click.option("-q", "--receiver-queue-size", default=1000, type=click.IntRange(1))
@click.option("-r", "--rate", default=0.0, type=AMOUNT, help="Messages/s, 0: unlimited.")
@click.option(
    "-n", "--num-messages", default=0, type=click.IntRange(0), help="In all, 0: for ever."
)
@click.option("-c", "--max-connections", default=1, type=click.IntRange(1), help="Per broker.")
@duration_option
def perf_read(topic: str, **given: object) -> None:
    """Read messages of TOPIC without a subscription and print throughput and latency."""
    options = ReadOptions(**given)  # type: ignore[arg-type]

    async def main() -> None:
        figures = Figures("read")
        async with options.access.connect(connections_per_broker=options.max_connections) as client:
            readers = [
                await client.create_reader(
                    name,
                    options.start_message_id,
                    receiver_queue_size=options.receiver_queue_size,
                )
                for name in names_of(topic, options.num_topics)
            ]
            figures.restart()
            await measure(
                figures,
                lambda: _read(readers, options, figures),
                test_duration_s=options.test_duration,
            )

    run(main)


async def _read(readers: list[Reader[bytes]], options: ReadOptions, figures: Figures) -> None:
    """All topics until their messages were counted."""
    import trio

    async def read(reader: Reader[bytes], nursery: trio.Nursery) -> None:
        began_s = time.perf_counter()
        taken = 0
        while True:
            message = await reader.read_next()
            figures.window.record(int((time.time() * 1000 - message.publish_time_ms) * 1000))
            figures.count(1, len(message.data))
            taken += 1
            if 0 < options.num_messages <= figures.messages:
                nursery.cancel_scope.cancel()
                return
            if options.rate:
                ahead_s = taken / options.rate - (time.perf_counter() - began_s)
                await trio.sleep(max(ahead_s, 0.0))

    async with trio.open_nursery() as nursery:
        for reader in readers:
            nursery.start_soon(read, reader, nursery)
