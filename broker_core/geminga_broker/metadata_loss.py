"""Metadata of a standalone that are older than its bookie's data, or newer, or damaged: told at the
start, and accepted only on request.

A ledger's id is on disk in the metadata before the ledger takes an entry. So a bookie that holds a
higher one than was ever given out tells that the metadata are those of an earlier time: ledgers
made since would be taken for garbage, and their ids given out again.

The other way round, each start makes a journal with a number of its own, and then notes it in the
metadata. A bookie whose newest journal has a lower number is one of before.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_broker.data_dir import BOOKIE_DIRECTORY, METADATA_FILE, DataDirUnusable
from geminga_broker.standalone_parts import METADATA_LOSS_ADVICE
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.api import StoreUnavailable
from geminga_runtime.metadata.embedded import EmbeddedStore

JOURNAL_NODE = "/geminga/journal"


def _parent() -> str:
    return paths.id_generator().rpartition("/")[0]


class DataAge:
    """The checks of a start; a refused one changes nothing. All methods raise MetadataError too."""

    def __init__(self, store: EmbeddedStore, data_dir: Path | None) -> None:
        self._store = store
        self._directory = Path() if data_dir is None else data_dir

    async def check(self, highest_ledger: int, journal: int) -> None:
        """AgeCheck.check. Raises DataDirUnusable."""
        file = self._directory / METADATA_FILE
        given = await self._store.next_number(_parent())
        if highest_ledger >= given:
            raise DataDirUnusable(
                f"{file} is older than the bookie's data beside it, which have ledger "
                f"{highest_ledger}, while the metadata have given out ids below {given} only: "
                f"{METADATA_LOSS_ADVICE}"
            )
        noted = await noted_journal(self._store)
        if journal < noted:
            raise DataDirUnusable(
                f"{self._directory / BOOKIE_DIRECTORY} is older than {file}: its newest journal is "
                f"number {journal}, while the metadata know of {noted}; messages that came since "
                f"are lost: {METADATA_LOSS_ADVICE}"
            )

    async def started(self, journal: int) -> None:
        """AgeCheck.started."""
        with suppress(StoreUnavailable):  # a full disk: the next start notes it
            await self._store.put(JOURNAL_NODE, b"%d" % journal)


async def noted_journal(store: EmbeddedStore) -> int:
    """The newest journal of which the metadata know; 0 if there is none. Raises MetadataError."""
    node = await store.get(JOURNAL_NODE)
    return int(node.value) if node is not None and node.value.isdigit() else 0


class AcceptedAge:
    """Lets the ids of ledgers that the metadata don't know be skipped for ever, and what the bookie
    lacks be forgotten. All methods raise MetadataError.
    """

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.said: list[str] = []
        """What was skipped, as sentences."""

    async def check(self, highest_ledger: int, journal: int) -> None:
        """AgeCheck.check."""
        await self._skip(highest_ledger)
        noted = await noted_journal(self._store)
        if journal < noted:
            self.said.append(
                f"the bookie's data are those of journal {journal}, {noted - journal} before what "
                "the metadata know of: ledgers that came since are gone, and topics that name them "
                "fail until what is lost is skipped or they are deleted"
            )

    async def started(self, journal: int) -> None:
        """AgeCheck.started."""
        await self._store.put(JOURNAL_NODE, b"%d" % journal)

    async def _skip(self, highest: int) -> None:
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
