"""The broker's node in the metadata store, by which others know that it is there (spec PX-03,
CL-07; Apache's LockManager and ResourceLockImpl as its load managers use them).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress

import trio

from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataError,
    MetadataStore,
    NoNode,
    StoreUnavailable,
)
from geminga_runtime.metadata.own_nodes import delete_own

REMOVE_S = 2.0
SAY_S = 60.0
"""Between two complaints of another broker with the same id."""

_log = logging.getLogger(__name__)


class Registration:
    """An ephemeral node of this process, with a value that changes. One call at a time."""

    def __init__(self, store: MetadataStore, path: str) -> None:
        self.path = path
        self._store = store
        self._epoch = -1
        self._version: int | None = None
        self._is_given_up = False

    @property
    def is_current(self) -> bool:
        """Whether the node was made in the store's present session."""
        return self._epoch == self._store.session.epoch

    @property
    def epoch(self) -> int:
        """The session in which the node was made last."""
        return self._epoch

    async def register(self, value: bytes) -> None:
        """Make the node anew in the present session: one that is there belongs to an earlier one,
        and would be deleted with it. Raises MetadataError.
        """
        epoch = self._store.session.epoch
        with suppress(NoNode):
            await self._store.delete(self.path)
        _, stat = await self._store.put(self.path, value, MUST_NOT_EXIST, epoch=epoch)
        self._epoch, self._version = epoch, stat.version

    async def update(self, value: bytes) -> None:
        """Change the value; the node is made anew if it is gone, or another's. Raises
        MetadataError: then the value may have been changed.
        """
        if self._version is None and self.is_current:
            await self._look()
        if self._version is None or not self.is_current:
            await self.register(value)
            return
        # Never without a version: a node that is gone would come back as a lasting one.
        version, self._version = self._version, None
        try:
            _, stat = await self._store.put(self.path, value, version)
        except (BadVersion, NoNode):
            stat = None
        except StoreUnavailable:
            raise
        except MetadataError:
            self._version = version  # it was refused
            raise
        if stat is not None and stat.created_by_self:
            self._version = stat.version
        else:
            _log.warning("%s was changed or removed by somebody else: made anew", self.path)
            await self.register(value)

    async def follow(self, broker_id: str, contested: Callable[[], None]) -> None:
        """Until cancelled: say when another process takes the node while this one's session lives,
        and call `contested`, so that the node is made anew and the other one says so too. Once a
        minute.
        """
        said_s = -math.inf
        async with self._store.watch(self.path) as changes:
            async for _ in changes:
                if trio.current_time() - said_s < SAY_S or not await self._is_anothers():
                    continue
                said_s = trio.current_time()
                _log.error(
                    "another broker that runs has the id of this one, %s: they take bundles from "
                    "each other; give each an advertisedAddress and webServicePort of its own",
                    broker_id,
                )
                contested()

    async def _is_anothers(self) -> bool:
        """Whether the node that this session made is one of another session now. A broker that was
        killed makes none, whatever its session is.
        """
        try:
            node = await self._store.get(self.path)
        except MetadataError:
            return False
        if node is None or self._is_given_up or not self.is_current:
            return False
        return node.stat.ephemeral and not node.stat.created_by_self

    async def _look(self) -> None:
        """Find out which version the node has, after a change without an answer."""
        node = await self._store.get(self.path)
        if node is not None and node.stat.created_by_self:
            self._version = node.stat.version

    async def remove(self) -> None:
        """Remove the node, unless it is another's: a broker that was stopped may have a successor
        of its own name by now. If the store doesn't answer, it goes with the session. Ends even if
        cancelled.
        """
        self._is_given_up = True
        with trio.move_on_after(REMOVE_S, shield=True), suppress(MetadataError):
            await delete_own(self._store, self.path)
