"""Which entries of a ledger a bookie has, as sent on the wire (Apache's
AvailabilityOfEntriesOfLedger).

    version i32 | groups i32 | 56 bytes of zeros | groups

A group is a number of equally long sequences at equal distances:

    first sequence's start i64 | last one's start i64 | entries of a sequence i32 | distance i32

The distance is 0 if there is one sequence. Apache's bookies write such groups only, and its client
reads all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from geminga_protocol.bookkeeper.framing import WireError

ENTRIES_MAX = 50_000_000
"""More entries in one list are refused: the groups are small, what they say is not."""

_VERSION = 0
_HEADER_BYTES = 64
_HEADER = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")
_INT_MAX = (1 << 31) - 1


def encode_entries(entry_ids: Iterable[int]) -> bytes:
    """The list of entries, given ascending."""
    groups: list[tuple[int, int, int, int]] = []
    for start, size in _sequences(entry_ids):
        if groups:
            first, last, same_size, distance = groups[-1]
            step = start - last
            if size == same_size and (step == distance or (distance == 0 and step <= _INT_MAX)):
                groups[-1] = (first, start, size, step)
                continue
        groups.append((start, start, size, 0))
    return _HEADER.pack(_VERSION, len(groups)) + b"".join(_GROUP.pack(*group) for group in groups)


def _sequences(entry_ids: Iterable[int]) -> list[tuple[int, int]]:
    """(start, number of entries) of each run of consecutive ids."""
    found: list[tuple[int, int]] = []
    start = stop = -1
    for entry_id in entry_ids:
        if entry_id != stop or stop - start == _INT_MAX:
            if stop > start:
                found.append((start, stop - start))
            start = entry_id
        stop = entry_id + 1
    if stop > start:
        found.append((start, stop - start))
    return found


def decode_entries(data: bytes) -> list[int]:
    """The ids, ascending. Raises WireError."""
    if len(data) < _HEADER_BYTES:
        raise WireError(f"a list of entries of {len(data)} bytes has no header")
    version, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise WireError(f"a list of entries has the unknown version {version}")
    if count < 0 or len(data) < _HEADER_BYTES + count * _GROUP.size:
        raise WireError(f"a list of entries of {len(data)} bytes doesn't have {count} groups")
    found: list[int] = []
    end = _HEADER_BYTES + count * _GROUP.size
    for first, last, size, distance in _GROUP.iter_unpack(data[_HEADER_BYTES:end]):
        found += _entries_of(first, last, size, distance, ENTRIES_MAX - len(found))
    return found


def _entries_of(first: int, last: int, size: int, distance: int, entries_max: int) -> list[int]:
    if first < 0 or last < first or size < 1 or distance < 0 or (distance == 0 and last != first):
        raise WireError(f"a list of entries has the group {first}, {last}, {size}, {distance}")
    starts = range(first, last + 1, distance or 1)
    if len(starts) * size > entries_max:
        raise WireError(f"a list of entries says more than {ENTRIES_MAX} entries")
    if size == 1:
        return list(starts)
    return [entry_id for start in starts for entry_id in range(start, start + size)]
