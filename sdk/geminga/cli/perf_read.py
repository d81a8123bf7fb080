"""`geminga perf read`: pulsar-perf's flags and output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from geminga.cli._access import Access, access_options
from geminga.cli._figures import (
    AMOUNT,
    Figures,
    Source,
    duration_option,
    measure,
    names_of,
    receive,
)
from geminga.cli._run import options_of, place, run

if TYPE_CHECKING:
    from geminga.message import Message
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
    options = options_of(ReadOptions, given)

    async def main() -> None:
        figures = Figures("read")
        async with options.access.connect(connections_per_broker=options.max_connections) as client:
            sources = [
                _source(
                    await client.create_reader(
                        name,
                        options.start_message_id,
                        receiver_queue_size=options.receiver_queue_size,
                    )
                )
                for name in names_of(topic, options.num_topics)
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


def _source(reader: Reader[bytes]) -> Source:
    async def take() -> list[Message]:
        return [await reader.read_next()]

    return Source(take)
