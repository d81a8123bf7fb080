"""Storage of a cursor's state: its node in the metadata store, and its own ledger (spec
BR-05).

    closed cursor   node: cursorsLedgerId = -1 and the whole state (too many holes: as below)
    open cursor     node: the ledger's id, and mark-delete when it was made; the ledger's last
                    entry is the state

A new ledger is written first, then named by the node, then the old one is deleted: a crash leaves
the old state or the new one, never none. The node lists ledgers that it named before, until a later
write of it finds them deleted. A state that is too large for one entry is written as
several; if the last of them are missing, the state before is used.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.append import LedgerWriter, append_durably, append_whole
from geminga_bookie.errors import BookkeeperError, NoSuchLedger
from geminga_broker.log.api import LogFenced
from geminga_broker.log.catalog import ROOT, is_own
from geminga_broker.log.cursor_node import OWNER, CursorNode, Verify
from geminga_broker.log.options import CURSOR_NAME, LogOptions
from geminga_broker.log.position_info import (
    NO_LEDGER,
    CursorSnapshot,
    read_cursor_info,
)
from geminga_broker.log.salvage import CONSEQUENCE, last_state, open_salvaged
from geminga_broker.metrics.log_meter import CursorMeter
from geminga_protocol.ids import Position
from geminga_protocol.managed_ledger import (
    decode_cursor_info,
    encode_position_info,
)
from geminga_protocol.pb.managed_ledger_pb2 import ManagedCursorInfo, PositionInfo
from geminga_protocol.topic_name import url_encode
from geminga_runtime.metadata.api import MetadataError, MetadataStore

_log = logging.getLogger(__name__)

SIDE_LEDGERS = "#pulsar.internal.geminga.side-ledgers"
"""The cursor property that lists them; Apache's broker hides properties with this prefix."""


LEFTOVERS = "#pulsar.internal.geminga.leftover-ledgers"
"""The cursor property that lists ledgers which may still exist, to be deleted."""

LEFTOVERS_MAX = 64
"""With so many the cursor gets no new ledger until some are deleted."""


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
        self,
        key: CursorKey,
        client: BookkeeperClient,
        store: MetadataStore,
        options: LogOptions,
        owner: str | None = None,
        verify: Verify | None = None,
    ) -> None:
        """`owner` is the log's (`LogCatalog.owner`). `verify` raises if the log isn't ours; it is
        asked before the node gets a new ledger or properties, since Apache's broker that takes a
        log over changes the log's node, not yet those of cursors.
        """
        self.key = key
        self.cursor_properties: dict[str, str] = {}
        self.side_ledgers: tuple[int, ...] = ()
        """Ledgers of the cursor's `SnapshotLog`."""
        self.last_active_ms = options.now_ms()
        """When the cursor was last used; written with the next change of its node."""
        self._leftovers: dict[int, bool] = {}
        """By id, whether the ledger certainly is ours: those that a node listed at loading may be
        gone, or of another."""
        self._named = True
        """Whether the last new ledger is known to be ours, and to stay."""
        self._client = client
        self._store = store
        self._node = CursorNode(key.path, store, owner)
        self._verify = verify
        self._read: ManagedCursorInfo | None = None
        self._options = options
        self._ledger_id = NO_LEDGER
        self._writer: LedgerWriter | None = None
        self._opened_s = 0.0
        self.meter = CursorMeter()

    async def read(self) -> None:
        """Read the node. Raises MetadataError."""
        self._read = await self._node.read()

    async def load(self, verify: Verify | None = None) -> CursorSnapshot | None:
        """Claim the cursor, and return its last durable state; None if there is no such cursor. A
        ledger left open is recovered. Raises LogFenced, BookkeeperError, MetadataError.

        `verify` raises if the log isn't ours; between `read` and this it was asked. If the ledger
        is missing or empty, the node's older state is used, so messages may be redelivered. Instead
        of a damaged state the one before is used.
        """
        if self._read is None:
            await self.read()
        # The claim comes first: then no former owner's write comes behind what is read next.
        info = await self._node.claim(self._read, verify)
        self._read = None
        if info is None:
            return None
        self._ledger_id = info.cursorsLedgerId
        self.cursor_properties = {entry.name: entry.value for entry in info.cursorProperties}
        self.cursor_properties.pop(OWNER, None)
        self.side_ledgers = _ids(self.cursor_properties.pop(SIDE_LEDGERS, ""))
        leftovers = _ids(self.cursor_properties.pop(LEFTOVERS, ""))
        self._leftovers = dict.fromkeys(leftovers, False)
        if info.cursorsLedgerId == NO_LEDGER:
            return read_cursor_info(info)
        try:
            reader = await open_salvaged(
                self._client,
                info.cursorsLedgerId,
                self._options.durability.password,
                f"log={self.key.log_name} cursor={self.key.cursor_name}: {CONSEQUENCE}",
            )
        except NoSuchLedger:
            _log.warning("log=%s cursor=%s: its ledger %d is gone", *self.key, info.cursorsLedgerId)
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
    def written(self) -> Position | None:
        """The last confirmed entry of the open ledger; None without one."""
        writer = self._writer
        return None if writer is None else Position(writer.ledger_id, writer.last_add_confirmed)

    @property
    def ledger_ids(self) -> list[int]:
        """All ledgers of the cursor."""
        state = (self._ledger_id,) if self.has_ledger else ()
        return [*state, *self.side_ledgers]

    @property
    def has_ledger(self) -> bool:
        """Whether the state is in a ledger, open or closed."""
        return self._ledger_id != NO_LEDGER

    @property
    def is_closed(self) -> bool:
        """Whether the state is in the node only."""
        return self._ledger_id == NO_LEDGER and self._node.exists

    def append(
        self, infos: Sequence[PositionInfo], done: Callable[[BookkeeperError | None], None]
    ) -> None:
        """Write the state to the open ledger, and call `done`. Only if `has_room`."""
        writer = self._writer
        assert writer is not None

        def finished(error: BookkeeperError | None) -> None:
            if error is not None and self._writer is writer:
                self._writer = None
            self.meter.wrote(encoded, error)
            done(error)

        encoded = _encoded(infos)
        append_whole(writer, encoded, finished)

    async def write_to_new_ledger(self, infos: Sequence[PositionInfo]) -> None:
        """Write the state to a new ledger and make that the cursor's. Durable on return. Raises
        LogFenced if another broker changed the cursor, BookkeeperError, MetadataError.
        """
        if len(self._leftovers) >= LEFTOVERS_MAX:
            await self._make_room()
        options = self._options.durability.ledger_options(*self.key)
        writer = await self._client.create(options, unnamed=True)
        ledger_id = writer.ledger_id
        try:
            encoded = _encoded(infos)
            await append_durably(writer, encoded)
            self.meter.wrote(encoded, None)
        except BookkeeperError as error:
            self.meter.wrote((), error)
            await self._client.unnamed.abandon(ledger_id)  # noqa: ASYNC120
            raise
        info = infos[-1]
        # Until both writes are known to be done, it is uncertain whether the node names it.
        self._leftovers[ledger_id] = True
        await self._ask()
        await self._put(
            ManagedCursorInfo(
                cursorsLedgerId=ledger_id,
                markDeleteLedgerId=info.ledgerId,
                markDeleteEntryId=info.entryId,
            )
        )
        self._named = False
        await self._client.unnamed.name(ledger_id)
        self._named = True
        self._writer = writer
        self._opened_s = trio.current_time()
        await self._replace_ledger(ledger_id)

    async def write_closed(self, info: ManagedCursorInfo) -> None:
        """Write the state to the node, and delete the ledger. Raises LogFenced, MetadataError."""
        await self._put(info)
        self._writer = None
        await self._replace_ledger(NO_LEDGER)

    def drop_side_ledgers(self, ids: Collection[int]) -> None:
        """Count these side ledgers as leftovers from the next write of the node on."""
        self._leftovers.update(dict.fromkeys((n for n in self.side_ledgers if n in ids), False))
        self.side_ledgers = tuple(n for n in self.side_ledgers if n not in ids)

    async def write_properties(self, mark_delete: Position) -> None:
        """Write `cursor_properties` to the node, not the state. Raises LogFenced, MetadataError."""
        await self._ask()
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

    async def remove(self, listed: Callable[[Sequence[int]], Awaitable[None]]) -> None:
        """Delete the node. `listed` gets the ledgers that it names or lists, which are to be
        deleted then; it is called before, and again if the node changes meanwhile. It raises
        LogFenced if the log isn't ours. Idempotent. Raises LogFenced, MetadataError.
        """

        async def found(info: ManagedCursorInfo) -> None:
            await listed(sorted(ledgers_in(info)))

        await self._node.remove(found)
        self._writer = None

    async def take_back(self) -> None:
        """Delete the node that was just made, unless another broker changed it. Raises
        MetadataError.
        """
        await self._node.take_back()

    @property
    def _is_written(self) -> bool:
        """Whether the last write of the node succeeded in whole."""
        return self._node.is_ours and self._named

    @property
    def has_leftovers(self) -> bool:
        """Whether ledgers are to be deleted."""
        return bool(self._leftovers)

    async def find_leftovers(self) -> bool:
        """Whether there are any of the ledgers that the node listed when it was loaded. If there
        are, it must be written before they are deleted. Raises MetadataError.
        """
        log_name, cursor_name = self.key
        name = cursor_name.encode()
        for ledger_id, is_ours in list(self._leftovers.items()):
            if is_ours:
                continue
            try:
                about = (await self._client.metadata(ledger_id)).custom_metadata
            except NoSuchLedger:
                self._leftovers.pop(ledger_id, None)
                continue
            # Ledgers of other brokers may not tell.
            if not is_own(about, log_name) or about.get(CURSOR_NAME, name) != name:
                _log.warning("log=%s cursor=%s: ledger %d is not its own", *self.key, ledger_id)
                self._leftovers.pop(ledger_id, None)
            else:
                self._leftovers[ledger_id] = True
        return not self._is_written and self.has_leftovers

    async def delete_leftovers(self) -> None:
        """Delete ledgers that the node certainly doesn't name. Raises MetadataError."""
        if self._is_written:
            await self._delete_leftovers(self._ledger_id)

    async def _delete_leftovers(self, named: int) -> None:
        for ledger_id, is_ours in list(self._leftovers.items()):
            if is_ours and ledger_id not in (named, *self.ledger_ids):
                await self._client.delete(ledger_id)
                self._leftovers.pop(ledger_id, None)

    async def _make_room(self) -> None:
        """Delete leftovers after many writes of the node whose outcome is unknown."""
        await self.find_leftovers()
        node = await self._store.get(self.key.path)
        info = ManagedCursorInfo() if node is None else decode_cursor_info(node.value)
        await self._delete_leftovers(info.cursorsLedgerId)

    async def _replace_ledger(self, ledger_id: int) -> None:
        """The node names this ledger now. A failure to delete the old one is logged."""
        self._leftovers.pop(ledger_id, None)
        old, self._ledger_id = self._ledger_id, ledger_id
        if old != NO_LEDGER:
            self._leftovers[old] = True
        try:
            await self.delete_leftovers()
        except MetadataError as error:
            _log.warning("log=%s cursor=%s: ledger %d isn't deleted yet: %s", *self.key, old, error)

    async def _ask(self) -> None:
        if self._verify is not None:
            await self._verify()

    async def _put(self, info: ManagedCursorInfo) -> None:
        info.lastActive = self.last_active_ms
        leftovers = {*self._leftovers, self._ledger_id} - {NO_LEDGER, info.cursorsLedgerId}
        ours = {SIDE_LEDGERS: list(self.side_ledgers), LEFTOVERS: sorted(leftovers)}
        for name, text in self.cursor_properties.items():
            if name not in ours:
                info.cursorProperties.add(name=name, value=text)
        for name, ids in ours.items():
            if ids:
                info.cursorProperties.add(name=name, value=",".join(map(str, ids)))
        try:
            await self._node.write(info)
        except (MetadataError, LogFenced):
            self.meter.node_failures += 1
            raise
        self.meter.node_writes += 1
        self._named = True


def _ids(listed: str) -> tuple[int, ...]:
    return tuple(int(text) for text in listed.split(",") if text.isdecimal())


def ledgers_in(info: ManagedCursorInfo) -> set[int]:
    """All ledgers that a cursor's node names or lists."""
    found = {info.cursorsLedgerId} - {NO_LEDGER}
    for entry in info.cursorProperties:
        if entry.name in (SIDE_LEDGERS, LEFTOVERS):
            found.update(_ids(entry.value))
    return found


def _encoded(infos: Sequence[PositionInfo]) -> list[tuple[bytes]]:
    return [(encode_position_info(info),) for info in infos]


async def cursor_names(store: MetadataStore, log_name: str) -> list[str]:
    """Encoded names of a log's stored cursors."""
    return list(await store.children(f"{ROOT}/{log_name}"))


async def ledgers_of_cursor(store: MetadataStore, path: str) -> set[int]:
    """Ledgers that the cursor's node there names or will delete. Raises MetadataError."""
    node = await store.get(path)
    return set() if node is None else ledgers_in(decode_cursor_info(node.value))
