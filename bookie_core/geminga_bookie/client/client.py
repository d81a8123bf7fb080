"""The ledger client: creates, opens, recovers and deletes ledgers (spec BK-20, BK-23, BK-27)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import trio

from geminga_bookie.client.api import ClientOptions, LedgerMetadata, LedgerOptions, LedgerState
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.ledger_recovery import recover as recover_ledger
from geminga_bookie.client.metadata_store import LedgerMetadataStore, Naming, VersionedMetadata
from geminga_bookie.client.placement import choose_ensemble
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.client.unnamed import UnnamedLedgers
from geminga_bookie.errors import BookkeeperError, MetadataConflict, UnauthorizedAccess
from geminga_bookie.port import BookieInfo
from geminga_protocol.bookkeeper.digest import Digest
from geminga_runtime.background import side_by_side
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.logs import FewLines
from geminga_runtime.metadata.api import MetadataStore
from geminga_runtime.metadata.beneath import lowest

_log = logging.getLogger(__name__)

_ID_ATTEMPTS_MAX = 8
"""Attempts to find a free id; ids of ledgers that others put into the store are taken."""

_ALL_TAKEN = f"{_ID_ATTEMPTS_MAX} ledger ids in a row were taken"

UNNUMBERED = -1
"""The id of a ledger whose number isn't taken yet."""

_DIGESTS_KEPT_MAX = 256

_END_KEPT_BYTES_MAX = 64 * 1024
"""A last entry that a recovery has read is kept for the reader up to this size."""

SPACE_S = 5.0
"""How long a bookie may take to tell the room on its disks."""
SPACE_OF_ALL_S = 20.0
SPACES_AT_ONCE = 32

Describe = Callable[[Mapping[str, bytes]], Awaitable[Mapping[str, bytes]]]
"""Gets a new ledger's custom metadata; returns what is added to it. Raises MetadataError."""


class BookkeeperClient:
    """Creates, opens and deletes ledgers on the bookies of a directory. All methods also raise
    MetadataError.

    A nursery is for the replacement of bookies that fail while their ledger is written; without
    one, such a bookie ends its ledger. `describe` may add custom metadata to new ledgers. `owner`
    is the id of whose metadata name the ledgers; it is needed where others use the bookies too.
    """

    def __init__(
        self,
        bookies: BookieDirectory,
        store: MetadataStore,
        *,
        nursery: trio.Nursery | None = None,
        options: ClientOptions | None = None,
        describe: Describe | None = None,
        owner: str = "",
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._bookies = bookies
        self._nursery = nursery
        self._options = options or ClientOptions()
        self._describe = describe
        self._store = LedgerMetadataStore(store)
        self._lowest = lowest(store)
        self._now_ms = now_ms
        self._lines = FewLines(_log)
        self.unnamed = UnnamedLedgers(store, self._store.delete, owner)
        """Ledgers made by `create` with `unnamed` that no owner has named yet."""
        self._turns = itertools.count()
        """Which bookies are the first of a new ledger that has no id yet."""
        self._digests: dict[tuple[int, bytes], Digest] = {}
        self.delete = self._store.delete
        """Delete a ledger's metadata; bookies collect the entries later. Idempotent."""
        self.ledgers = self._store.ids
        """Ids of all ledgers in the metadata store."""

    async def create(self, options: LedgerOptions, *, unnamed: bool = False) -> LedgerWriter:
        """A new ledger. With `unnamed` it is one of `unnamed` until its owner's metadata name it:
        then call `unnamed.name`, or `unnamed.abandon`. Raises NotEnoughBookies, MetadataConflict.
        """
        options = await self._described(options)
        for _ in range(_ID_ATTEMPTS_MAX):
            ledger_id = await self._store.next_ledger_id(self.unnamed.note if unnamed else b"")
            try:
                known = await self._store.create(self._new_metadata(ledger_id, ledger_id, options))
            except BookkeeperError as error:
                if unnamed:
                    await self.unnamed.forget(ledger_id)  # noqa: ASYNC120
                if isinstance(error, MetadataConflict):
                    continue
                raise
            return self._writer(known)
        raise MetadataConflict(_ALL_TAKEN)

    def keeps_ledgers_in(self, store: MetadataStore) -> bool:
        """Whether ledgers are in that store, so that `create_named` can write there too."""
        return lowest(store) is self._lowest

    async def create_named(
        self, options: LedgerOptions, naming: Naming
    ) -> tuple[LedgerWriter, Sequence[int]]:
        """A new ledger and the writes that name it, all or none; returns the versions of these
        writes, which are to the store of the ledgers. Raises NotEnoughBookies, MetadataConflict,
        and BadVersion of one of the writes.
        """
        options = await self._described(options)
        for _ in range(_ID_ATTEMPTS_MAX):
            metadata = self._new_metadata(UNNUMBERED, next(self._turns), options)
            try:
                known, versions = await self._store.create_named(metadata, naming)
            except MetadataConflict:
                continue
            return self._writer(known), versions
        raise MetadataConflict(_ALL_TAKEN)

    async def _described(self, options: LedgerOptions) -> LedgerOptions:
        if not 1 <= options.ack_quorum <= options.write_quorum <= options.ensemble_size:
            raise ValueError("a ledger needs 1 <= ack quorum <= write quorum <= ensemble size")
        await self._bookies.check_writable(options.ensemble_size)
        if self._describe is None:
            return options
        more = await self._describe(options.custom_metadata)
        if not more:
            return options
        return replace(options, custom_metadata={**options.custom_metadata, **more})

    def _writer(self, known: VersionedMetadata) -> LedgerWriter:
        return LedgerWriter(
            known,
            self._digest(known.metadata),
            self._bookies,
            self._store,
            self._nursery,
            self._options,
            self._lines,
        )

    def _new_metadata(self, ledger_id: int, turn: int, options: LedgerOptions) -> LedgerMetadata:
        """`turn` says which bookies come first. Raises NotEnoughBookies."""
        ensemble = choose_ensemble(
            self._bookies.writable(),
            options.ensemble_size,
            turn,
            write_quorum=options.write_quorum,
            ack_quorum=options.ack_quorum,
            custom_metadata=options.custom_metadata,
            rules=self._bookies.rules(),
        )
        return LedgerMetadata(
            ledger_id=ledger_id,
            ensemble_size=options.ensemble_size,
            write_quorum=options.write_quorum,
            ack_quorum=options.ack_quorum,
            state=LedgerState.OPEN,
            last_entry_id=-1,
            length=0,
            digest_type=options.digest_type,
            password=options.password,
            ensembles={0: tuple(ensemble)},
            custom_metadata=dict(options.custom_metadata),
            ctime_ms=self._now_ms(),
        )

    async def open(self, ledger_id: int, password: bytes, *, recover: bool) -> LedgerReader:
        """Open for reading. With `recover` an unclosed ledger is fenced, recovered and closed first
        (BK-23). Raises NoSuchLedger, UnauthorizedAccess, UnknownLedgerState; DigestMismatch,
        NoSuchEntry if a damaged or lost entry prevents the recovery.
        """
        known = await self._store.read(ledger_id)
        if known.metadata.password != password:
            raise UnauthorizedAccess(f"wrong password for ledger {ledger_id}")
        digest = self._digest(known.metadata)
        end: bytes | None = None
        if recover:
            known, end = await recover_ledger(known, digest, self._store, self._bookies)
        handle = LedgerReader(
            known.metadata, digest, self._bookies, self._store, self._options.reads
        )
        if end is not None and len(end) <= _END_KEPT_BYTES_MAX:
            handle.take_end(end)
        if known.metadata.state is not LedgerState.CLOSED:
            await handle.read_last_add_confirmed()
        return handle

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Raises NoSuchLedger."""
        return (await self._store.read(ledger_id)).metadata

    async def bookies(self) -> list[str]:
        """Ids of the bookies that have a cookie, those that are away too, or take new entries
        (Apache's RegistrationClient.getAllBookies).
        """
        return sorted({*await self._store.bookies(), *self._bookies.writable()})

    async def space(self) -> dict[str, BookieInfo | None]:
        """The bytes of the ledger directories of each known bookie, also of those that take no
        entries; None for one that doesn't tell within SPACE_S. 0 of 0 is a bookie in memory.
        Raises MetadataError.
        """
        found: dict[str, BookieInfo | None] = dict.fromkeys(await self.bookies())

        async def ask(bookie_id: str) -> None:
            with suppress(BookkeeperError), trio.move_on_after(SPACE_S):
                info = await self._bookies.port(bookie_id).info()
                if not info.read_only and bookie_id not in self._bookies.writable():
                    # One of a cluster tells it by its registration, without a reason.
                    info = info._replace(read_only="it has registered as read-only")
                found[bookie_id] = info

        with trio.move_on_after(SPACE_OF_ALL_S):
            await side_by_side([partial(ask, each) for each in found], SPACES_AT_ONCE)
        return found

    def _digest(self, metadata: LedgerMetadata) -> Digest:
        """A cached digest for all ledgers of a kind and password, of which there are few."""
        key = (metadata.digest_type.value, metadata.password)
        digest = self._digests.get(key)
        if digest is None:
            if len(self._digests) >= _DIGESTS_KEPT_MAX:
                self._digests.clear()
            digest = self._digests[key] = Digest(*key)
        return digest
