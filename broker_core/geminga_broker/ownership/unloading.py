"""Bundles that this broker gives up, by request or because it lost them (spec CL-11; Apache's
OwnedBundle and NamespaceService).

The order of an unload: mark the bundle's node as disabled, so that nobody finds the bundle here nor
takes it; close its topics; remove the node; let the next owner, if it is known, take the bundle;
tell the clients to leave, and where to. What a kill interrupts ends with the session.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import trio

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.topic.moving import NOWHERE, Moving
from geminga_runtime.background import side_by_side
from geminga_runtime.metadata.api import MetadataError

_log = logging.getLogger(__name__)

RELEASE_RETRY_S = 0.5
HANDOVER_S = 5.0
"""How long the next owner may take before the clients are told to look up anew."""

LOST_AT_ONCE_MAX = 64
"""Lost bundles whose topics are closed at a time: one that hangs keeps no others waiting."""

SPLIT_S = 5.0
"""So long a broker that stops waits for bundles that are being split."""

UNLOADS_MAX = 8
"""Bundles that are given up at a time when the broker stops."""

Handover = Callable[[str, BundleId, list[str]], Awaitable[Addresses]]
"""Asks the broker with that id to own a bundle, whose topics these were; returns its addresses,
`NOWHERE` if it doesn't. Must not raise."""


class BundleTopics(Protocol):
    """The loaded topics: `cluster.loader.TopicLoader`."""

    def loaded_of(self, bundle: BundleId) -> list[str]:
        """The loaded topics of a bundle."""

    async def fence_bundle(self, bundle: BundleId) -> None:
        """Refuse the clients of the bundle's topics, before they are closed."""

    async def close_bundle(self, bundle: BundleId, moving: Moving | None = None) -> None:
        """Close the bundle's topics."""


class UnloadRunning(Exception):
    """The bundle is being unloaded already, or split."""


async def nobody(_broker_id: str, _bundle: BundleId, _topics: list[str]) -> Addresses:
    """A `Handover` for a broker that can't ask others."""
    await trio.lowlevel.checkpoint()
    return NOWHERE


class BundleUnloader:
    """Gives up bundles of one broker."""

    def __init__(
        self, ownership: BundleOwnership, topics: BundleTopics, *, timeout_s: float
    ) -> None:
        self._ownership = ownership
        self._topics = topics
        self.timeout_s = timeout_s
        """So long the closing of a bundle's topics may take."""
        self._kept: dict[BundleId, trio.Event] = {}
        """With what tells that its split is over."""
        self._running: set[trio.Event] = set()
        """Unloads that aren't over: several of one bundle, if it came back meanwhile."""
        self.handover: Handover = nobody

    @contextmanager
    def keep(self, bundles: Sequence[BundleId]) -> Iterator[None]:
        """In the block they are not unloaded: a bundle that is being split, and its parts. Raises
        UnloadRunning if one of them is being unloaded or split already.
        """
        for bundle in bundles:
            self._check(bundle)
        over = trio.Event()
        self._kept.update(dict.fromkeys(bundles, over))
        try:
            yield
        finally:
            for bundle in bundles:
                del self._kept[bundle]
            over.set()

    def _check(self, bundle: BundleId) -> None:
        if bundle in self._kept:
            raise UnloadRunning(f"bundle {bundle} is being split")
        if self._ownership.is_unloading(bundle):
            raise UnloadRunning(f"bundle {bundle} is being unloaded")

    async def unload(self, bundle: BundleId, destination: str = "") -> bool:
        """Give the bundle up; with `destination` to the broker with that id. Returns False if it
        isn't owned here. Ends even if cancelled. Topics that aren't closed in time are fenced, and
        closed afterwards, unless that is cancelled.

        Raises UnloadRunning.
        """
        self._check(bundle)
        if not self._ownership.holds(bundle):
            return False
        with trio.CancelScope(shield=True):
            are_closed = await self._unload(bundle, destination)
        if not are_closed:
            await self.lost([bundle])
        return True

    async def _unload(self, bundle: BundleId, destination: str) -> bool:
        """Returns whether all its topics are closed."""
        over = trio.Event()
        self._running.add(over)
        try:
            return await self._give_up(bundle, destination)
        finally:
            self._running.discard(over)
            over.set()

    async def _give_up(self, bundle: BundleId, destination: str) -> bool:
        began_s = trio.current_time()
        try:
            await self._ownership.disable(bundle)
        except MetadataError as error:
            # It is disabled here, and may be in the store: it must be given up now.
            _log.warning("bundle=%s can't be marked as being unloaded: %s", bundle, error)
        moving = Moving()
        names = self._topics.loaded_of(bundle)
        where = NOWHERE
        try:
            with trio.move_on_after(self.timeout_s) as scope:
                await self._topics.close_bundle(bundle, moving)
            if scope.cancelled_caught:
                _log.warning("bundle=%s not all topics were closed in time", bundle)
                await self._topics.fence_bundle(bundle)  # the next owner may serve them from now on
            await self._release(bundle)
            if destination:
                with trio.move_on_after(HANDOVER_S):
                    where = await self.handover(destination, bundle, names)
        finally:
            await moving.arrived(where)  # noqa: ASYNC102 - shielded there
        taken_s = trio.current_time() - began_s
        _log.info("bundle=%s unloaded with %d topics in %.3f s", bundle, len(names), taken_s)
        return not scope.cancelled_caught

    async def _release(self, bundle: BundleId) -> None:
        """Remove the node; while the store can't answer, again, until the session has ended."""
        while self._ownership.is_unloading(bundle) and self._ownership.has_session:
            try:
                await self._ownership.release(bundle)
            except MetadataError as error:
                _log.warning("bundle=%s can't be released yet: %s", bundle, error)
                await trio.sleep(RELEASE_RETRY_S)
            else:
                return

    async def unload_all(self) -> None:
        """Give up all bundles, several at a time: the broker stops. Those that are being split, and
        what they become, when that is over, or with the session if it takes long. If cancelled, the
        rest goes with the session.
        """
        await self._unload_owned()
        wait_until = trio.current_time() + SPLIT_S
        while self._kept:
            with trio.move_on_at(wait_until) as scope:
                await next(iter(self._kept.values())).wait()
            if scope.cancelled_caught:
                break
            await self._unload_owned()
        for over in list(self._running):  # what an operator or the load manager began
            await over.wait()

    async def _unload_owned(self) -> None:
        waiting = iter(self._ownership.owned())

        async def worker() -> None:
            for bundle in waiting:
                if self._ownership.holds(bundle) and bundle not in self._kept:
                    await self._unload(bundle, "")

        async with trio.open_nursery() as nursery:
            for _ in range(UNLOADS_MAX):
                nursery.start_soon(worker)

    async def lost(self, bundles: list[BundleId]) -> None:
        """The bundles belong to others, or to nobody: serve nothing of them from this moment on."""
        for bundle in bundles:
            await self._topics.fence_bundle(bundle)
        closing = [partial(self._topics.close_bundle, bundle) for bundle in bundles]
        await side_by_side(closing, LOST_AT_ONCE_MAX)
