"""What a bookie and the ledger client raise; `code` is BookKeeper's BKException code."""

from __future__ import annotations


class BookkeeperError(Exception):
    """Base. `retryable` says that the same call may succeed later."""

    code = -999
    retryable = False


class NoSuchEntry(BookkeeperError):
    """The bookie is sure that it does not hold the entry."""

    code = -13


class NoSuchLedger(BookkeeperError):
    """The bookie is sure that it does not hold the ledger, or metadata says that there is none."""

    code = -7


class IncorrectParameter(BookkeeperError):
    """An id, LAC, master key or add that no ledger can have; no bookie will ever take it."""

    code = -14


class LedgerFenced(BookkeeperError):
    """Another client took the ledger over; ordinary adds are refused for ever (BK-07)."""

    code = -101


class LedgerClosed(BookkeeperError):
    """The ledger is closed and takes no more entries."""

    code = -11


class DigestMismatch(BookkeeperError):
    """The entry's digest or on-disk checksum does not fit its bytes (BK-12)."""

    code = -5


class UnauthorizedAccess(BookkeeperError):
    """The master key (password) is not the ledger's."""

    code = -102


class MetadataConflict(BookkeeperError):
    """The ledger's metadata changed under the caller's hands."""

    code = -17


class NotEnoughBookies(BookkeeperError):
    """Too few writable bookies for the ensemble."""

    code = -6
    retryable = True


class BookieReadOnly(BookkeeperError):
    """The bookie takes no writes now: its disks are full or failed (BK-10)."""

    code = -104
    retryable = True


class TooManyRequests(BookkeeperError):
    """The bookie is at one of its limits (BK-03, BK-09)."""

    code = -105
    retryable = True


class UnknownLedgerState(BookkeeperError):
    """After an unclean stop the bookie may lack entries of this ledger: no guess (BK-02)."""

    code = -106
    retryable = True


class StorageFailed(BookkeeperError):
    """The disk answered with an error; the text names file and cause."""

    code = -1
    retryable = True


class DataDirError(Exception):
    """A directory can't be used: in use, not writable, of another version or bookie."""
