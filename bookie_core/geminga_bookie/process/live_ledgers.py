"""Which ledgers the cluster has, for garbage collection (spec BK-06, BK-27; Apache's
ScanAndCompareGarbageCollector with `verifyMetadataOnGC`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.api import MetadataError, MetadataStore, NoNode

_NEVER_THERE = f"{paths.ROOT}/nothing"


class LiveLedgers:
    """The ledgers in the metadata store. All methods raise MetadataError rather than to leave out
    what can't be read; then nothing is collected.
    """

    def __init__(self, store: MetadataStore, cluster_id: str) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._ledgers = LedgerMetadataStore(store)

    async def ids(self) -> AsyncIterator[int]:
        """Ids of all ledgers. A store that was emptied or prepared anew meanwhile, or whose layout
        isn't known, is refused: none of its ledgers would be found.
        """
        await self._catch_up()
        await self._check()
        async for ledger_id in self._ledgers.ids():
            yield ledger_id
        await self._check()

    async def exists(self, ledger_id: int) -> bool:
        """Whether a ledger is at the path of any layout."""
        for layout in paths.Layout:
            if await self._store.exists(paths.ledger(ledger_id, layout)):
                return True
        # The answer counts only if it came from the metadata of this cluster.
        await self._check()
        return False

    async def _catch_up(self) -> None:
        """A server of ZooKeeper may be behind the others, and not know the youngest ledgers, which
        are here already. It answers a change, also one that fails, when it has all earlier ones.
        """
        with suppress(NoNode):
            await self._store.delete(_NEVER_THERE)

    async def _check(self) -> None:
        node = await self._store.get(paths.INSTANCE_ID)
        found = "" if node is None else node.value.decode("utf-8", "replace")
        if found != self._cluster_id:
            raise MetadataError(
                f"the metadata store is of cluster {found or 'without id'}, not {self._cluster_id}"
            )
        layout = await self._store.get(paths.LAYOUT)
        if layout is None:
            raise MetadataError(f"the metadata store has no {paths.LAYOUT}")
        try:
            paths.layout_of(layout.value)
        except ValueError as error:
            raise MetadataError(str(error)) from None
