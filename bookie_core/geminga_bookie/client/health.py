"""How bookies did lately: quarantine for those that fail, and whom to read from last (spec BK-22,
BK-25; Apache's BookieWatcher, its quarantine, and reorderReadSequence). Pure: times come from the
caller.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum

from geminga_bookie.errors import (
    BookieReadOnly,
    BookkeeperError,
    IncorrectParameter,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    UnauthorizedAccess,
    UnknownLedgerState,
)

_ANSWERS = (
    BookieReadOnly,
    IncorrectParameter,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    UnauthorizedAccess,
    UnknownLedgerState,
)
"""Refusals of a bookie that works."""

SLOW_S = 60.0
"""Reads avoid a bookie for this time after it was slow or failed (bookieFailureHistory...)."""
ANNOUNCED_S = 30.0
"""Errors less old than this when the bookie deregisters are those of its stop."""
FORGIVEN_S = 1.0
"""Errors so long after this process stood still are counted against nobody: requests that were
under way when it stopped are past their deadlines at once when it goes on.
"""
_LATER = 0.1
"""Quarantines end up to this share later, each at another time."""


class ReadRank(IntEnum):
    """Whom to read from first; as in Apache's client read-only bookies come behind the others."""

    GOOD = 0
    READ_ONLY = 1
    SLOW = 2
    AWAY = 3


@dataclass(frozen=True, slots=True)
class HealthOptions:
    """Settings of the quarantine; the defaults are those of Pulsar's broker."""

    enabled: bool = True
    interval_s: float = 60.0
    errors_max: int = 5
    """More errors than these within an interval are too many."""
    quarantine_s: float = 1800.0
    ratio: float = 1.0
    """Share of the clients that avoid such a bookie."""


class BookieHealth:
    """Counts errors of bookies."""

    def __init__(self, options: HealthOptions, chance: Callable[[], float] = random.random) -> None:
        self._options = options
        self._chance = chance
        self._errors: dict[str, tuple[float, int]] = {}
        """By bookie: when its interval began, and its errors since."""
        self._quarantine: dict[str, tuple[float, float]] = {}
        """By bookie: since when, until when."""
        self._slow: dict[str, float] = {}
        """By bookie: until when."""
        self._forgiven_until = -math.inf

    def failed(self, bookie_id: str, error: BookkeeperError, now: float) -> bool:
        """A request failed; returns whether the bookie is in quarantine from now on."""
        if isinstance(error, _ANSWERS) or now < self._forgiven_until:
            return False
        self.slow(bookie_id, now)
        options = self._options
        if not options.enabled or self.is_quarantined(bookie_id, now):
            return False
        since, errors = self._errors.get(bookie_id, (now, 0))
        if now - since >= options.interval_s:
            since, errors = now, 0
        self._errors[bookie_id] = since, errors + 1
        if errors < options.errors_max:
            return False
        del self._errors[bookie_id]
        if self._chance() > options.ratio:
            return False
        until = now + options.quarantine_s * (1 + _LATER * self._chance())
        self._quarantine[bookie_id] = now, until
        return True

    def slow(self, bookie_id: str, now: float) -> None:
        """Another bookie had to be asked."""
        self._slow[bookie_id] = now + SLOW_S

    def left(self, bookie_id: str, now: float) -> None:
        """The bookie deregistered: its last errors were those of its stop."""
        self._errors.pop(bookie_id, None)
        since, _ = self._quarantine.get(bookie_id, (now, now))
        if now - since < ANNOUNCED_S:
            self._quarantine.pop(bookie_id, None)

    def stood_still(self, since: float, now: float) -> None:
        """This process did not run in between: what failed since is not the bookies' fault."""
        self._errors.clear()
        self._quarantine = {
            bookie_id: entry for bookie_id, entry in self._quarantine.items() if entry[0] < since
        }
        self._slow = {
            bookie_id: until for bookie_id, until in self._slow.items() if until - SLOW_S < since
        }
        self._forgiven_until = now + FORGIVEN_S

    def is_quarantined(self, bookie_id: str, now: float) -> bool:
        """Whether the bookie is taken only if the others are too few."""
        entry = self._quarantine.get(bookie_id)
        if entry is None:
            return False
        if now >= entry[1]:
            del self._quarantine[bookie_id]
            return False
        return True

    def quarantined(self, bookies: Collection[str], now: float) -> frozenset[str]:
        """Those of them that are in quarantine."""
        return frozenset(each for each in bookies if self.is_quarantined(each, now))

    def is_slow(self, bookie_id: str, now: float) -> bool:
        """Whether reads should go to others first."""
        until = self._slow.get(bookie_id)
        if until is None:
            return False
        if now >= until:
            del self._slow[bookie_id]
            return False
        return True
