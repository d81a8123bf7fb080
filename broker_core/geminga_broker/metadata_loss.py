"""Metadata of a standalone that are older than its bookie's data: told at the start, and accepted
only on request.

A ledger's id is on disk in the metadata before the ledger takes an entry. So a bookie that holds a
higher one than was ever given out tells that the metadata are those of an earlier time: ledgers
made since would be taken for garbage, and their ids given out again.
"""

from __future__ import annotations

from pathlib import Path

from geminga_bookie.options import LedgerIdCheck
from geminga_broker.data_dir import METADATA_FILE, DataDirUnusable
from geminga_broker.standalone_parts import METADATA_LOSS_ADVICE
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.embedded import EmbeddedStore


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


class SkippedIds:
    """Lets the ids of ledgers that the metadata don't know be skipped for ever."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.said: list[str] = []
        """What was skipped, as sentences."""

    async def skip(self, highest: int) -> None:
        """In the place of the check. Raises MetadataError."""
        given = await self._store.next_number(_parent())
        if highest >= given:
            await self._store.skip_numbers(_parent(), highest + 1)
            self.said.append(
                f"ledgers {given} to {highest} are unknown to the metadata: their ids are not used "
                "again, and what the bookie has of them is deleted at its next collection"
            )
