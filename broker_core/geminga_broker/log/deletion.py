"""Deleting a whole log (spec BR-04).

One write marks the log's node as deleted, and takes all its ledgers from the chain to the list of
those to be deleted: from then on the deletion goes on, whoever does it. What else belongs to the
log is forgotten next, then its cursors, its ledgers, and at last its node. Every step may be done
again, also by another broker, which claims the log first. Of two only one removes the node, and
until then no log of that name can begin (decision 36).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from geminga_bookie.client import BookkeeperClient
from geminga_broker.log.api import LogFenced
from geminga_broker.log.catalog import ROOT, LogCatalog, delete_own
from geminga_broker.log.cursor_store import cursor_names, ledgers_in
from geminga_protocol.managed_ledger import decode_cursor_info
from geminga_runtime.metadata.api import BadVersion, MetadataStore, Node, NoNode

Forget = Callable[[str], Awaitable[None]]
"""Deletes what else belongs to the log of this name. Idempotent. Raises LogWriteFailed."""

DELETION_S = 60.0
"""A deletion that isn't done after this time was interrupted: it takes seconds."""


class LogEraser:
    """Erases logs whose deletion has begun."""

    def __init__(self, client: BookkeeperClient, store: MetadataStore) -> None:
        self.forget: Forget | None = None
        """Called when a deletion can't be undone any more, and before it is complete."""
        self._client = client
        self._store = store
        self._busy: dict[str, None] = {}

    @contextmanager
    def deleting(self, name: str) -> Iterator[None]:
        """The log's owner deletes it in this block."""
        self._busy[name] = None
        try:
            yield
        finally:
            self._busy.pop(name, None)

    def is_busy(self, name: str) -> bool:
        """Whether the log's owner is deleting it."""
        return name in self._busy

    async def erase(self, name: str, catalog: LogCatalog) -> None:
        """Delete what is left of a log that is marked as deleted. Raises LogFenced, LogWriteFailed,
        MetadataError: then do it again.
        """
        assert catalog.is_deleted
        cursors = await self._cursors_of(name)
        # What was found belongs to the deleted log, not to a later one of its name.
        await catalog.verify()
        if self.forget is not None:
            await self.forget(name)
        for path, node in cursors.items():
            for ledger_id in ledgers_in(decode_cursor_info(node.value)):
                await delete_own(self._client, name, ledger_id)
            try:
                await self._store.delete(path, node.stat.version)
            except NoNode:
                pass
            except BadVersion:
                raise LogFenced(f"{path} was changed by another broker") from None
        for ledger_id in catalog.deleting:
            await delete_own(self._client, name, ledger_id)
        await catalog.remove()
        await catalog.forget_deletion()

    async def _cursors_of(self, name: str) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for encoded in await cursor_names(self._store, name):
            path = f"{ROOT}/{name}/{encoded}"
            node = await self._store.get(path)
            if node is not None:
                found[path] = node
        return found
