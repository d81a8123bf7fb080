"""Options of the commands that send and receive messages, and how received ones are shown."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from geminga.cli._run import options_of

if TYPE_CHECKING:
    from geminga.cli._access import Access
    from geminga.encryption import ConsumerCryptoKeywords, ProducerCryptoKeywords
    from geminga.message import Message
    from geminga.schema import AutoConsume, Schema

BOUNDARY = "----- got message -----"
P = ParamSpec("P")
_WHERE = "file:///..., data:application/x-pem-file;base64,... or a path."


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


@dataclass(frozen=True)
class ValueSchema:
    """By which the texts of messages become values; without a schema they are payloads."""

    schema: Schema[Any] | None
    is_json: bool = False

    def value_of(self, payload: bytes) -> object:
        """What is sent of a message's text. Raises InvalidArgumentError."""
        from geminga.errors import InvalidArgumentError

        if self.schema is None:
            return payload
        try:
            text = payload.decode()
            return json.loads(text) if self.is_json else text
        except ValueError as error:
            raise InvalidArgumentError(f"{payload!r} is no value of the schema: {error}") from None


def value_schema(context: click.Context, parameter: click.Parameter, value: str) -> ValueSchema:
    """bytes, string, avro:DEFINITION or json:DEFINITION, as in the Java tools."""
    from geminga import schema
    from geminga.errors import InvalidSchemaError

    kind, _, definition = value.partition(":")
    if value in ("bytes", "string"):
        return ValueSchema(schema.String() if value == "string" else None)
    kinds = {"avro": schema.Avro, "json": schema.Json}
    if kind not in kinds or not definition:
        raise click.BadParameter(f"{value!r} is not bytes, string, avro:... or json:...")
    try:
        return ValueSchema(kinds[kind](definition), is_json=True)
    except (InvalidSchemaError, ImportError) as error:
        raise click.BadParameter(str(error)) from error


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


@dataclass(frozen=True)
class Display:
    """How messages are shown."""

    in_hex: bool
    hide_content: bool
    in_json: bool
    schema_type: str

    def show(self, message: Message[object]) -> None:
        """Print a message."""
        if self.hide_content:
            return
        from geminga.cli._show import as_json, describe

        if self.in_json:
            click.echo(as_json(message))
        else:
            click.echo(BOUNDARY)
            click.echo(describe(message, in_hex=self.in_hex))

    def schema(self) -> AutoConsume | None:
        """By which messages are decoded."""
        from geminga.schema import AutoConsume

        return AutoConsume() if self.schema_type == "auto_consume" else None


def shows(command: Callable[Concatenate[Display, P], None]) -> Callable[P, None]:
    """How a command shows messages: its first argument."""

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
    @functools.wraps(command)
    def wrapped(*arguments: P.args, **keywords: P.kwargs) -> None:
        names = ("in_hex", "hide_content", "in_json", "schema_type")
        display = options_of(Display, {name: keywords.pop(name) for name in names})
        command(display, *arguments, **keywords)

    return wrapped
