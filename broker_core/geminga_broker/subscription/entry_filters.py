"""Plug-ins that filter a subscription's entries one by one (spec BR-37; Apache's
`EntryFilter`).

A filter is a class without constructor arguments, found by its name among the entry points of the
group `geminga.entry_filters`; `entryFilterNames` of the broker's configuration lists those in use.
It runs in the broker's loop, for every entry before it is sent: it must be fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from importlib.metadata import entry_points
from typing import NamedTuple, Protocol

from geminga_broker.log.api import Ack, Entry
from geminga_runtime.settings import ConfigError

GROUP = "geminga.entry_filters"
RESCHEDULE_MS = 1000
"""Delay of a rescheduled entry."""


class FilterResult(Enum):
    """A filter's decision: send the entry; acknowledge it without sending; retry it later (on
    Shared and Key_Shared; the others keep the order, and send it).
    """

    ACCEPT = "accept"
    REJECT = "reject"
    RESCHEDULE = "reschedule"


class FilterContext(NamedTuple):
    """The receiver of an entry."""

    topic: str
    subscription: str


class EntryFilter(Protocol):
    """A plug-in. Its exceptions close the subscription's consumers, so that nothing passes a
    failing filter.
    """

    def filter_entry(self, entry: Entry, context: FilterContext) -> FilterResult:
        """Decide on an entry by its metadata; `entry.messages` is its number of messages."""


class FilterCounts:
    """Counts messages by decision."""

    __slots__ = ("accepted", "rejected", "rescheduled")

    def __init__(self) -> None:
        self.accepted = self.rejected = self.rescheduled = 0

    @property
    def processed(self) -> int:
        """The sum."""
        return self.accepted + self.rejected + self.rescheduled


class Judged(NamedTuple):
    """Entries by decision."""

    accepted: Sequence[Entry]
    rejected: Sequence[Ack]
    rescheduled: Sequence[Entry]


def judge(
    filters: Sequence[EntryFilter],
    entries: Sequence[Entry],
    context: FilterContext,
    counts: FilterCounts,
) -> Judged:
    """Run the filters; the first that doesn't accept decides."""
    accepted: list[Entry] = []
    rejected: list[Ack] = []
    rescheduled: list[Entry] = []
    for entry in entries:
        result = FilterResult.ACCEPT
        for each in filters:
            result = each.filter_entry(entry, context)
            if result is not FilterResult.ACCEPT:
                break
        if result is FilterResult.REJECT:
            rejected.append(Ack(entry.position))
            counts.rejected += entry.messages
        elif result is FilterResult.RESCHEDULE:
            rescheduled.append(entry)
            counts.rescheduled += entry.messages
        else:
            accepted.append(entry)
            counts.accepted += entry.messages
    return Judged(accepted, rejected, rescheduled)


def load_filters(names: str) -> tuple[EntryFilter, ...]:
    """The filters with these comma-separated names, in order. Raises ConfigError for one that isn't
    installed, or can't be loaded.
    """
    loaded: list[EntryFilter] = []
    for name in filter(None, map(str.strip, names.split(","))):
        found = list(entry_points(group=GROUP, name=name))
        if not found:
            raise ConfigError(f"entryFilterNames: entry filter {name!r} is not installed")
        try:
            loaded.append(found[0].load()())
        except Exception as error:
            text = f"entryFilterNames: entry filter {name!r} can't be loaded: {error}"
            raise ConfigError(text) from error
    return tuple(loaded)
