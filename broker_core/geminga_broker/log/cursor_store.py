"""Storage of a cursor's state: its node in the metadata store, and its own ledger (spec
BR-05).

    closed cursor   node: cursorsLedgerId = -1 and the whole state (too many holes: as below)
    open cursor     node: the ledger's id, and mark-delete when it was made; the ledger's last
                    entry is the state

A new ledger is written first, then named by the node, then the old one is deleted: a crash leaves
the old state or the new one, never none. A state that is too large for one entry is written as
several; if the last of them are missing, the state before is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.append import LedgerWriter, append_durably, append_whole
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.errors import BookkeeperError, NoSuchLedger
from geminga_broker.log.api import LogFenced
from geminga_broker.log.catalog import ROOT
from geminga_broker.log.options import LogOptions
from geminga_broker.log.position_info import (
    NO_LEDGER,
    CursorSnapshot,
    entries_of_state,
    read_cursor_info,
    read_position_infos,
)
from geminga_broker.log.salvage import DAMAGE, open_salvaged
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.managed_ledger import (
    decode_cursor_info,
    decode_position_info,
    encode_cursor_info,
    encode_position_info,
)
from geminga_protocol.pb.managed_ledger_pb2 import ManagedCursorInfo, PositionInfo
from geminga_protocol.topic_name import url_encode
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataError,
    MetadataStore,
    NoNode,
)

_log = logging.getLogger(__name__)

SIDE_LEDGERS = "#pulsar.internal.geminga.side-ledgers"
"""The cursor property that lists them; Apache's broker hides properties with this prefix."""


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


class CursorKey(NamedTuple):
    """Identifies a cursor."""

    log_name: str
    cursor_name: str

    @property
    def path(self) -> str:
        """The node's path; subscription names are URL-encoded, as in Apache's broker."""
        return f"{ROOT}/{self.log_name}/{url_encode(self.cursor_name)}"


class CursorStore:
    """Durable state of one cursor. One caller at a time."""

    def __init__(
        self, key: CursorKey, client: BookkeeperClient, store: MetadataStore, options: LogOptions
    ) -> None:
        self.key = key
        self.cursor_properties: dict[str, str] = {}
        self.side_ledgers: tuple[int, ...] = ()
        """Ledgers of the cursor's `SnapshotLog`."""
        self.last_active_ms = options.now_ms()
        """When the cursor was last used; written with the next change of its node."""
        self._client = client
        self._store = store
        self._options = options
        self._version = MUST_NOT_EXIST
        self._ledger_id = NO_LEDGER
        self._writer: LedgerWriter | None = None
        self._attempted: bytes | None = None
        self._opened_s = 0.0

    async def load(self) -> CursorSnapshot | None:
        """The last durable state; None if there is no such cursor. A ledger left open is recovered.

        If the ledger is missing or empty, the node's older state is used, so messages may be
        redelivered. Instead of a damaged state the one before is used.
        """
        node = await self._store.get(self.key.path)
        if node is None:
            return None
        self._version = node.stat.version
        info = decode_cursor_info(node.value)
        self._ledger_id = info.cursorsLedgerId
        self.cursor_properties = {entry.name: entry.value for entry in info.cursorProperties}
        listed = self.cursor_properties.pop(SIDE_LEDGERS, "")
        self.side_ledgers = tuple(int(text) for text in listed.split(",") if text.isdecimal())
        if info.cursorsLedgerId == NO_LEDGER:
            return read_cursor_info(info)
        try:
            reader = await open_salvaged(
                self._client,
                info.cursorsLedgerId,
                self._options.durability.password,
                f"cursor={self.key}: {CONSEQUENCE}",
            )
        except NoSuchLedger:
            _log.warning("cursor=%s: its ledger %d is gone", self.key, info.cursorsLedgerId)
            return read_cursor_info(info)
        try:
            found = await last_state(reader, self.key)
        finally:
            with trio.CancelScope(shield=True):
                await reader.aclose()
        known = read_cursor_info(info)
        if found is None:
            return known
        if found.last_active_ms is None or known.last_active_ms is None:
            return found
        return found._replace(last_active_ms=max(found.last_active_ms, known.last_active_ms))

    @property
    def has_room(self) -> bool:
        """Whether there is an open ledger with room for one more state."""
        writer = self._writer
        if writer is None:
            return False
        limits = self._options.cursors
        age_s = trio.current_time() - self._opened_s
        return (
            writer.last_add_pushed + 1 < limits.ledger_entries_max and age_s < limits.ledger_max_s
        )

    @property
    def ledger_id(self) -> int | None:
        """The ledger that holds the state, open or closed; None if there is none."""
        return self._ledger_id if self.has_ledger else None

    @property
    def has_ledger(self) -> bool:
        """Whether the state is in a ledger, open or closed."""
        return self._ledger_id != NO_LEDGER

    @property
    def is_closed(self) -> bool:
        """Whether the state is in the node only."""
        return self._ledger_id == NO_LEDGER and self._version != MUST_NOT_EXIST

    def append(
        self, infos: Sequence[PositionInfo], done: Callable[[BookkeeperError | None], None]
    ) -> None:
        """Write the state to the open ledger, and call `done`. Only if `has_room`."""
        writer = self._writer
        assert writer is not None

        def finished(error: BookkeeperError | None) -> None:
            if error is not None and self._writer is writer:
                self._writer = None
            done(error)

        append_whole(writer, _encoded(infos), finished)

    async def write_to_new_ledger(self, infos: Sequence[PositionInfo]) -> None:
        """Write the state to a new ledger and make that the cursor's. Durable on return. Raises
        LogFenced if another broker changed the cursor, BookkeeperError, MetadataError.
        """
        writer = await self._client.create(
            self._options.durability.ledger_options(self.key.log_name, self.key.cursor_name)
        )
        info = infos[-1]
        try:
            await append_durably(writer, _encoded(infos))
            await self._put(
                ManagedCursorInfo(
                    cursorsLedgerId=writer.ledger_id,
                    markDeleteLedgerId=info.ledgerId,
                    markDeleteEntryId=info.entryId,
                )
            )
        except (BookkeeperError, LogFenced):
            await self._delete_ledger(writer.ledger_id)  # noqa: ASYNC120
            raise
        old, self._ledger_id = self._ledger_id, writer.ledger_id
        old_writer, self._writer = self._writer, writer
        self._opened_s = trio.current_time()
        if old_writer is not None or old != NO_LEDGER:
            await self._delete_ledger(old)

    async def write_closed(self, info: ManagedCursorInfo) -> None:
        """Write the state to the node, and delete the ledger. Raises LogFenced, MetadataError."""
        await self._put(info)
        old, self._ledger_id = self._ledger_id, NO_LEDGER
        self._writer = None
        if old != NO_LEDGER:
            await self._delete_ledger(old)

    async def write_properties(self, mark_delete: Position) -> None:
        """Write `cursor_properties` to the node, not the state. Raises LogFenced, MetadataError."""
        await self._put(
            ManagedCursorInfo(
                cursorsLedgerId=self._ledger_id,
                markDeleteLedgerId=mark_delete[0],
                markDeleteEntryId=mark_delete[1],
            )
        )

    async def close_ledger(self) -> None:
        """Close the ledger, which keeps the state. Raises BookkeeperError, MetadataError."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

    async def remove(self) -> None:
        """Delete side ledgers, node, ledger, in this order, so that none leaks. Idempotent."""
        for ledger_id in self.side_ledgers:
            await self._client.delete(ledger_id)
        try:
            await self._store.delete(self.key.path)
        except NoNode:
            pass
        self._writer = None
        if self._ledger_id != NO_LEDGER:
            await self._delete_ledger(self._ledger_id)

    async def _put(self, info: ManagedCursorInfo) -> None:
        info.lastActive = self.last_active_ms
        for name, text in self.cursor_properties.items():
            if name != SIDE_LEDGERS:
                info.cursorProperties.add(name=name, value=text)
        if self.side_ledgers:
            listed = ",".join(map(str, self.side_ledgers))
            info.cursorProperties.add(name=SIDE_LEDGERS, value=listed)
        value = encode_cursor_info(info)
        while True:
            try:
                _, stat = await self._store.put(self.key.path, value, self._version)
            except (BadVersion, NoNode):
                node = await self._store.get(self.key.path)  # noqa: ASYNC120
                if node is None or node.value not in (value, self._attempted):
                    raise LogFenced(f"{self.key.path} was changed by another broker") from None
                # Our own earlier write, whose outcome was unknown, has succeeded.
                self._version = node.stat.version
            except BaseException:
                self._attempted = value
                raise
            else:
                self._version = stat.version
                return

    async def _delete_ledger(self, ledger_id: int) -> None:
        """Best effort: a remaining ledger is unused, and its metadata name its owner."""
        try:
            await self._client.delete(ledger_id)
        except (BookkeeperError, MetadataError) as error:
            _log.warning("cursor=%s: ledger %d is not deleted: %s", self.key, ledger_id, error)


def _encoded(infos: Sequence[PositionInfo]) -> list[tuple[bytes]]:
    return [(encode_position_info(info),) for info in infos]


async def cursor_names(store: MetadataStore, log_name: str) -> list[str]:
    """Encoded names of a log's stored cursors."""
    return list(await store.children(f"{ROOT}/{log_name}"))
