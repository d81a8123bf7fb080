"""Whether the bookie takes writes (spec BK-10): disk usage thresholds and failed writes. Pure but
for `full`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from geminga_bookie.errors import BookieReadOnly, BookkeeperError
from geminga_bookie.options import DiskOptions
from geminga_bookie.storage.disk import Disk, DiskUsage
from geminga_runtime.ballast import Ballast

logger = logging.getLogger(__name__)


def plan_full(
    usages: Sequence[tuple[Path, DiskUsage]], options: DiskOptions, *, was_full: bool
) -> str:
    """Which disk is too full for writes; empty if none is. Full above `usage_max`, until at or
    under `usage_low`."""
    limit = min(options.usage_low, options.usage_max) if was_full else options.usage_max
    for directory, usage in usages:
        if usage.used_share > limit:
            return f"{directory} is {usage.used_share:.1%} full"
    return ""


class Health:
    """Reasons for being read-only. `error` is what an add is answered with, None while writes are
    taken."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[Path],
        ballasts: Sequence[Ballast],
        options: DiskOptions,
    ) -> None:
        self._disk = disk
        self._ballasts = ballasts
        self._directories = directories
        self._options = options
        self._reasons: dict[str, str] = {}
        self.error: BookkeeperError | None = None

    @property
    def failed(self) -> bool:
        """Whether a write failed, and has not succeeded since."""
        return "journal" in self._reasons or "flush" in self._reasons

    def set(self, source: str, reason: str) -> None:
        """A reason for being read-only, by source; an empty one takes it back."""
        was = self.error is not None
        if reason:
            self._reasons[source] = reason
        else:
            self._reasons.pop(source, None)
        text = "; ".join(self._reasons.values())
        self.error = BookieReadOnly(text) if text else None
        if was != (self.error is not None):
            logger.warning("bookie is %s", f"read-only: {text}" if text else "writable again")

    def full(self) -> str:
        """Why there is no room for writes, empty if there is. Blocks for a moment: for a thread, so
        it changes nothing."""
        try:
            usages = [(path, self._disk.usage(path)) for path in self._directories]
        except OSError as error:
            return f"disk usage unknown: {error}"
        reason = plan_full(usages, self._options, was_full="disk" in self._reasons)
        if not reason and not all(ballast.restore() for ballast in self._ballasts):
            # What a start has taken from it must not be filled with adds: the next needs it too.
            reason = "no room for the ballast of its directories"
        return reason
