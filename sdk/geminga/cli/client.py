"""`geminga client produce`, `consume` and `read`: pulsar-client's flags and output."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga.cli import GuessingGroup
from geminga.cli._access import Access, access_options
from geminga.cli._messages import (
    Broker,
    Display,
    ValueSchema,
    decrypts,
    encrypts,
    shows,
    value_schema,
)
from geminga.cli._not_there import OF_CONSUME, OF_PRODUCE, OF_READ, lacks
from geminga.cli._run import place, properties, run

if TYPE_CHECKING:
    from geminga.encryption import ConsumerCryptoKeywords, ProducerCryptoKeywords
    from geminga.producer import MessageKeywords
    from geminga_protocol.message_id import MessageId

TYPES = {"exclusive": 0, "shared": 1, "failover": 2, "key_shared": 3}
LINE_BYTES_MAX = 1 << 26
"""A longer line ends the command, as no message is that large."""


@click.group(cls=GuessingGroup)
@access_options
@click.option(
    "--listener-name", help="Listener that the brokers should name (advertisedListeners)."
)
@click.pass_context
def client(context: click.Context, access: Access, listener_name: str | None) -> None:
    """Produce, consume or read messages by hand."""
    context.obj = Broker(access, listener_name)


@client.command(context_settings={"show_default": True})
@lacks(OF_PRODUCE)
@click.argument("topic")
@click.option("-m", "--messages", multiple=True, help="Messages, split at the separator.")
@click.option(
    "-f",
    "--files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Files, each a message.",
)
@click.option("-n", "--num-produce", default=1, type=click.IntRange(1), help="Send all that often.")
@click.option("-r", "--rate", default=0.0, type=click.FloatRange(0), help="Messages/s, 0: at once.")
@click.option("-s", "--separator", default=",", show_default=True, help="Between messages of -m.")
@click.option("-p", "--properties", "pairs", multiple=True, callback=properties, help="k=v,k=v")
@click.option("-k", "--key", help="Partition key.")
@click.option(
    "-db",
    "--disable-batch",
    "--disable-batching",
    is_flag=True,
    help="Send each message by itself.",
)
@click.option("-dr", "--disable-replication", is_flag=True, help="Keep it in this cluster.")
@click.option("-c", "--chunking", is_flag=True, help="Split large messages into chunks.")
@click.option(
    "-vs",
    "--value-schema",
    "values",
    default="bytes",
    callback=value_schema,
    help="bytes, string, avro:DEFINITION or json:DEFINITION; by the last two messages are JSON.",
)
@click.option("-z", "--compression", type=click.Choice(["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"]))
@click.pass_obj
@encrypts
def produce(
    crypto: ProducerCryptoKeywords,
    broker: Broker,
    topic: str,
    messages: Sequence[str],
    files: Sequence[Path],
    num_produce: int,
    rate: float,
    separator: str,
    pairs: Mapping[str, str],
    key: str | None,
    disable_batch: bool,
    disable_replication: bool,
    chunking: bool,
    values: ValueSchema,
    compression: str | None,
) -> None:
    """Send messages to TOPIC: those of -m and -f, or without them each line of standard input."""
    texts = [part for text in messages for part in (text.split(separator) if separator else [text])]
    payloads = [text.encode() for text in texts] + [file.read_bytes() for file in files]
    if not payloads and num_produce != 1:
        raise click.UsageError("-n needs messages of -m or -f: standard input is read once")

    async def main() -> None:
        import trio

        import geminga

        described: MessageKeywords = {
            "properties": pairs or None,
            "partition_key": key,
            "disable_replication": disable_replication,
        }
        chosen = geminga.CompressionType[compression or "NONE"]
        sent = 0
        async with (
            broker.access.connect(listener_name=broker.listener_name) as connected,
            connected.create_producer(
                topic,
                schema=values.schema,
                batching_enabled=not (disable_batch or chunking),
                chunking_enabled=chunking,
                compression_type=chosen,
                **crypto,
            ) as producer,
        ):
            receipts: deque[geminga.Receipt] = deque()
            async with aclosing(given_or_read(payloads, num_produce)) as sending:
                async for payload in sending:
                    receipts.append(await producer.submit(values.value_of(payload), **described))
                    if rate:
                        await trio.sleep(1 / rate)
                    while receipts and receipts[0].is_done:
                        await receipts.popleft().wait()
                        sent += 1
            for receipt in receipts:
                await receipt.wait()
                sent += 1
        click.echo(f"{sent} messages successfully produced")

    run(main)


@client.command(context_settings={"show_default": True})
@lacks(OF_CONSUME)
@click.argument("topic")
@click.option("-s", "--subscription-name", required=True, help="Name of the subscription.")
@click.option("--regex", is_flag=True, help="TOPIC is a pattern: TENANT/NAMESPACE/REGEX.")
@click.option(
    "-t",
    "--subscription-type",
    default="Exclusive",
    show_default=True,
    type=click.Choice(["Exclusive", "Shared", "Failover", "Key_Shared"], case_sensitive=False),
)
@click.option(
    "-p",
    "--subscription-position",
    default="Latest",
    show_default=True,
    type=click.Choice(["Latest", "Earliest"], case_sensitive=False),
)
@click.option(
    "-m",
    "--subscription-mode",
    default="Durable",
    show_default=True,
    type=click.Choice(["Durable", "NonDurable"], case_sensitive=False),
)
@click.option("-n", "--num-messages", default=1, type=click.IntRange(0), help="0: for ever.")
@click.option("-r", "--rate", default=0.0, type=click.FloatRange(0), help="Messages/s, 0: at once.")
@click.option("-q", "--queue-size", default=1000, type=click.IntRange(0), help="Receiver queue.")
@click.pass_obj
@decrypts
@shows
def consume(
    display: Display,
    crypto: ConsumerCryptoKeywords,
    broker: Broker,
    topic: str,
    subscription_name: str,
    regex: bool,
    subscription_type: str,
    subscription_position: str,
    subscription_mode: str,
    num_messages: int,
    rate: float,
    queue_size: int,
) -> None:
    """Receive messages of TOPIC and acknowledge them."""
    topics = pattern_of(topic) if regex else topic

    async def main() -> None:
        import trio

        import geminga

        taken = 0
        async with (
            broker.access.connect(listener_name=broker.listener_name) as connected,
            connected.subscribe(
                topics,
                subscription_name,
                consumer_type=geminga.ConsumerType(TYPES[subscription_type.lower()]),
                initial_position=geminga.InitialPosition[subscription_position.upper()],
                durable=subscription_mode.lower() == "durable",
                receiver_queue_size=queue_size,
                schema=display.schema(),
                **crypto,
            ) as consumer,
        ):
            while not num_messages or taken < num_messages:
                message = await consumer.receive()
                taken += 1
                display.show(message)
                await consumer.acknowledge(message)
                if rate:
                    await trio.sleep(1 / rate)
        click.echo(f"{taken} messages successfully consumed", err=display.in_json)

    run(main)


@client.command(context_settings={"show_default": True})
@lacks(OF_READ)
@click.argument("topic")
@click.option(
    "-m",
    "--start-message-id",
    "start",
    default="latest",
    callback=place,
    help="latest, earliest, or LEDGER:ENTRY.",
)
@click.option(
    "-i", "--start-message-id-inclusive", "inclusive", is_flag=True, help="Also that one."
)
@click.option(
    "-n",
    "--num-messages",
    type=click.IntRange(0),
    help="0: for ever. Without it 1, or with --to-end all.",
)
@click.option("--to-end", is_flag=True, help="End when all that there is has been read.")
@click.option("-r", "--rate", default=0.0, type=click.FloatRange(0), help="Messages/s, 0: at once.")
@click.option("-q", "--queue-size", default=1000, type=click.IntRange(0), help="Receiver queue.")
@click.pass_obj
@decrypts
@shows
def read(
    display: Display,
    crypto: ConsumerCryptoKeywords,
    broker: Broker,
    topic: str,
    start: MessageId,
    inclusive: bool,
    num_messages: int | None,
    to_end: bool,
    rate: float,
    queue_size: int,
) -> None:
    """Read messages of TOPIC from a place on, without a subscription that stays."""
    wanted = num_messages if num_messages is not None else 0 if to_end else 1

    async def main() -> None:
        import trio

        taken = 0
        async with (
            broker.access.connect(listener_name=broker.listener_name) as connected,
            connected.create_reader(
                topic,
                start,
                start_message_id_inclusive=inclusive,
                receiver_queue_size=queue_size,
                schema=display.schema(),
                **crypto,
            ) as reader,
        ):
            while not wanted or taken < wanted:
                if to_end and not await reader.has_message_available():
                    break
                display.show(await reader.read_next())
                taken += 1
                if rate:
                    await trio.sleep(1 / rate)
        click.echo(f"{taken} messages successfully read", err=display.in_json)

    run(main)


def pattern_of(text: str) -> re.Pattern[str]:
    """Raises UsageError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise click.UsageError(f"--regex: {text!r} is no regular expression: {error}") from error


async def given_or_read(payloads: Sequence[bytes], times: int) -> AsyncGenerator[bytes]:
    """These payloads, repeated; if there are none, each line of standard input. Raises
    InvalidArgumentError as `lines_of_input`.
    """
    if not payloads:
        async for line in lines_of_input():
            yield line
    for _ in range(times):
        for payload in payloads:
            yield payload


async def lines_of_input() -> AsyncIterator[bytes]:
    """Each line without its end, read in a thread; an empty one is an empty message.

    Raises InvalidArgumentError for a line above LINE_BYTES_MAX.
    """
    import trio

    from geminga.errors import InvalidArgumentError

    while True:
        line = await trio.to_thread.run_sync(
            sys.stdin.buffer.readline, LINE_BYTES_MAX + 1, abandon_on_cancel=True
        )
        if not line:
            return
        if len(line) > LINE_BYTES_MAX:
            raise InvalidArgumentError(
                f"a line of standard input is longer than {LINE_BYTES_MAX} bytes"
            )
        yield line.removesuffix(b"\n").removesuffix(b"\r")
