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
from geminga_protocol.bookkeeper.digest import DigestError, lac_header

ID_MAX = (1 << 63) - 1
"""The highest ledger id, entry id and LAC, which are signed in Java."""
MASTER_KEY_BYTES_MAX = (1 << 16) - 1
ADD_BYTES_MAX = 128 * 1024 * 1024
"""Bound of one add: its group must fit into one record of the journal."""


class LacAnswer(NamedTuple):
    """What a bookie knows of a ledger's last add confirmed (LAC): packets, whose digests the client
    checks. None for what it doesn't have.
    """

    last_packet: bytes | None
    """The packet of the entry with the highest id: the LAC stands in its header."""
    explicit_packet: bytes | None
    """What `write_lac` stored last."""


class BookieInfo(NamedTuple):
    """Room on the disks of a bookie's ledger directories."""

    total_bytes: int
    free_bytes: int
    read_only: str = ""
    """Why it takes no writes, if it doesn't, and tells that."""


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
        Raises NoSuchEntry, NoSuchLedger, UnknownLedgerState, DigestMismatch, EntryLost if the first
        one can't be read.
        """

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        """Fence the ledger durably; returns what `read_lac` would, but a remote bookie's answer has
        no explicit LAC. Raises StorageFailed if the last entry can't be read; the ledger is fenced
        all the same.
        """

    async def read_lac(self, ledger_id: int) -> LacAnswer:
        """What the bookie knows of the LAC. Raises NoSuchLedger."""

    async def write_lac(self, ledger_id: int, master_key: bytes, lac: int, packet: bytes) -> None:
        """Store an explicit LAC's packet durably, unless a higher one is stored. Raises
        IncorrectParameter if the packet names another ledger or LAC.
        """

    async def last_entry(self, ledger_id: int) -> bytes:
        """The packet of the entry with the highest id. Raises NoSuchEntry, NoSuchLedger."""

    async def wait_entry(
        self, ledger_id: int, entry_id: int, previous_lac: int
    ) -> tuple[bytes | None, int]:
        """Wait until the LAC, as the bookie knows it, is above `previous_lac`. Returns the entry's
        packet, None if the LAC is below it or the bookie doesn't have it, and the LAC. The caller
        sets the deadline.
        """

    async def force(self, ledger_id: int) -> None:
        """Return when all earlier adds of the ledger are on disk."""

    async def list_entries(self, ledger_id: int) -> list[int]:
        """Ids of the bookie's entries, ascending."""

    async def info(self) -> BookieInfo:
        """The room for entries. Raises StorageFailed."""


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


def check_lac(ledger_id: int, lac: int, packet: bytes) -> None:
    """Raises IncorrectParameter."""
    if not -1 <= lac <= ID_MAX:
        raise IncorrectParameter(f"{lac} can't be a ledger's last confirmed entry")
    try:
        said = lac_header(packet)
    except DigestError as error:
        raise IncorrectParameter(f"ledger {ledger_id}: {error}") from None
    if said != (ledger_id, lac):
        raise IncorrectParameter(
            f"the packet is of LAC {said[1]} of ledger {said[0]}, not {lac} of {ledger_id}"
        )
