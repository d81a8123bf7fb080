"""Reading the broker's own ledgers (cursors, snapshots) when some of their entries are damaged, and
the last state in a cursor's ledger, past damaged and incomplete ones (spec BR-05).

A damaged entry has a wrong checksum, or no bookie has it any more. A retry doesn't help; other
entries are not affected.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.errors import DigestMismatch, NoSuchEntry, NoSuchLedger
from geminga_broker.log.position_info import (
    CursorSnapshot,
    entries_of_state,
    read_position_infos,
)
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.managed_ledger import decode_position_info

_log = logging.getLogger(__name__)

DAMAGE = (DigestMismatch, NoSuchEntry, NoSuchLedger)
"""Errors of a read that a retry can't solve."""


async def open_salvaged(
    client: BookkeeperClient, ledger_id: int, password: bytes, consequence: str
) -> LedgerReader:
    """Open a ledger with recovery. If a damaged or lost entry prevents the recovery, open it up to
    the last confirmed entry, and log a warning with the `consequence`. Raises BookkeeperError,
    MetadataError.
    """
    try:
        return await client.open(ledger_id, password, recover=True)
    except (DigestMismatch, NoSuchEntry) as error:
        text = "ledger %d can't be recovered, only its confirmed part is read, %s: %s"
        _log.warning(text, ledger_id, consequence, error)
        return await client.open(ledger_id, password, recover=False)


CONSEQUENCE = "acknowledged messages may come again"
"""Effect of an older state, for the log's text."""

_DECODED_IN_LOOP_BYTES_MAX = 128 * 1024
"""Larger states are decoded in a thread: a megabyte takes some ten milliseconds."""

_DAMAGED_ONE_BY_ONE = 16
"""Damaged entries that are skipped one by one; further ones by doubling steps."""


async def last_state(reader: LedgerReader, about: object) -> CursorSnapshot | None:
    """The last complete state in a cursor's ledger, or None; `about` names the cursor.

    Instead of a damaged state the one before is used, with a warning. Raises BookkeeperError if a
    retry may succeed.
    """
    last = reader.last_add_confirmed
    damaged = 0
    failure: Exception | None = None
    found: CursorSnapshot | None = None
    while last >= 0 and found is None:
        try:
            found, entries = await _state_ending_at(reader, last, about)
        except (*DAMAGE, RemoteProtocolError) as error:
            failure = failure or error
            damaged += 1
            entries = 1 << max(0, min(damaged - _DAMAGED_ONE_BY_ONE, 30))
        last -= entries
    if failure is not None:
        text = "cursor=%s: the end of its ledger %d is damaged (%d entries seen), %s: %s"
        _log.warning(text, about, reader.ledger_id, damaged, CONSEQUENCE, failure)
    return found


async def _state_ending_at(
    reader: LedgerReader, last: int, about: object
) -> tuple[CursorSnapshot | None, int]:
    """The state that ends with this entry, or None; and its number of entries."""
    [view] = await reader.read(last, last)
    info = decode_position_info(view)
    entries = entries_of_state(info)
    if not entries:
        _log.warning("cursor=%s: a state is incomplete, using the one before", about)
        return None, info.part.index + 1
    views: list[memoryview] = []
    first = last - entries + 1
    while first + len(views) <= last:
        views += await reader.read(first + len(views), last)
    if sum(len(view) for view in views) <= _DECODED_IN_LOOP_BYTES_MAX:
        return _decode(views), entries
    return await trio.to_thread.run_sync(_decode, views), entries


def _decode(views: Sequence[memoryview]) -> CursorSnapshot:
    return read_position_infos([decode_position_info(view) for view in views])
