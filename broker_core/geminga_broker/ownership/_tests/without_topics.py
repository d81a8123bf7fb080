"""A broker whose bundles have no topics."""

from __future__ import annotations

from geminga_broker.ownership.bundle import BundleId
from geminga_broker.topic.moving import Moving


class NoTopics:
    """What `BundleUnloader` closes."""

    def loaded_of(self, bundle: BundleId) -> list[str]:
        """None."""
        return []

    async def fence_bundle(self, bundle: BundleId) -> None:
        """Never needed: what is closed in time isn't fenced."""
        raise AssertionError

    async def close_bundle(self, bundle: BundleId, moving: Moving | None = None) -> None:
        """At once."""
