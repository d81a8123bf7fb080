"""The ledger API: what the broker, and nobody else, writes and reads ledgers with.

The writer answers in order, one callback for each completed run. Payloads come back as views of
the stored packet, so
that the packet is the only copy (design section 4, rule 3).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from geminga_bookie.errors import BookkeeperError
from geminga_protocol.buffers import Buffer

AppendDone = Callable[[int, int, BookkeeperError | None], None]
"""(first entry id, count, error), in order; after an error all later runs of the writer fail."""


class DigestType(Enum):
    """How entries are protected; names as in BookKeeper's metadata."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class LedgerState(Enum):
    """State in the ledger's metadata."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """How a new ledger is made (BK-20). Custom metadata names its owner (BK-27)."""

    ensemble_size: int = 1
    write_quorum: int = 1
    ack_quorum: int = 1
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """A ledger's metadata; `ensembles` maps the first entry id of each fragment to its bookies."""

    ledger_id: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: LedgerState
    last_entry_id: int
    length: int
    digest_type: DigestType
    password: bytes
    ensembles: Mapping[int, Sequence[str]]
    custom_metadata: Mapping[str, bytes]
    ctime_ms: int


class LedgerReader(Protocol):
    """A ledger open for reading. `read` raises BookkeeperError's kinds."""

    @property
    def ledger_id(self) -> int: ...

    @property
    def last_add_confirmed(self) -> int:
        """Entry id up to which reads are allowed; -1 when the ledger is empty."""

    @property
    def length(self) -> int:
        """Payload bytes up to the last add confirmed."""

    async def read(self, first: int, last: int, *, bytes_max: int = 1 << 62) -> list[memoryview]:
        """Payloads of entries first..last (both inclusive, last at most LAC); fewer if `bytes_max`
        is reached, never none.

        Each is a view of its own packet, digest verified.
        """

    async def read_last_add_confirmed(self) -> int:
        """Ask the bookies for the LAC and remember it."""

    async def aclose(self) -> None:
        """Give the handle back. Idempotent."""


class LedgerWriter(LedgerReader, Protocol):
    """The one writer of an open ledger."""

    @property
    def last_add_pushed(self) -> int: ...

    def append(
        self, entries: Sequence[Sequence[Buffer]], done: AppendDone
    ) -> tuple[int, list[memoryview]]:
        """Queue entries, each given as the parts of its payload; buffers are copied before this
        returns.

        Returns the first entry id and each payload as a view of its packet. Never blocks; failures
        go to `done`.
        """

    async def close(self) -> None:
        """Wait for what is pushed, then close the ledger by compare-and-set with its end."""

    def abandon(self, error: BookkeeperError) -> None:
        """Fail what has no answer yet, and every later append, with the error."""


class LedgerClient(Protocol):
    """Factory of ledgers over any bookie ports and metadata store."""

    async def create(self, options: LedgerOptions) -> LedgerWriter:
        """A new ledger. Raises NotEnoughBookies, MetadataConflict."""

    async def open(self, ledger_id: int, password: bytes, *, recover: bool) -> LedgerReader:
        """Open for reading. With `recover` an unclosed ledger is fenced, recovered and closed
        first (BK-23).

        Raises NoSuchLedger, UnauthorizedAccess, UnknownLedgerState; DigestMismatch, NoSuchEntry if
        an entry that is damaged or lost keeps the ledger from being recovered.
        """

    async def delete(self, ledger_id: int) -> None:
        """Remove its metadata; bookies collect the entries later. Idempotent."""

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Raises NoSuchLedger."""

    def ledgers(self) -> AsyncIterator[int]:
        """Ids of all ledgers that metadata knows."""
