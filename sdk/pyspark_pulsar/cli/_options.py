"""Options of the connector on a command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

ROWS_MAX = 1000
"""Default number of rows in the table form of a result."""


def connector_options(
    service_url: str, options: Sequence[str], options_file: str | None
) -> dict[str, str]:
    """Options of a file, overridden by those of the command line. Raises UsageError."""
    kept = []
    lines = Path(options_file).read_text().splitlines() if options_file else []
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            kept.append(line)
            if "=" not in line:  # don't show it: it may be a secret
                raise click.UsageError(f"--options-file: line {number} is not KEY=VALUE")
    told = {"service.url": service_url}
    return told | pairs("--options-file", kept) | pairs("--option", options)


def pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """KEY=VALUE pairs that `option` was given. Raises UsageError."""
    found: dict[str, str] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{option}: {key!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found
