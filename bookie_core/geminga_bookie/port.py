"""The bookie port: all requests of a ledger client to one bookie.

In-process, TCP and simulated bookies have this interface; no caller may depend on which one it is.
Entries are *packets*: BookKeeper's header (ledger id, entry id, LAC, length), digest and payload,
as on the wire.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from geminga_bookie.errors import BookkeeperError, IncorrectParameter

ID_MAX = (1 << 63) - 1
"""The highest ledger id, entry id and LAC, which are signed in Java."""
MASTER_KEY_BYTES_MAX = (1 << 16) - 1
ADD_BYTES_MAX = 128 * 1024 * 1024
"""Bound of one add: its group must fit into one record of the journal."""

AddDone = Callable[[int, int, BookkeeperError | None], None]
"""(first entry id, count, error): a run is durable or failed. Called in the loop, in order."""

_log = logging.getLogger(__name__)


class Completion(NamedTuple):
    """The result of a run: `done` is called in the loop with the other fields."""

    done: AddDone
    first: int
    entries: int
    error: BookkeeperError | None


def complete(completions: Sequence[Completion]) -> None:
    """Call back in order. A failing callback doesn't affect the others."""
    for done, first, count, error in completions:
        try:
            done(first, count, error)
        except Exception:
            _log.exception("the callback of %d entries from %d on failed", count, first)


class BookiePort(Protocol):
    """One bookie. Errors are those of `geminga_bookie.errors`."""

    @property
    def bookie_id(self) -> str:
        """The bookie's id in ledger metadata, usually `host:port`."""

    def add(
        self,
        ledger_id: int,
        master_key: bytes,
        first_entry_id: int,
        packets: Sequence[bytes],
        done: AddDone,
        *,
        recovery: bool = False,
    ) -> None:
        """Add consecutive entries. Never blocks and never raises: `done` gets the result, by runs.

        `done` is called only after the journal's fdatasync (BK-02). A fenced ledger refuses the add
        unless `recovery`. As in all methods, invalid ids, keys and sizes fail with
        IncorrectParameter.
        """

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        """Packets of consecutive entries from the first one on: at least one, at most the bounds.
        Raises NoSuchEntry, NoSuchLedger, UnknownLedgerState, DigestMismatch if the first one can't
        be read.
        """

    async def fence(self, ledger_id: int, master_key: bytes) -> int:
        """Fence the ledger durably; returns the bookie's LAC (-1 if unknown)."""

    async def read_lac(self, ledger_id: int) -> int:
        """The bookie's highest LAC, explicit or in packets."""

    async def write_lac(self, ledger_id: int, master_key: bytes, lac: int) -> None:
        """Store an explicit LAC."""

    async def wait_lac(self, ledger_id: int, previous_lac: int) -> int:
        """Wait until the LAC is above `previous_lac`; returns it. The caller sets the deadline."""

    async def force(self, ledger_id: int) -> None:
        """Return when all earlier adds of the ledger are on disk."""

    async def list_entries(self, ledger_id: int) -> list[int]:
        """Ids of the bookie's entries, ascending."""


def ids_fit(ledger_id: int, first_entry_id: int = 0, count: int = 0) -> bool:
    """Whether a run of entries with these ids can be stored."""
    return 0 <= ledger_id <= ID_MAX and 0 <= first_entry_id <= ID_MAX - count


def check_ledger(ledger_id: int, master_key: bytes = b"") -> None:
    """Raises IncorrectParameter."""
    if not ids_fit(ledger_id):
        raise IncorrectParameter(f"{ledger_id} can't be a ledger's id")
    if len(master_key) > MASTER_KEY_BYTES_MAX:
        raise IncorrectParameter(f"a master key of {len(master_key)} bytes is too long")


def check_add(ledger_id: int, first_entry_id: int, count: int, size_bytes: int) -> None:
    """Raises IncorrectParameter."""
    if not ids_fit(ledger_id, first_entry_id, count):
        raise IncorrectParameter(
            f"ledger {ledger_id} can't have {count} entries from {first_entry_id} on"
        )
    if size_bytes > ADD_BYTES_MAX:
        raise IncorrectParameter(f"an add of {size_bytes} bytes is too large")


def check_read(ledger_id: int, entry_id: int) -> None:
    """Raises IncorrectParameter."""
    if not ids_fit(ledger_id, entry_id):
        raise IncorrectParameter(f"no entry can be {ledger_id}:{entry_id}")


def check_lac(lac: int) -> None:
    """Raises IncorrectParameter."""
    if not -1 <= lac <= ID_MAX:
        raise IncorrectParameter(f"{lac} can't be a ledger's last confirmed entry")
