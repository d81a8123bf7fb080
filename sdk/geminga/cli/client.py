"""`geminga client produce` and `consume`: pulsar-client's flags and output."""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec

import click

from geminga.cli._access import Access, access_options
from geminga.cli._run import properties, run

if TYPE_CHECKING:
    from geminga.encryption import ConsumerCryptoKeywords, ProducerCryptoKeywords
    from geminga.producer import MessageKeywords

BOUNDARY = "----- got message -----"
TYPES = {"exclusive": 0, "shared": 1, "failover": 2, "key_shared": 3}
P = ParamSpec("P")
_WHERE = "file:///..., data:application/x-pem-file;base64,... or a path."
LINE_BYTES_MAX = 1 << 26
"""A longer line ends the command, as no message is that large."""


@dataclass(frozen=True)
class Broker:
    """The connection's options."""

    access: Access
    listener_name: str | None


def encrypts(
    command: Callable[Concatenate[ProducerCryptoKeywords, P], None],
) -> Callable[P, None]:
    """`-ekn` and `-ekv` of a command that writes: its first argument are options of producers."""

    @click.option("-ekn", "--encryption-key-name", "key_name", help="Name of the public key.")
    @click.option("-ekv", "--encryption-key-value", "key_value", help=f"Public key: {_WHERE}")
    @functools.wraps(command)
    def wrapped(*arguments: P.args, **keywords: P.kwargs) -> None:
        name, value = keywords.pop("key_name"), keywords.pop("key_value")
        if (name is None) != (value is None):
            # With only one of them the messages would be sent unencrypted.
            raise click.UsageError("-ekn and -ekv need each other")
        options: ProducerCryptoKeywords = {}
        if isinstance(name, str) and isinstance(value, str):
            from geminga.encryption import DefaultCryptoKeyReader

            reader = DefaultCryptoKeyReader(default_public_key=value)
            options = {"encryption_keys": [name], "crypto_key_reader": reader}
        command(options, *arguments, **keywords)

    return wrapped


def decrypts(
    command: Callable[Concatenate[ConsumerCryptoKeywords, P], None],
) -> Callable[P, None]:
    """`-ekv` of a command that reads: its first argument are options of consumers."""

    @click.option("-ekv", "--encryption-key-value", "key_value", help=f"Private key: {_WHERE}")
    @functools.wraps(command)
    def wrapped(*arguments: P.args, **keywords: P.kwargs) -> None:
        value = keywords.pop("key_value")
        options: ConsumerCryptoKeywords = {}
        if isinstance(value, str):
            from geminga.encryption import DefaultCryptoKeyReader

            options = {"crypto_key_reader": DefaultCryptoKeyReader(default_private_key=value)}
        command(options, *arguments, **keywords)

    return wrapped


@click.group()
@access_options
@click.option(
    "--listener-name", help="Listener that the brokers should name (advertisedListeners)."
)
@click.pass_context
def client(context: click.Context, access: Access, listener_name: str | None) -> None:
    """Produce or consume messages by hand."""
    context.obj = Broker(access, listener_name)


@client.command(context_settings={"show_default": True})
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
                topic, batching_enabled=not disable_batch, compression_type=chosen, **crypto
            ) as producer,
        ):
            receipts: deque[geminga.Receipt] = deque()
            async with aclosing(given_or_read(payloads, num_produce)) as sending:
                async for payload in sending:
                    receipts.append(await producer.submit(payload, **described))
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
@click.option(
    "-st",
    "--schema-type",
    default="auto_consume",
    show_default=True,
    type=click.Choice(["auto_consume", "bytes"]),
    help="auto_consume: decode by the topic's schema.",
)
@click.option("--json", "in_json", is_flag=True, help="A JSON object a line for each message.")
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
    schema_type: str,
    in_json: bool,
) -> None:
    """Receive messages of TOPIC and acknowledge them."""

    async def main() -> None:
        import trio

        import geminga
        from geminga.cli._show import as_json, describe
        from geminga.schema import AutoConsume

        schema = AutoConsume() if schema_type == "auto_consume" else None
        taken = 0
        async with (
            broker.access.connect(listener_name=broker.listener_name) as connected,
            connected.subscribe(
                topic,
                subscription_name,
                consumer_type=geminga.ConsumerType(TYPES[subscription_type.lower()]),
                initial_position=geminga.InitialPosition[subscription_position.upper()],
                durable=subscription_mode.lower() == "durable",
                receiver_queue_size=queue_size,
                schema=schema,
                **crypto,
            ) as consumer,
        ):
            while not num_messages or taken < num_messages:
                message = await consumer.receive()
                taken += 1
                if in_json and not hide_content:
                    click.echo(as_json(message))
                elif not hide_content:
                    click.echo(BOUNDARY)
                    click.echo(describe(message, in_hex=in_hex))
                await consumer.acknowledge(message)
                if rate:
                    await trio.sleep(1 / rate)
        click.echo(f"{taken} messages successfully consumed", err=in_json)

    run(main)


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
