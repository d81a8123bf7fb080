"""BookKeeper's status codes on the wire, and our errors."""

from __future__ import annotations

from geminga_bookie.errors import (
    BookieReadOnly,
    BookkeeperError,
    IncorrectParameter,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    RequestTimeout,
    StorageFailed,
    TooManyRequests,
    UnauthorizedAccess,
    UnknownLedgerState,
)
from geminga_protocol.pb.bookkeeper_protocol_pb2 import StatusCode

_ERRORS: dict[int, type[BookkeeperError]] = {
    StatusCode.ENOLEDGER: NoSuchLedger,
    StatusCode.ENOENTRY: NoSuchEntry,
    StatusCode.EBADREQ: IncorrectParameter,
    StatusCode.EIO: StorageFailed,
    StatusCode.EUA: UnauthorizedAccess,
    StatusCode.EBADVERSION: IncorrectParameter,
    StatusCode.EFENCED: LedgerFenced,
    StatusCode.EREADONLY: BookieReadOnly,
    StatusCode.ETOOMANYREQUESTS: TooManyRequests,
    StatusCode.EUNKNOWNLEDGERSTATE: UnknownLedgerState,
}
_STATUSES: tuple[tuple[type[BookkeeperError], StatusCode], ...] = (
    (NoSuchLedger, StatusCode.ENOLEDGER),
    (NoSuchEntry, StatusCode.ENOENTRY),
    (IncorrectParameter, StatusCode.EBADREQ),
    (UnauthorizedAccess, StatusCode.EUA),
    (LedgerFenced, StatusCode.EFENCED),
    (BookieReadOnly, StatusCode.EREADONLY),
    (TooManyRequests, StatusCode.ETOOMANYREQUESTS),
    (RequestTimeout, StatusCode.ETOOMANYREQUESTS),
    (UnknownLedgerState, StatusCode.EUNKNOWNLEDGERSTATE),
)

_HINTS: dict[int, str] = {
    StatusCode.EUA: (
        " (the bookie wants other credentials or TLS: see its authentication keys and those of "
        "its clients; or the ledger has another password)"
    ),
}


def error_of(status: int, text: str) -> BookkeeperError:
    """The error of a status that isn't EOK."""
    name = StatusCode.Name(status) if status in StatusCode.values() else str(status)
    hint = _HINTS.get(status, "")
    return _ERRORS.get(status, StorageFailed)(f"{text}: the bookie answered {name}{hint}")


def status_of(error: BookkeeperError) -> StatusCode:
    """What is answered for an error; EIO for those of the disk."""
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return StatusCode.EIO
