"""What a broker does when its session with the metadata store is lost (spec CL-13, CL-01).

Another broker may own its bundles from then on, so it stops serving them. If no other broker was
registered when the store was last heard of, there is nobody who could: the topics that are loaded
go on, as the store may be away as a whole, and the bundles are claimed again when it is back. A
broker that was started meanwhile wins them then; what was confirmed is safe either way, since logs
and cursors have claims of their own.
"""

from __future__ import annotations

import logging

import trio

from geminga_broker.ownership.brokers import BROKERS_PATH, ActiveBrokers
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.owned import BundleOwnership, Exists
from geminga_broker.ownership.unloading import BundleUnloader
from geminga_runtime.metadata.api import Change, MetadataError, MetadataStore
from geminga_runtime.waiters import Wakeup

_log = logging.getLogger(__name__)

RETRY_S = 1.0


class HoldOver:
    """Decides what becomes of lost bundles."""

    def __init__(
        self,
        store: MetadataStore,
        ownership: BundleOwnership,
        brokers: ActiveBrokers,
        unloader: BundleUnloader,
        exists: Exists,
    ) -> None:
        self._store = store
        self._ownership = ownership
        self._brokers = brokers
        self._unloader = unloader
        self._exists = exists
        self._has_others = True
        """Whether other brokers were registered when the store was last asked."""
        self._kept: dict[BundleId, None] = {}
        self._wakeup = Wakeup()

    @property
    def kept(self) -> list[BundleId]:
        """Bundles whose loaded topics go on without an owner's node."""
        return list(self._kept)

    @property
    def may_serve(self) -> bool:
        """Whether what is loaded here may be used: no other broker can own it by now."""
        return self._ownership.has_session or not self._has_others

    async def lost(self, bundles: list[BundleId]) -> None:
        """They are no longer owned by this broker."""
        if self._ownership.has_session or self._has_others:
            await self._unloader.lost(bundles)
            return
        _log.warning(
            "no session with the metadata store, and there was no other broker: the topics that "
            "are loaded go on"
        )
        self._kept.update(dict.fromkeys(bundles))
        self._wakeup.set()

    async def run(self) -> None:
        """Look after the other brokers, and claim again what was kept, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_brokers)
            nursery.start_soon(self._claim_again)

    async def _follow_brokers(self) -> None:
        async with self._store.watch(BROKERS_PATH) as changes:
            await self._look()
            async for change in changes:
                if change.kind is not Change.MODIFIED:
                    await self._look()

    async def _look(self) -> None:
        try:
            others = set(await self._brokers.ids()) - {self._ownership.addresses.broker_id}
        except MetadataError:
            return  # what was seen last counts
        self._has_others = bool(others)

    async def _claim_again(self) -> None:
        while True:
            await self._wakeup.wait()
            while self._kept:
                bundle = next(iter(self._kept))
                try:
                    is_ours = await self._claim(bundle)
                except MetadataError:
                    self._kept[bundle] = self._kept.pop(bundle)  # the others come first
                    await trio.sleep(RETRY_S)
                    continue
                except Exception as error:
                    # A record that can't be read must not end the broker.
                    _log.error("bundle=%s is given up: %s: %s", bundle, type(error).__name__, error)
                    is_ours = False
                self._kept.pop(bundle, None)
                if not is_ours:
                    await self._unloader.lost([bundle])

    async def _claim(self, bundle: BundleId) -> bool:
        """Own it again, unless another broker does, or a split that the session's loss interrupted
        has replaced it: who looks for its topics then asks for the new bundles. Raises
        MetadataError.
        """
        if not await self._exists(bundle):
            return False
        owner = await self._ownership.take(bundle, self._exists)
        return owner is not None and owner.addresses == self._ownership.addresses
