"""The command `geminga spark-anchor`: shows and deletes the subscription of a stream that ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import geminga
from pyspark_pulsar._clients import client_for, close_clients
from pyspark_pulsar._names import full_name
from pyspark_pulsar._options import parse_read
from pyspark_pulsar._options._client import ClientSettings
from pyspark_pulsar._stream._offsets import SUBSCRIPTION, Offsets
from pyspark_pulsar._stream._retention import RetentionSubscription
from pyspark_pulsar.errors import InvalidOption, OffsetOutOfRange

LOG_BYTES_MAX = 64 * 1024 * 1024
"""The largest file of a checkpoint that is read."""


def run(
    checkpoint: str | None,
    subscription: str | None,
    topics: Sequence[str],
    options: dict[str, str],
    *,
    removes: bool,
) -> None:
    """The whole command. Raises click's errors."""
    held = [*_held(checkpoint, subscription)] if checkpoint else []
    if topics:
        if subscription is None:
            raise click.UsageError("--topic needs --subscription")
        held.append((subscription, [full_name(name) for name in topics]))
    if not held:
        raise click.UsageError(
            "no subscription found: give a checkpoint of a stream that generated one, or "
            "--subscription with a checkpoint or --topic"
        )
    try:
        settings = parse_read(options | {"topic": "any"}, streaming=False).client
    except InvalidOption as error:
        raise click.UsageError(str(error)) from None
    for name, names in held:
        for topic in names:
            click.echo(f"{topic} {name}")
    if removes:
        _remove(settings, held)


def _remove(settings: ClientSettings, held: Iterable[tuple[str, list[str]]]) -> None:
    left = []
    try:
        client = client_for(settings)
        for name, names in held:
            left += RetentionSubscription(client, name).remove(names)
    except geminga.GemingaError as error:
        raise click.ClickException(str(error)) from None
    finally:
        close_clients()
    if left:
        told = "; ".join(f"{topic}: {error}" for topic, error in left)
        raise click.ClickException(f"not deleted: {told}")
    click.echo("deleted")


def _held(checkpoint: str, subscription: str | None) -> Iterator[tuple[str, list[str]]]:
    """Subscriptions and topics of all sources in the newest offsets. Raises ClickException."""
    folder = Path(checkpoint) / "offsets"
    logged = [each for each in folder.glob("*") if each.name.isdigit()]
    if not logged:
        raise click.ClickException(
            f"{folder} has no offsets: is {checkpoint} a checkpoint? Copy it to a local folder if "
            "it is in an object store"
        )
    newest = max(logged, key=lambda each: int(each.name))
    if newest.stat().st_size > LOG_BYTES_MAX:
        raise click.ClickException(f"{newest} is larger than {LOG_BYTES_MAX} bytes")
    # The version, Spark's own data, then a line for each source.
    for line in newest.read_text().splitlines()[2:]:
        offsets = _offsets(line)
        name = None if offsets is None else offsets.subscription or subscription
        if offsets is not None and name:
            yield name, list(offsets.positions)


def _offsets(line: str) -> Offsets | None:
    """The offsets of a source, None if it is another connector's."""
    try:
        found: Any = json.loads(line)
        if not isinstance(found, dict):
            return None
        offsets = Offsets.parse(found)
    except (ValueError, OffsetOutOfRange):
        return None
    is_ours = SUBSCRIPTION in found or any("://" in name for name in offsets.positions)
    return offsets if is_ours else None
