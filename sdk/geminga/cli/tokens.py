"""`geminga tokens`: keys and JSON web tokens, with the options of Apache's `pulsar tokens` (spec
PX-20).
"""

from __future__ import annotations

import base64
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from geminga.cli import GuessingGroup
from geminga_protocol import tokens as jwts
from geminga_runtime.auth.key_files import KeySourceError, read_key

T = TypeVar("T")

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_RSA_BITS = {"256": 2048, "384": 3072, "512": 4096}

_algorithm = click.option(
    "-a", "--signature-algorithm", "algorithm", type=click.Choice(jwts.ALGORITHMS), default="RS256",
    show_default=True, help="Signature algorithm.",
)  # fmt: skip
_secret = click.option("-sk", "--secret-key", help="data: or file: URL, path or Base64.")


@click.group(cls=GuessingGroup)
def tokens() -> None:
    """Create and show keys and tokens for authentication."""


@tokens.command("create-secret-key")
@click.option(
    "-a", "--signature-algorithm", "algorithm", type=click.Choice(list(jwts.SECRET_BYTES)),
    default="HS256", show_default=True, help="Algorithm that the key is for.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File instead of stdout.")
@click.option("-b", "--base64", "as_base64", is_flag=True, help="Encode the key.")
def create_secret_key(algorithm: str, output: Path | None, as_base64: bool) -> None:
    """Make a secret key."""
    key = os.urandom(jwts.SECRET_BYTES[algorithm])
    if as_base64:
        key = base64.b64encode(key)
    if output is not None:
        _write_private(output, key)
        return
    sys.stdout.buffer.write(key + (b"\n" if as_base64 else b""))


@tokens.command("create-key-pair")
@_algorithm
@click.option("--output-private-key", type=click.Path(path_type=Path), required=True)
@click.option("--output-public-key", type=click.Path(path_type=Path), required=True)
def create_key_pair(algorithm: str, output_private_key: Path, output_public_key: Path) -> None:
    """Make a private key (PKCS#8) and its public key (X.509), both DER."""
    key: jwts.PrivateKey
    if algorithm in jwts.RSA_ALGORITHMS:
        bits = _RSA_BITS[algorithm[2:]]
        key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
    elif algorithm in jwts.EC_CURVES:
        key = ec.generate_private_key(jwts.EC_CURVES[algorithm]())
    else:
        raise click.UsageError(f"{algorithm} has a secret key: use create-secret-key")
    der = serialization.Encoding.DER
    private_form, public_form = (
        serialization.PrivateFormat.PKCS8,
        serialization.PublicFormat.SubjectPublicKeyInfo,
    )
    private = key.private_bytes(der, private_form, serialization.NoEncryption())
    _write_private(output_private_key, private)
    _write(output_public_key, key.public_key().public_bytes(der, public_form), 0o644)


@tokens.command()
@click.option("-a", "--signature-algorithm", "algorithm", type=click.Choice(jwts.ALGORITHMS),
              help="Signature algorithm; without it the key's size decides.")  # fmt: skip
@click.option("-s", "--subject", required=True, help="Role that the token stands for.")
@click.option("-e", "--expiry-time", help="From now, such as 1h, 3d, 10y (s, m, h, d, w, y).")
@_secret
@click.option("-pk", "--private-key", help="data: or file: URL, path or Base64.")
@click.option("-hs", "--headers", multiple=True, metavar="KEY=VALUE", help="Additional headers.")
def create(
    algorithm: str | None,
    subject: str,
    expiry_time: str | None,
    secret_key: str | None,
    private_key: str | None,
    headers: tuple[str, ...],
) -> None:
    """Make a token."""
    key: bytes | jwts.PrivateKey
    if secret_key is not None and private_key is None:
        key = _usable("--secret-key", lambda: read_key(secret_key))
    elif private_key is not None and secret_key is None:
        key = _usable("--private-key", lambda: jwts.private_key(read_key(private_key)))
    else:
        raise click.UsageError("give either --secret-key or --private-key")
    expires_at_s = int(time.time()) + _seconds(expiry_time) if expiry_time else None
    extra: dict[str, object] = dict(_pair(header) for header in headers)
    name = "--secret-key" if secret_key is not None else "--private-key"

    def sign() -> str:
        return jwts.create(
            key, subject, algorithm=algorithm, expires_at_s=expires_at_s, headers=extra
        )

    click.echo(_usable(name, sign))


@tokens.command()
@click.argument("token", required=False)
@click.option("-i", "--stdin", "from_stdin", is_flag=True, help="Read the token from stdin.")
@click.option("-f", "--token-file", type=click.Path(path_type=Path), help="Read it from a file.")
def show(token: str | None, from_stdin: bool, token_file: Path | None) -> None:
    """Print header and claims of TOKEN, without checking it."""
    header, claims = _trusted(lambda: jwts.show(_token(token, from_stdin, token_file)))
    click.echo(f"{header}\n---\n{claims}")


@tokens.command()
@_algorithm
@click.argument("token", required=False)
@click.option("-i", "--stdin", "from_stdin", is_flag=True, help="Read the token from stdin.")
@click.option("-f", "--token-file", type=click.Path(path_type=Path), help="Read it from a file.")
@_secret
@click.option("-pk", "--public-key", help="data: or file: URL, path or Base64.")
def validate(
    algorithm: str,
    token: str | None,
    from_stdin: bool,
    token_file: Path | None,
    secret_key: str | None,
    public_key: str | None,
) -> None:
    """Check TOKEN with a key and print its claims; exit code 1 when it isn't good."""
    if secret_key is not None and public_key is None:
        key = _usable("--secret-key", lambda: jwts.secret_key(read_key(secret_key)))
    elif public_key is not None and secret_key is None:
        key = _usable("--public-key", lambda: jwts.public_key(read_key(public_key)))
        if algorithm not in key.algorithms:
            raise click.BadParameter(
                f"{algorithm} does not fit the key: {', '.join(key.algorithms)} do",
                param_hint="--signature-algorithm",
            )
    else:
        raise click.UsageError("give either --secret-key or --public-key")
    text = _token(token, from_stdin, token_file)
    _trusted(lambda: jwts.verify(text, key, time.time()))
    click.echo(jwts.show(text)[1])


def _usable(option: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except (KeySourceError, jwts.KeyRefused) as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _trusted(make: Callable[[], T]) -> T:
    try:
        return make()
    except jwts.TokenError as error:
        raise click.ClickException(str(error)) from None


def _token(given: str | None, from_stdin: bool, file: Path | None) -> str:
    """The token from the argument, stdin, a file or the variable TOKEN, as in Apache's tool."""
    if given is not None:
        return given
    if from_stdin:
        return sys.stdin.readline().strip()
    if file is not None:
        try:
            return file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise click.BadParameter(str(error), param_hint="--token-file") from None
    found = os.environ.get("TOKEN")
    if found is None:
        raise click.UsageError("give a token, --stdin, --token-file or the variable TOKEN")
    return found


def _seconds(text: str) -> int:
    match = re.fullmatch(r"(\d{1,9})([smhdwy]?)", text.strip().lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is no time such as 1h, 3d or 10y", param_hint="-e")
    return int(match[1]) * _UNITS_S[match[2] or "s"]


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--headers")
    return key, value


def _write_private(path: Path, data: bytes) -> None:
    _write(path, data, 0o600)


def _write(path: Path, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        raise click.ClickException(f"{path} can't be written: {error.strerror}") from None
