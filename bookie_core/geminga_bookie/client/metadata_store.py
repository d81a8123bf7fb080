"""Ledger metadata in the metadata store, with BookKeeper's paths and format (spec BK-20, BK-27)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace

import trio

from geminga_bookie.client.api import DigestType, LedgerMetadata, LedgerState
from geminga_bookie.errors import MetadataConflict, NoSuchLedger
from geminga_protocol.bookkeeper import ledger_metadata, paths
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.pb.bookkeeper_metadata_pb2 import LedgerMetadataFormat
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataError,
    MetadataStore,
    NoNode,
    Write,
)

Naming = Callable[[int], Sequence[Write]]
"""What names a ledger of this id. Pure, and may be called in another thread."""


@dataclass(frozen=True, slots=True)
class VersionedMetadata:
    """Ledger metadata and its version, for compare-and-set."""

    metadata: LedgerMetadata
    version: int

    def closed(self, last_entry_id: int, length: int) -> LedgerMetadata:
        """The metadata of the closed ledger."""
        return replace(
            self.metadata, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length
        )


class LedgerMetadataStore:
    """Reads and writes ledger metadata. All methods also raise MetadataError."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._layout: paths.Layout | None = None
        """Once it is certain: the cluster's node names it, or a ledger was made by it."""

    async def path(self, ledger_id: int) -> str:
        """Of a ledger's node, by the cluster's layout."""
        return paths.ledger(ledger_id, await self._known_layout())

    async def _known_layout(self) -> paths.Layout:
        layout = self._layout
        if layout is None:
            node = await self._store.get(paths.LAYOUT)
            try:
                layout = paths.layout_of(None if node is None else node.value)
            except ValueError as error:
                raise MetadataError(str(error)) from None
            if node is not None:  # without one the cluster may be initialised later
                self._layout = layout
        return layout

    async def next_ledger_id(self, note: bytes = b"") -> int:
        """A new id: the number of a sequential node (ZkLedgerIdGenerator). With a note the node
        stays, for `UnnamedLedgers`.
        """
        path, _ = await self._store.put(
            paths.id_generator(),
            note,
            MUST_NOT_EXIST,
            epoch=None if note else self._store.session.epoch,
            sequential=True,
        )
        if not note:
            await self._store.delete(path)
        return int(path.rpartition("-")[2])

    async def create(self, metadata: LedgerMetadata) -> VersionedMetadata:
        """Raises MetadataConflict if the id is taken."""
        layout, value = await self._known_layout(), encode(metadata)
        path = paths.ledger(metadata.ledger_id, layout)
        try:
            _, stat = await self._store.put(path, value, MUST_NOT_EXIST)
        except BadVersion:
            raise MetadataConflict(f"ledger {metadata.ledger_id} exists") from None
        self._layout = layout
        return VersionedMetadata(metadata, stat.version)

    async def create_named(
        self, metadata: LedgerMetadata, naming: Naming
    ) -> tuple[VersionedMetadata, Sequence[int]]:
        """A ledger with a new id and the writes that name it, all or none; returns the versions of
        these writes. Raises MetadataConflict if the id is taken, BadVersion of one of the writes.
        """
        layout, value = await self._known_layout(), encode(metadata)

        def writes(ledger_id: int) -> Sequence[Write]:
            path = paths.ledger(ledger_id, layout)
            return [Write(path, value, MUST_NOT_EXIST), *naming(ledger_id)]

        try:
            ledger_id, versions = await self._store.put_numbered(paths.id_generator(), writes)
        except BadVersion as error:
            if (taken := paths.ledger_id(error.path)) is None:
                raise
            raise MetadataConflict(f"ledger {taken} exists") from None
        self._layout = layout
        return VersionedMetadata(metadata.numbered(ledger_id), versions[0]), versions[1:]

    async def read(self, ledger_id: int) -> VersionedMetadata:
        """Raises NoSuchLedger."""
        node = await self._store.get(await self.path(ledger_id))
        if node is None:
            raise NoSuchLedger(f"no ledger {ledger_id} in the metadata store")
        return VersionedMetadata(decode(ledger_id, node.value), node.stat.version)

    async def update(self, known: VersionedMetadata, changed: LedgerMetadata) -> VersionedMetadata:
        """Compare-and-set. Raises MetadataConflict if the metadata changed."""
        try:
            _, stat = await self._store.put(
                await self.path(changed.ledger_id), encode(changed), known.version
            )
        except (BadVersion, NoNode):
            raise MetadataConflict(f"metadata of ledger {changed.ledger_id} changed") from None
        return VersionedMetadata(changed, stat.version)

    async def delete(self, ledger_id: int) -> None:
        """Idempotent."""
        try:
            await self._store.delete(await self.path(ledger_id))
        except NoNode:
            pass

    async def bookies(self) -> list[str]:
        """Ids of the bookies that have a cookie here."""
        return list(await self._store.children(paths.cookies()))

    async def ids(self) -> AsyncGenerator[int, None]:
        """Ids of all ledgers in the tree; ones created meanwhile may be missing."""
        pending = [paths.ROOT]
        while pending:
            parent = pending.pop()
            directories: list[str] = []
            for name in await self._store.children(parent):
                path = f"{parent}/{name}"
                ledger_id = paths.ledger_id(path)
                if ledger_id is not None:
                    yield ledger_id
                elif name.isdigit():
                    directories.append(path)
            pending.extend(reversed(directories))
            await trio.lowlevel.checkpoint()


def encode(metadata: LedgerMetadata) -> bytes:
    """The metadata in format version 3."""
    info = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        ackQuorumSize=metadata.ack_quorum,
        length=metadata.length,
        state=metadata.state.name,
        digestType=metadata.digest_type.name,
        password=metadata.password,
        ctime=metadata.ctime_ms,
    )
    if metadata.state is LedgerState.CLOSED:
        info.lastEntryId = metadata.last_entry_id
    for first_entry_id, bookies in sorted(metadata.ensembles.items()):
        info.segment.add(firstEntryId=first_entry_id, ensembleMember=bookies)
    for key, value in metadata.custom_metadata.items():
        info.customMetadata.add(key=key, value=value)
    return ledger_metadata.serialise(info)


def decode(ledger_id: int, value: bytes) -> LedgerMetadata:
    """Raises RemoteProtocolError for an invalid value."""
    info = ledger_metadata.parse(value)
    state = LedgerState(info.state)
    found = LedgerMetadata(
        ledger_id=ledger_id,
        ensemble_size=info.ensembleSize,
        write_quorum=info.quorumSize,
        ack_quorum=info.ackQuorumSize or info.quorumSize,
        state=state,
        last_entry_id=info.lastEntryId if state is LedgerState.CLOSED else -1,
        length=info.length,
        digest_type=DigestType(info.digestType),
        password=info.password,
        ensembles={segment.firstEntryId: tuple(segment.ensembleMember) for segment in info.segment},
        custom_metadata={entry.key: entry.value for entry in info.customMetadata},
        ctime_ms=info.ctime,
    )
    _check(found)
    return found


def _check(metadata: LedgerMetadata) -> None:
    """Raises RemoteProtocolError if entries can't be placed by this metadata."""
    size, write = metadata.ensemble_size, metadata.write_quorum
    if not 1 <= metadata.ack_quorum <= write <= size:
        raise RemoteProtocolError(
            f"ledger metadata have quorums {write} and {metadata.ack_quorum} of {size} bookies"
        )
    if 0 not in metadata.ensembles:
        raise RemoteProtocolError("ledger metadata have no bookies for the first entry")
    for first, bookies in metadata.ensembles.items():
        if len(bookies) != size:
            raise RemoteProtocolError(
                f"ledger metadata have {len(bookies)} instead of {size} bookies from entry {first}"
            )
