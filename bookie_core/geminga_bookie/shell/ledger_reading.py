"""Reading a ledger of a cluster for `bookieshell readledger` (spec BK-11; Apache's
ReadLedgerCommand).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from geminga_bookie.autorecovery.tools import Cluster, ToolFailed
from geminga_bookie.client.api import LedgerMetadata
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.errors import BookkeeperError
from geminga_bookie.shell.printing import ledger_name, payload_lines
from geminga_protocol.bookkeeper import digest as packets
from geminga_protocol.bookkeeper.digest import Digest, DigestError

READ_BYTES_MAX = 4 * 1024 * 1024
"""Bound of what is in memory at a time, which a single entry may exceed."""


class EntryRange(NamedTuple):
    """Which entries are printed, and how."""

    ledger_id: int
    first: int = 0
    last: int = -1
    """-1: up to the last one that is confirmed."""
    entry_format: str | None = None
    """Of payloads; None prints none."""
    ledger_id_format: str = "long"
    recovers: bool = False
    """Whether an open ledger is closed first, as `-force-recovery` wants it."""
    bookie_id: str | None = None
    """Reads what this one has, which need not be confirmed."""


async def read_ledger(at: Cluster, wanted: EntryRange) -> int:
    """Print entries; returns 1 if one of them can't be read. Raises ToolFailed, MetadataError."""
    client = BookkeeperClient(at.bookies, at.store)
    failed = False
    try:
        metadata = await client.metadata(wanted.ledger_id)
        reader = await client.open(wanted.ledger_id, metadata.password, recover=wanted.recovers)
    except BookkeeperError as error:
        raise ToolFailed(str(error)) from error
    last = reader.last_add_confirmed
    if wanted.last >= 0 and (wanted.last < last or wanted.bookie_id is not None):
        last = wanted.last
    entries = (
        _confirmed(reader, wanted.first, last)
        if wanted.bookie_id is None
        else _on_bookie(at, metadata, wanted.bookie_id, wanted.first, last)
    )
    ledger = ledger_name(wanted.ledger_id, wanted.ledger_id_format)
    async for entry_id, found in entries:
        if isinstance(found, _Entry):
            # So Apache's shell calls the ledger's length up to here; of one bookie it says nothing.
            length = f", EntrySize={found.length}" if wanted.bookie_id is None else ""
            at.say(f"--------- Lid={ledger}, Eid={entry_id}{length} ---------")
            if wanted.entry_format is not None:
                for line in payload_lines(found.payload, wanted.entry_format):
                    at.say(line)
        else:
            failed = True
            at.say(f"--------- Lid={ledger}, Eid={entry_id} ---------")
            at.say(f"Error:          {found}")
    return int(failed)


class _Entry(NamedTuple):
    payload: bytes
    length: int
    """Payload bytes of the ledger up to this entry."""

    @classmethod
    def of(cls, payload: memoryview) -> _Entry:
        """Of a view into the entry's packet."""
        return cls(bytes(payload), packets.header(memoryview(payload.obj))[3])


_Entries = AsyncIterator[tuple[int, "_Entry | Exception"]]


async def _confirmed(reader: LedgerReader, first: int, last: int) -> _Entries:
    """From any bookie that has them whole."""
    entry_id = first
    while entry_id <= last:
        try:
            found = await reader.read(entry_id, last, bytes_max=READ_BYTES_MAX)
        except BookkeeperError as error:
            yield entry_id, error
            entry_id += 1
            continue
        for payload in found:
            yield entry_id, _Entry.of(payload)
            entry_id += 1


async def _on_bookie(
    at: Cluster, metadata: LedgerMetadata, bookie_id: str, first: int, last: int
) -> _Entries:
    """Of one bookie; entries that it need not have are errors too."""
    digest, entry_id = Digest(metadata.digest_type.value, metadata.password), first
    ledger_id = metadata.ledger_id
    while entry_id <= last:
        try:
            found = await at.bookies.port(bookie_id).read(
                ledger_id, entry_id, entries_max=last + 1 - entry_id, bytes_max=READ_BYTES_MAX
            )
        except BookkeeperError as error:
            yield entry_id, error
            entry_id += 1
            continue
        for packet in found:
            try:
                yield entry_id, _Entry.of(digest.payload(ledger_id, entry_id, packet))
            except DigestError as error:
                yield entry_id, error
            entry_id += 1
