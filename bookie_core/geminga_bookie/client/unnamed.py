"""Ledgers that were made, and that no owner's metadata name yet (spec BR-04).

The sequential node that gave a ledger its id stays until the owner's metadata name the ledger, so
that a crash in between leaves a note of it. This costs no write: without a note the node would be
deleted at once. Apache's clients never look at these nodes.

Maker and cleaner exclude each other by the version of that node. The maker names the ledger, then
deletes the node in the version in which it was made, and uses the ledger only if that succeeded.
The cleaner first changes the node, and only then looks whether the ledger is named. Whichever of
the two writes comes first in the store's order, an entry that was acknowledged is in a ledger that
stays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from geminga_bookie.errors import MetadataConflict
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.api import BadVersion, MetadataStore, NoNode

UNNAMED = b"geminga: unnamed"
"""Value of the nodes of new ids that stay until their ledgers are named, if all ledgers are of one
owner; with several ones the owner's id follows.
"""

_MADE = 0
"""Version of the node that its maker knows."""

NOTES_LOOKED_AT_MAX = 10_000
"""Notes that one look reads; the oldest come first."""


class UnnamedLedgers:
    """Notes of ledgers on their way to a name. All methods raise MetadataError."""

    def __init__(
        self, store: MetadataStore, delete: Callable[[int], Awaitable[None]], owner: str = ""
    ) -> None:
        """`owner` tells ledgers whose names stand in one metadata store from those of others."""
        self.note = UNNAMED + f" {owner}".rstrip().encode()
        self._store = store
        self._delete = delete

    async def name(self, ledger_id: int) -> None:
        """The owner's metadata name the ledger now. Raises MetadataConflict if a cleaner was first:
        then the ledger must not be used.
        """
        try:
            await self._store.delete(_path(ledger_id), _MADE)
        except (BadVersion, NoNode):
            raise MetadataConflict(f"ledger {ledger_id} was given up as unnamed") from None

    async def abandon(self, ledger_id: int) -> None:
        """Delete a ledger that was never named, by its maker."""
        await self._delete(ledger_id)
        await self.forget(ledger_id)

    async def forget(self, ledger_id: int) -> None:
        """Drop the note of a ledger that doesn't exist. Idempotent."""
        try:
            await self._store.delete(_path(ledger_id))
        except NoNode:
            pass

    async def old(self, made_before_ms: int) -> list[tuple[int, int]]:
        """Id and version of each of the owner's notes made before then, among the first
        `NOTES_LOOKED_AT_MAX` ones.
        """
        directory, _, prefix = paths.id_generator().rpartition("/")
        found: list[tuple[int, int]] = []
        for name in list(await self._store.children(directory))[:NOTES_LOOKED_AT_MAX]:
            number = name.removeprefix(prefix)
            if number == name or not number.isdecimal():
                continue
            node = await self._store.get(f"{directory}/{name}")
            if node is None or node.value != self.note:
                continue  # another owner's, or of Apache's client, which deletes it itself
            if node.stat.ctime_ms < made_before_ms:
                found.append((int(number), node.stat.version))
        return found

    async def claim(self, ledger_id: int, version: int) -> bool:
        """Keep the maker from using the ledger. False if the note has changed or is gone."""
        try:
            await self._store.put(_path(ledger_id), self.note, version)
        except (BadVersion, NoNode):
            return False
        return True


def _path(ledger_id: int) -> str:
    return f"{paths.id_generator()}{ledger_id:010d}"
