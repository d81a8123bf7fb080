"""Options and metadata of ledgers (spec BK-20, BK-27)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from geminga_bookie.port import BookieInfo as BookieInfo

LOSS_ACCEPTED = "geminga.loss-accepted"
"""In a ledger's custom metadata: what all bookies that should have it say they may have lost is
given up (`bookieshell acceptloss`)."""


class DigestType(Enum):
    """Kind of an entry's digest; names as in BookKeeper's metadata."""

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
    """Options of a new ledger (BK-20). Custom metadata names its owner (BK-27)."""

    ensemble_size: int = 1
    write_quorum: int = 1
    ack_quorum: int = 1
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How entries are read (BK-22); the defaults are those of Pulsar's broker."""

    sticky: bool = True
    """A handle reads from one bookie as long as that answers (bookkeeperEnableStickyReads)."""
    speculative_s: float = 0.0
    """Another replica is asked after this time without an answer; 0: only after a failure
    (bookkeeperClientSpeculativeReadTimeoutInMillis)."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Settings of a ledger client."""

    reads: ReadOptions = ReadOptions()
    delay_change: bool = False
    """A bookie that fails is replaced only when an ack quorum would be missing without
    (delayEnsembleChange)."""
    unanswered_bytes_max: int = 256 * 1024 * 1024
    """Payload bytes of one ledger's appends that wait for their answers. Above it the ledger fails
    with TooManyRequests: callers' own limits should be lower."""


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

    def numbered(self, ledger_id: int) -> LedgerMetadata:
        """The same with this id, as `dataclasses.replace` makes it in twice the time."""
        return LedgerMetadata(
            ledger_id,
            self.ensemble_size,
            self.write_quorum,
            self.ack_quorum,
            self.state,
            self.last_entry_id,
            self.length,
            self.digest_type,
            self.password,
            self.ensembles,
            self.custom_metadata,
            self.ctime_ms,
        )
