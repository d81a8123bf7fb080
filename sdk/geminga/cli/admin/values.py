"""Values of options as pulsar-admin takes them: sizes, times, lists, pairs, places of messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIMES_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_SIZE = re.compile(r"(-?\d+)([kmgtKMGT]?)[bB]?")
_TIME = re.compile(r"(-?\d+)([smhdwySMHDWY]?)")
_PLACE = re.compile(r"(-?\d+):(-?\d+)")
MIB = 1 << 20
LONG_MAX = (1 << 63) - 1
EARLIEST: Mapping[str, object] = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
LATEST: Mapping[str, object] = {"ledgerId": LONG_MAX, "entryId": LONG_MAX, "partitionIndex": -1}


def size(value: str) -> int:
    """Bytes of "10M". Raises BadParameter."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is no size such as 4096, 100K, 10M, 16G or 2T")
    return int(match[1]) * _SIZES[match[2].lower()]


def seconds(value: str) -> int:
    """Seconds of "3h"; a number alone is seconds. Raises BadParameter."""
    match = _TIME.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is no time such as 30s, 100m, 3h, 2d or 5w")
    return int(match[1]) * _TIMES_S[match[2].lower()]


def milliseconds(value: str) -> int:
    """The same in milliseconds. Raises BadParameter."""
    return seconds(value) * 1000


def listed(values: str | Sequence[str]) -> list[str]:
    """Texts between commas."""
    whole = [values] if isinstance(values, str) else values
    return [part.strip() for value in whole for part in value.split(",") if part.strip()]


def paired(values: Sequence[str]) -> dict[str, str]:
    """`key=value`, several or between commas. Raises BadParameter."""
    found: dict[str, str] = {}
    for pair in listed(values):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not key=value")
        found[key] = value
    return found


def place(value: str) -> dict[str, object]:
    """A place in a topic: earliest, latest or ledger:entry. Raises BadParameter."""
    if value in ("earliest", "latest"):
        return dict(EARLIEST if value == "earliest" else LATEST)
    match = _PLACE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is neither earliest, latest nor ledger:entry")
    return {"ledgerId": int(match[1]), "entryId": int(match[2]), "partitionIndex": -1}


def file(value: str) -> bytes:
    """The content of a file. Raises BadParameter."""
    try:
        return Path(value).read_bytes()
    except OSError as error:
        raise click.BadParameter(f"{value} can't be read: {error.strerror}") from None


def choice(*names: str) -> Callable[[str], str]:
    """One of these, in whatever case."""
    known = {name.lower(): name for name in names}

    def chosen(value: str) -> str:
        if value.lower() not in known:
            raise click.BadParameter(f"{value!r} is none of {', '.join(names)}")
        return known[value.lower()]

    return chosen


KINDS: Mapping[str, Callable[..., object]] = {
    "size": size,
    "seconds": seconds,
    "milliseconds": milliseconds,
    "list": listed,
    "pairs": paired,
    "place": place,
    "file": file,
    "actions": listed,
    "quota type": choice("destination_storage", "message_age"),
    "quota policy": choice(
        "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
    ),
    "domain": choice("persistent", "non_persistent", "non-persistent"),
    "delete mode": choice("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
    "subscription types": listed,
}
"""How the text of an option becomes a value; "text", "int", "float" and "flag" are click's own."""


def either(values: dict[str, object], on: str = "enable", off: str = "disable") -> bool:
    """Which of two flags was given. Raises UsageError for both, or none."""
    enabled, disabled = bool(values.pop(on)), bool(values.pop(off))
    if enabled == disabled:
        raise click.UsageError(f"one of --{on.replace('_', '-')} and --{off.replace('_', '-')}")
    return enabled
