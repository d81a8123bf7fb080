"""The bookies that are registered now (spec BK-26, BK-27; Apache's ZKRegistrationClient)."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.api import MetadataStore


@dataclass(frozen=True, slots=True)
class Registered:
    """Ids of registered bookies. One that is not in it is lost, or restarts."""

    writable: frozenset[str]
    readonly: frozenset[str]

    def __contains__(self, bookie_id: object) -> bool:
        return bookie_id in self.writable or bookie_id in self.readonly

    def without(self, lost: frozenset[str]) -> Registered:
        """The others."""
        return Registered(self.writable - lost, self.readonly - lost)


async def read_registered(store: MetadataStore) -> Registered:
    """Read the registrations. A bookie whose mode changes registers in the new one before it leaves
    the old one: between two reads of the read-only ones it is never missed. Raises MetadataError.
    """
    before = await store.children(paths.readonly())
    writable = frozenset(await store.children(paths.available())) - {paths.READONLY}
    readonly = frozenset(await store.children(paths.readonly()))
    return Registered(writable, readonly.union(before) - writable)
