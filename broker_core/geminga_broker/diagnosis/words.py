"""Names and numbers in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.diagnosis.view import ConsumerView
from geminga_runtime.logs import printable

NAMES_MAX = 3
"""Names in a sentence."""
NAME_CHARACTERS_MAX = 60


def shown_name(text: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """A text that others chose: short, and without characters that a terminal obeys."""
    shown = printable(text[: characters_max + 1])
    return shown if len(shown) <= characters_max else f"{shown[:characters_max]}..."


def who(consumers: Sequence[ConsumerView]) -> str:
    """The consumers by name; the first ones of many."""
    names = [shown_name(each.name) for each in consumers[:NAMES_MAX]]
    more = len(consumers) - len(names)
    if more:
        names.append(f"{more} more")
    return f"consumer{'s' * (len(consumers) != 1)} {joined(names)}"


def verb(consumers: Sequence[ConsumerView], one: str, several: str) -> str:
    """The form of a verb for them."""
    return one if len(consumers) == 1 else several


def joined(names: Sequence[str]) -> str:
    """Words with commas, and "and" before the last."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def count(number: int, one: str, several: str) -> str:
    """A number with its noun."""
    return f"{number} {one if number == 1 else several}"


def seconds(time_s: float) -> str:
    """A time as text."""
    if time_s < 10:
        return f"{max(0.0, time_s):.1f} s"
    if time_s < 120:
        return f"{time_s:.0f} s"
    return f"{time_s / 60:.0f} min" if time_s < 7200 else f"{time_s / 3600:.0f} h"


def ranges(pairs: Sequence[tuple[int, int]]) -> str:
    """Ranges as text; the first ones of many."""
    shown = [f"{first} to {last}" for first, last in pairs[:NAMES_MAX]]
    more = len(pairs) - len(shown)
    return joined([*shown, f"{more} more ranges"] if more else shown)
