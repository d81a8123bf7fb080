"""Reading a cursor's state back from its ledger (spec BR-05)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from geminga_bookie.client.read import LedgerReader
from geminga_broker.log.position_info import (
    CursorSnapshot,
    entries_of_state,
    read_position_infos,
)
from geminga_broker.log.salvage import DAMAGE
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.managed_ledger import decode_position_info

_log = logging.getLogger(__name__)

CONSEQUENCE = "acknowledged messages may come again"
"""What an older state leads to, for the log."""

_DECODED_IN_LOOP_BYTES_MAX = 128 * 1024
"""Larger states are decoded in a thread: it takes some ten milliseconds for each megabyte."""

_DAMAGED_ONE_BY_ONE = 16
"""So many damaged entries are passed one by one, more by doubling steps."""


async def last_state(reader: LedgerReader, about: object) -> CursorSnapshot | None:
    """The last whole state in a cursor's ledger, None if there is none; `about` names the cursor.

    A damaged state lets the one before it count, and the log says so. Raises BookkeeperError for
    what may be readable later.
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
    """The state that ends with this entry, None if none does; and how many entries it has."""
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
