"""Templates: all values are escaped, so that no name or payload is ever markup."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from geminga_runtime.auth.console_login import BASE

TEXT_MAX = 4000
"""Characters of a text that others chose."""


@cache
def environment() -> Environment:
    """All templates, compiled: for a thread, as that takes a moment."""
    made = Environment(
        loader=PackageLoader("geminga_broker.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals["base"] = BASE
    made.filters |= {
        "bytes": size,
        "rate": rate,
        "count": count,
        "time": moment,
        "link": link,
        "json": as_json,
        "words": words,
        "short": short,
    }
    return made


def size(value: object) -> str:
    """Bytes as text."""
    amount = number(value)
    if amount < 0:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def rate(value: object) -> str:
    """A number per second."""
    amount = number(value)
    return f"{amount:.1f}" if 0 < amount < 100 else f"{amount:,.0f}"


def count(value: object) -> str:
    """A whole number."""
    return f"{number(value):,.0f}"


def moment(value: object, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """A time in milliseconds; a dash for none."""
    amount = number(value)
    if amount <= 0:
        return "-"
    try:
        return datetime.fromtimestamp(amount / 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return "-"


def as_json(value: object) -> str:
    """A value of a policy."""
    return short(msgspec.json.encode(value).decode())


def words(value: object) -> str:
    """A list of names; a dash for none."""
    listed = value if isinstance(value, list) else []
    return short(", ".join(str(each) for each in listed)) or "-"


def short(text: str, characters_max: int = TEXT_MAX) -> str:
    """A text that others chose, cut if it is long."""
    return text if len(text) <= characters_max else f"{text[:characters_max]}..."


def number(value: object) -> float:
    """A number, 0 for anything else."""
    return float(value) if isinstance(value, int | float) else 0.0


def link(parts: object, query: Mapping[str, object] | None = None) -> str:
    """A path of the console of these parts, each encoded; and a query."""
    listed = parts if isinstance(parts, list | tuple) else [parts]
    path = "/".join([BASE, *(quote(str(part), safe="") for part in listed)])
    given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path
