"""The ledgers of entry logs, and their bytes: packed, and in memory only up to a bound."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Mapping
from itertools import compress
from typing import NamedTuple

from geminga_bookie.storage.entry_logs.reading import (
    blocks_within,
    has_lost_its_header,
    ledger_map,
    may_hide_blocks,
)
from geminga_bookie.storage.ledger_directory import LedgerDirectory

logger = logging.getLogger(__name__)

MAPS_BYTES_MAX = 32 * 1024 * 1024
"""Maps above this size are read again each time: from the end of a log, where its map stands."""


class LedgerMap(NamedTuple):
    """Bytes of each ledger in one log."""

    ids: array[int]
    sizes: array[int]
    total: int
    """Bytes of all ledgers."""
    is_known: bool = True
    """False if there may be more in the log."""

    @classmethod
    def of(cls, ledger_bytes: Mapping[int, int]) -> LedgerMap:
        """Pack a map."""
        sizes = list(ledger_bytes.values())
        return cls(array("Q", list(ledger_bytes)), array("Q", sizes), sum(sizes))

    @property
    def memory_bytes(self) -> int:
        return (len(self.ids) + len(self.sizes)) * self.ids.itemsize

    def live(self, is_live: Callable[[int], bool]) -> int:
        """Bytes of the ledgers that live."""
        return sum(compress(self.sizes, map(is_live, self.ids)))


class LedgerMaps:
    """Maps of finished logs. One thread at a time."""

    def __init__(self) -> None:
        self._known: dict[tuple[LedgerDirectory, int], LedgerMap] = {}
        self.memory_bytes = 0
        self._told: set[tuple[LedgerDirectory, int]] = set()
        self._unread: set[tuple[LedgerDirectory, int]] = set()

    def begin(self) -> None:
        """A round begins. A log that can't be read once isn't read again in it: what it has was not
        compared with metadata.
        """
        self._unread.clear()

    def of(self, store: LedgerDirectory, log_id: int) -> LedgerMap:
        """A log's map, including unreadable blocks in the index.

        Each round reads all maps in the same order: to keep the first ones is better than the last.
        """
        known = self._known.get((store, log_id))
        if known is None:
            if (store, log_id) in self._unread:
                return UNREADABLE
            try:
                known = _read(store, log_id)
            except OSError as error:
                self._unread.add((store, log_id))
                self._failed(store, log_id, str(error))
                return UNREADABLE
            if not known.is_known:
                self._failed(store, log_id, "it is damaged, only the index tells what it has")
            if self.memory_bytes + known.memory_bytes <= MAPS_BYTES_MAX:
                self._known[store, log_id] = known
                self.memory_bytes += known.memory_bytes
        return known

    def _failed(self, store: LedgerDirectory, log_id: int, why: str) -> None:
        if (store, log_id) not in self._told:
            self._told.add((store, log_id))
            path = store.logs.path(log_id)
            logger.error("%s can't be read, and is kept as it is: %s", path, why)

    def forget(self, store: LedgerDirectory, log_id: int) -> None:
        """The log was removed."""
        known = self._known.pop((store, log_id), None)
        if known is not None:
            self.memory_bytes -= known.memory_bytes


UNREADABLE = LedgerMap.of({})._replace(is_known=False)
"""Of a log that can't be read now: it is never removed."""


def _read(store: LedgerDirectory, log_id: int) -> LedgerMap:
    unreadable: list[range] = []
    with store.logs.reading(log_id) as file:
        if file.header is None:
            store.logs.check_note()
        found = ledger_map(file, unreadable)
        is_known = not has_lost_its_header(file) and not may_hide_blocks(file, unreadable)
    for location in blocks_within(store.index, log_id, unreadable):
        found[location.ledger_id] = found.get(location.ledger_id, 0) + location.size_bytes
    return LedgerMap.of(found)._replace(is_known=is_known)
