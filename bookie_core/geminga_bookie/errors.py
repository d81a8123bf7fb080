"""Errors of a bookie and the ledger client; `code` is BookKeeper's BKException code."""

from __future__ import annotations


class BookkeeperError(Exception):
    """Base. `retryable`: the same call may succeed later."""

    code = -999
    retryable = False


class NoSuchEntry(BookkeeperError):
    """The bookie certainly does not have the entry."""

    code = -13


class NoSuchLedger(BookkeeperError):
    """The bookie certainly does not have the ledger, or there is no metadata of it."""

    code = -7


class IncorrectParameter(BookkeeperError):
    """An invalid id, LAC, master key or add, which every bookie refuses."""

    code = -14


class LedgerFenced(BookkeeperError):
    """Another client recovers the ledger; normal adds are refused for ever (BK-07)."""

    code = -101


class LedgerClosed(BookkeeperError):
    """The ledger is closed and takes no more entries."""

    code = -11


class DigestMismatch(BookkeeperError):
    """The entry's digest or on-disk checksum is wrong (BK-12)."""

    code = -5


class EntryLost(DigestMismatch):
    """The bookie had the only copy of the entry, and lost it with a part of its journal; it has
    later ones of the ledger.
    """


class UnauthorizedAccess(BookkeeperError):
    """Wrong master key (password)."""

    code = -102


class MetadataConflict(BookkeeperError):
    """The ledger's metadata changed meanwhile."""

    code = -17


class NotEnoughBookies(BookkeeperError):
    """Too few writable bookies for the ensemble."""

    code = -6
    retryable = True


class BookieReadOnly(BookkeeperError):
    """The bookie accepts no writes now: its disks are full or failed (BK-10)."""

    code = -104
    retryable = True


class TooManyRequests(BookkeeperError):
    """The bookie is at one of its limits (BK-03, BK-09)."""

    code = -105
    retryable = True


class UnknownLedgerState(BookkeeperError):
    """Unknown: the bookie may lack entries of this ledger after an unclean stop (BK-02)."""

    code = -106
    retryable = True


class BookieUnavailable(BookkeeperError):
    """No connection to the bookie, or none of its addresses is known. Whether what was sent was
    executed is not known.
    """

    code = -8
    retryable = True


class RequestTimeout(BookkeeperError):
    """The bookie didn't answer in time. Whether it executed the request is not known."""

    code = -23
    retryable = True


class StorageFailed(BookkeeperError):
    """I/O error of a disk; the text names file and cause."""

    code = -1
    retryable = True


class DataDirError(Exception):
    """A directory is in use, not writable, or belongs to another version or bookie."""
