"""What the server's log says about a log whose entries are not written."""

from __future__ import annotations

import logging

from geminga_runtime.metadata.api import MetadataError

_log = logging.getLogger(__name__)


class FailureLines:
    """One WARNING for the bookies' failures, and one for those of the metadata store, until entries
    are written again: a full disk fails every attempt.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.told: set[bool] = set()
        """Whose failures, since entries were written last: the metadata store's or not."""

    def tell(self, error: Exception, text: str) -> None:
        """An attempt failed."""
        whose = isinstance(error, MetadataError)
        level = logging.DEBUG if whose in self.told else logging.WARNING
        self.told.add(whose)
        _log.log(level, "log=%s: %s", self._name, text)

    def over(self) -> None:
        """Entries are written again. Call it if something was told."""
        self.told.clear()
        _log.warning("log=%s: entries are written again", self._name)
