"""`geminga client produce` and `consume`: pulsar-client's flags and output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga.cli._access import Access, access_options
from geminga.cli._encryption import decrypts, encrypts
from geminga.cli._run import properties, run

if TYPE_CHECKING:
    from geminga.encryption import ConsumerCryptoKeywords, ProducerCryptoKeywords
    from geminga.message import Message
    from geminga.producer import MessageKeywords

BOUNDARY = "----- got message -----"
TYPES = {"exclusive": 0, "shared": 1, "failover": 2, "key_shared": 3}


@dataclass(frozen=True)
class Broker:
    """Where to connect."""

    access: Access
    listener_name: str | None


@click.group()
@access_options("--url")
@click.option(
    "--listener-name", help="Listener that the brokers should name (advertisedListeners)."
)
@click.pass_context
def client(context: click.Context, access: Access, listener_name: str | None) -> None:
    """Produce or consume messages by hand."""
    context.obj = Broker(access, listener_name)


@client.command()
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
@click.option("-db", "--disable-batch", is_flag=True, help="Send each message by itself.")
@click.option("-dr", "--disable-replication", is_flag=True, help="Keep it in this cluster.")
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
    compression: str | None,
) -> None:
    """Send messages to TOPIC."""
    texts = [part for text in messages for part in (text.split(separator) if separator else [text])]
    payloads = [text.encode() for text in texts] + [file.read_bytes() for file in files]
    if not payloads:
        raise click.UsageError("give messages with -m or files with -f")

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
            await connected.create_producer(
                topic, batching_enabled=not disable_batch, compression_type=chosen, **crypto
            ) as producer,
        ):
            receipts = []
            for _ in range(num_produce):
                for payload in payloads:
                    receipts.append(await producer.send_soon(payload, **described))
                    if rate:
                        await trio.sleep(1 / rate)
            for receipt in receipts:
                await receipt.wait()
                sent += 1
        click.echo(f"{sent} messages successfully produced")

    run(main)


@client.command()
@click.argument("topic")
@click.option("-s", "--subscription-name", required=True, help="Name of the subscription.")
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
@click.option("--hex", "in_hex", is_flag=True, help="Show the content in hexadecimal.")
@click.option("--hide-content", is_flag=True, help="Count messages without showing them.")
@click.pass_obj
@decrypts
def consume(
    crypto: ConsumerCryptoKeywords,
    broker: Broker,
    topic: str,
    subscription_name: str,
    subscription_type: str,
    subscription_position: str,
    subscription_mode: str,
    num_messages: int,
    rate: float,
    queue_size: int,
    in_hex: bool,
    hide_content: bool,
) -> None:
    """Receive messages of TOPIC and acknowledge them."""

    async def main() -> None:
        import trio

        import geminga

        taken = 0
        async with (
            broker.access.connect(listener_name=broker.listener_name) as connected,
            await connected.subscribe(
                topic,
                subscription_name,
                consumer_type=geminga.ConsumerType(TYPES[subscription_type.lower()]),
                initial_position=geminga.InitialPosition[subscription_position.upper()],
                durable=subscription_mode.lower() == "durable",
                receiver_queue_size=queue_size,
                **crypto,
            ) as consumer,
        ):
            while not num_messages or taken < num_messages:
                message = await consumer.receive()
                taken += 1
                if not hide_content:
                    click.echo(BOUNDARY)
                    click.echo(describe(message, in_hex=in_hex))
                await consumer.acknowledge(message)
                if rate:
                    await trio.sleep(1 / rate)
        click.echo(f"{taken} messages successfully consumed")

    run(main)


def describe(message: Message, *, in_hex: bool) -> str:
    """A message in one line, as pulsar-client prints it (AbstractCmdConsume.interpretMessage)."""
    data = message.data
    content = data.hex(" ").upper() if in_hex else data.decode("utf-8", "replace")
    key = "null" if message.partition_key is None else message.partition_key
    pairs = ", ".join(f"{name}={value}" for name, value in message.properties.items())
    return (
        f"publishTime:[{message.publish_timestamp}], eventTime:[{message.event_timestamp or 0}],"
        f" key:[{key}], properties:[{pairs}], content:{content}"
    )
