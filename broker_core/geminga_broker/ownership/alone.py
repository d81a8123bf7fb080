"""Placement without a load manager."""

from __future__ import annotations

from geminga_broker.ownership.brokers import ActiveBrokers
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.owned import BundleOwnership
from geminga_protocol.keys import bundle_hash


class EvenPlacement:
    """Spreads bundles over the registered brokers by a hash of their names, without a look at their
    load; the same at every broker that sees the same ones.
    """

    centralized = True

    def __init__(self, ownership: BundleOwnership, brokers: ActiveBrokers) -> None:
        self._ownership = ownership
        self._brokers = brokers

    async def choose(self, bundle: BundleId) -> str | None:
        """See `Placement.choose`: by the highest of the hashes of bundle and broker."""
        own = self._ownership.addresses.broker_id
        ids = await self._brokers.ids() or [own]
        return max(ids, key=lambda broker: bundle_hash(f"{broker} {bundle}"))
