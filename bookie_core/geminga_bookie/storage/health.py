"""Writable directories (spec BK-10), by disk usage thresholds and failed writes. Pure except for
`full`.

If one of several directories is full, new ledgers go to the others. The bookie is read-only if no
ledger directory or no journal directory is writable, or with `any_full` if one of them isn't.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from geminga_bookie.errors import BookieReadOnly, BookkeeperError
from geminga_bookie.options import BookieOptions, DiskOptions
from geminga_bookie.port import BookieInfo
from geminga_bookie.storage.data_dirs import BALLAST_NAME
from geminga_bookie.storage.disk import Disk, DiskUsage
from geminga_runtime.ballast import Ballast

logger = logging.getLogger(__name__)

JOURNAL = "journal"
LEDGERS = "ledgers"


class Part(NamedTuple):
    """A journal, or a ledger directory with its index."""

    kind: str
    number: int


def parts(options: BookieOptions) -> Iterator[tuple[Part, list[Path]]]:
    """All parts of a bookie, each with its directories."""
    for number, directory in enumerate(options.journal_dirs):
        yield Part(JOURNAL, number), [directory]
    for number, directory in enumerate(options.ledger_dirs):
        yield Part(LEDGERS, number), [directory, *options.index_dirs[number : number + 1]]


def plan_full(
    usages: Sequence[tuple[Path, DiskUsage]], options: DiskOptions, *, was_full: bool
) -> str:
    """The disk that is too full for writes: above `usage_max`, until at or below `usage_low`."""
    limit = min(options.usage_low, options.usage_max) if was_full else options.usage_max
    for directory, usage in usages:
        if usage.used_share > limit:
            return f"{directory} is {usage.used_share:.1%} full"
    return ""


class Refusals:
    """Parts that accept no new entries, by number, each with the error for adds."""

    def __init__(self) -> None:
        self.journals: Mapping[int, BookkeeperError] = {}
        self.stores: Mapping[int, BookkeeperError] = {}

    def of(self, journal: int, store: int) -> BookkeeperError | None:
        """The error for a ledger of that journal and that ledger directory, or None."""
        return self.journals.get(journal) or self.stores.get(store)


class Health:
    """Reasons for being read-only, by part. `error` is for every ordinary add, None if the bookie
    is writable; `refusals` has errors for adds to some parts."""

    def __init__(self, disk: Disk, options: BookieOptions, ballasts: Sequence[Ballast]) -> None:
        self._disk = disk
        self._options = options.disk
        self._parts = dict(parts(options))
        self._ballasts = {ballast.path: ballast for ballast in ballasts}
        self._reasons: dict[str, dict[Part, str]] = {}
        self._said: dict[Part, str] = {}
        self.refusals = Refusals()
        self.error: BookkeeperError | None = None
        self.on_change: Callable[[], None] = _nothing
        """Called when the bookie became read-only, or writable."""

    @property
    def failed(self) -> bool:
        """Whether the last write of a journal or flush failed."""
        return bool(self._reasons.get("journal") or self._reasons.get("flush"))

    def set(self, source: str, reasons: Mapping[Part, str]) -> None:
        """Replace a source's reasons against parts."""
        self._reasons[source] = {part: reason for part, reason in reasons.items() if reason}
        found: dict[Part, str] = {}
        for part in self._parts:
            texts = [known[part] for known in self._reasons.values() if part in known]
            if texts:
                found[part] = "; ".join(texts)
        self.refusals.journals = _errors(found, JOURNAL)
        self.refusals.stores = _errors(found, LEDGERS)
        was = self.error is not None
        text = self._read_only(found)
        self.error = BookieReadOnly(text) if text else None
        if was != (self.error is not None):
            logger.warning("bookie is %s", f"read-only: {text}" if text else "writable again")
            self.on_change()
        elif self.error is None:
            self._tell(found)
        self._said = found

    def _read_only(self, found: Mapping[Part, str]) -> str:
        if found and self._options.any_full:
            return "; ".join(dict.fromkeys(found.values()))
        for kind in (JOURNAL, LEDGERS):
            if all(part in found for part in self._parts if part.kind == kind):
                return "; ".join(dict.fromkeys(found.values()))
        return ""

    def _tell(self, found: Mapping[Part, str]) -> None:
        for part in self._parts:
            where = self._parts[part][0]
            if part in found and part not in self._said:
                logger.warning("%s is read-only, others are writable: %s", where, found[part])
            elif part in self._said and part not in found:
                logger.warning("%s is writable again", where)

    def full(self) -> dict[Part, str]:
        """Parts without room for writes, with the reasons. Blocks: call it in a thread."""
        was = self._reasons.get("disk", {})
        return {
            part: reason
            for part, directories in self._parts.items()
            if (reason := self._why_full(directories, was_full=part in was))
        }

    def room(self) -> BookieInfo:
        """Of the ledger directories, each file system once, as Apache's bookie tells it. Blocks:
        call it in a thread. Raises OSError.
        """
        found = {
            usage.device: usage
            for part, directories in self._parts.items()
            if part.kind == LEDGERS
            for usage in (self._disk.usage(directories[0]),)
        }
        return BookieInfo(
            sum(usage.size_bytes or usage.total_bytes for usage in found.values()),
            sum(usage.free_bytes for usage in found.values()),
        )

    def _why_full(self, directories: Sequence[Path], *, was_full: bool) -> str:
        try:
            usages = [(path, self._disk.usage(path)) for path in directories]
        except OSError as error:
            return f"disk usage unknown: {error}"
        reason = plan_full(usages, self._options, was_full=was_full)
        if reason:
            return reason
        for directory in directories:
            ballast = self._ballasts.get(directory / BALLAST_NAME)
            if ballast is not None and not ballast.restore():
                # A start has used the ballast: adds must not fill its space, the next start's need.
                return f"{directory} has no room for its ballast"
        return ""


def _nothing() -> None:
    """Nobody is told."""


def _errors(found: Mapping[Part, str], kind: str) -> dict[int, BookkeeperError]:
    return {
        part.number: BookieReadOnly(reason) for part, reason in found.items() if part.kind == kind
    }
