"""Flags of end-to-end encryption, as pulsar-client has them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec

import click

if TYPE_CHECKING:
    from geminga.encryption import ConsumerCryptoKeywords, ProducerCryptoKeywords

P = ParamSpec("P")
_WHERE = "file:///..., data:application/x-pem-file;base64,... or a path."


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
            # One of them alone would send in plain what was to be encrypted.
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
