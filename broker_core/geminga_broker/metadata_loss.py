"""Metadata of a standalone that are older than its bookie's data: told at the start, and accepted
only on request.

A ledger's id is on disk in the metadata before the ledger takes an entry. So a bookie that holds a
higher one than was ever given out tells that the metadata are those of an earlier time: ledgers
made since would be taken for garbage, and their ids given out again.
"""

from __future__ import annotations

from pathlib import Path

import trio

from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.options import LedgerIdCheck
from geminga_broker.data_dir import METADATA_FILE, DataDirUnusable, missing_metadata
from geminga_broker.standalone_parts import (
    METADATA_LOSS_ADVICE,
    StandaloneOptions,
    bookie_options,
)
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.embedded import EmbeddedStore
from geminga_runtime.metadata.integrity.aside import set_aside
from geminga_runtime.metadata.integrity.check import StoreDamaged
from geminga_runtime.metadata.sqlite import SqliteMetadataStore


def _parent() -> str:
    return paths.id_generator().rpartition("/")[0]


def ledger_id_check(store: EmbeddedStore, data_dir: Path | None) -> LedgerIdCheck:
    """The check of a start; it changes nothing. Raises DataDirUnusable, MetadataError."""

    async def check(highest: int) -> None:
        given = await store.next_number(_parent())
        if highest >= given:
            file = METADATA_FILE if data_dir is None else data_dir / METADATA_FILE
            raise DataDirUnusable(
                f"{file} is older than the bookie's data beside it, which have ledger {highest}, "
                f"while the metadata have given out ids below {given} only: {METADATA_LOSS_ADVICE}"
            )

    return check


async def accept_metadata_loss(options: StandaloneOptions) -> list[str]:
    """Let a standalone that isn't running start with the metadata that are there, or with what can
    be saved of them. Returns what was accepted, as sentences. Killed in between, it can be
    repeated. Raises DataDirUnusable, StoreOpenError, DataDirError, MetadataError.
    """
    assert options.data_dir is not None
    file = options.data_dir / METADATA_FILE
    said: list[str] = []
    if missing := missing_metadata(options.data_dir):
        said.append(missing)
    elif not file.exists() and not any(options.data_dir.glob(f"{METADATA_FILE}[-.]*")):
        raise DataDirUnusable(f"{file} is not there")  # nothing is made here
    try:
        store = await SqliteMetadataStore.open(file)
    except StoreDamaged as error:
        said.append(str(error))
        said += await trio.to_thread.run_sync(set_aside, file)
        store = await SqliteMetadataStore.open(file)
    ids = SkippedIds(store)
    try:
        # Without a list of ledgers it collects nothing.
        bookie = bookie_options(options)
        async with open_bookie(bookie, metadata=store, check_ids=ids.skip, adopts_unknown=True):
            return said + ids.said
    finally:
        await store.aclose()


class SkippedIds:
    """Lets the ids of ledgers that the metadata don't know be skipped for ever."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.said: list[str] = []
        """What was skipped, as sentences."""

    async def skip(self, highest: int) -> None:
        """In the place of the check. Raises MetadataError."""
        given = await self._store.next_number(_parent())
        # Those of ledgers too that the bookie has nothing of: the number itself may be lost.
        named = {each async for each in LedgerMetadataStore(self._store).ids()}
        await self._store.skip_numbers(_parent(), max(highest, *named, -1) + 1)
        first = next((each for each in range(given, highest + 1) if each not in named), None)
        if first is not None:
            self.said.append(
                f"ledgers {first} to {highest} are unknown to the metadata: their ids are not used "
                "again, and what the bookie has of them is deleted at its next collection"
            )
