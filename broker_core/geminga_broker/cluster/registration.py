"""The broker's node in the metadata store, by which others know that it is there (spec PX-03,
CL-07; Apache's LockManager and ResourceLockImpl as its load managers use them).
"""

from __future__ import annotations

import logging
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

_log = logging.getLogger(__name__)


class Registration:
    """An ephemeral node of this process, with a value that changes. One call at a time."""

    def __init__(self, store: MetadataStore, path: str) -> None:
        self.path = path
        self._store = store
        self._epoch = -1
        self._version: int | None = None

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
        with trio.move_on_after(REMOVE_S, shield=True), suppress(MetadataError):
            await delete_own(self._store, self.path)
