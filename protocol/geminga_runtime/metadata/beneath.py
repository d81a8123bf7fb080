"""The part of a metadata store over another one that the other one answers for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import trio

from geminga_runtime.metadata.api import MetadataStore, Notification, Session
from geminga_runtime.metrics.store_times import StoreTimes, times_of


def lowest(store: MetadataStore) -> MetadataStore:
    """The store that answers in the end, beneath those that remember, time or choose."""
    while isinstance(store, SessionBeneath):
        store = store._beneath
    return store


def _session_of(store: MetadataStore) -> MetadataStore:
    """The store whose session is that of the stores above it."""
    return store._has_session if isinstance(store, SessionBeneath) else store


class SessionBeneath:
    """Watches, session and end of a `MetadataStore` are those of the one beneath."""

    def __init__(self, beneath: MetadataStore) -> None:
        self._beneath = beneath
        self._has_session = _session_of(beneath)
        """Asked often: without those between."""
        self.times: Sequence[StoreTimes] = times_of(beneath)
        """See `Timed`."""

    def watch(
        self, prefix: str, *, events_max: int = 1024
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Notification]]:
        """See `MetadataStore.watch`."""
        return self._beneath.watch(prefix, events_max=events_max)

    @property
    def session(self) -> Session:
        """See `MetadataStore.session`."""
        return self._has_session.session

    async def wait_change(self, epoch: int) -> Session:
        """See `MetadataStore.wait_change`."""
        return await self._beneath.wait_change(epoch)

    async def aclose(self) -> None:
        """See `MetadataStore.aclose`."""
        await self._beneath.aclose()
