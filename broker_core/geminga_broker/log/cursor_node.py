"""A cursor's ManagedCursorInfo in the metadata store: claimed by one broker, and changed by
compare-and-set only (spec BR-05, CL-04; decision 36).
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

from geminga_broker.log.api import LogFenced
from geminga_protocol.managed_ledger import decode_cursor_info, encode_cursor_info
from geminga_protocol.pb.managed_ledger_pb2 import ManagedCursorInfo
from geminga_runtime.metadata.api import MUST_NOT_EXIST, BadVersion, MetadataStore, NoNode

OWNER = "#pulsar.internal.geminga.owner"
"""The cursor property that says who wrote the node, as `catalog.OWNER_PROPERTY`. Apache's broker
hides properties with this prefix, and keeps them.
"""

CLAIMS_MAX = 16
"""A former owner may write the node so often while it is claimed."""

Verify = Callable[[], Awaitable[None]]
"""Raises LogFenced if another broker has claimed the log, MetadataError."""


class CursorNode:
    """One node. One caller at a time, but for `remove`."""

    def __init__(self, path: str, store: MetadataStore, owner: str | None = None) -> None:
        """`owner` is the log's (`LogCatalog.owner`)."""
        self.path = path
        self.owner = uuid.uuid4().hex if owner is None else owner
        self.is_ours = False
        """Whether the last write here succeeded: the content is known, and a former owner can't
        write any more."""
        self._store = store
        self._version = MUST_NOT_EXIST
        self._attempted: bytes | None = None

    @property
    def exists(self) -> bool:
        """Whether it was read or written here."""
        return self._version != MUST_NOT_EXIST

    async def read(self) -> ManagedCursorInfo | None:
        """The node now, None if there is none. Raises MetadataError."""
        node = await self._store.get(self.path)
        if node is None:
            self._version = MUST_NOT_EXIST
            return None
        self._version = node.stat.version
        return decode_cursor_info(node.value)

    async def claim(
        self, info: ManagedCursorInfo | None, verify: Verify | None = None
    ) -> ManagedCursorInfo | None:
        """Write the node as it was read, so that a former owner's next write of it conflicts;
        returns what it has, or None if there is none any more. Raises LogFenced, MetadataError.

        The log must be ours at a time between the reading and the write: `verify` is asked after
        each further reading. Of two brokers that load a log the later one may so be made to claim a
        cursor again, but never loses it.
        """
        for _ in range(CLAIMS_MAX):
            if info is None:
                return None
            try:
                await self.write(info)
                return info
            except LogFenced:
                info = await self.read()  # noqa: ASYNC120
                if verify is not None:
                    await verify()  # noqa: ASYNC120
        raise LogFenced(f"{self.path} is changed by another broker again and again")

    async def write(self, info: ManagedCursorInfo) -> None:
        """Replace the content. Raises LogFenced if another broker changed it, MetadataError: then
        the outcome is unknown.
        """
        others = [entry for entry in info.cursorProperties if entry.name != OWNER]
        del info.cursorProperties[:]
        info.cursorProperties.extend(others)
        info.cursorProperties.add(name=OWNER, value=self.owner)
        value = encode_cursor_info(info)
        self.is_ours = False
        if self._attempted is not None:
            await self._settle(self._attempted)
        while True:
            try:
                _, stat = await self._store.put(self.path, value, self._version)
            except (BadVersion, NoNode):
                node = await self._store.get(self.path)  # noqa: ASYNC120
                same = node is not None and node.value in (value, self._attempted)
                # Another broker may have written the same, after it.
                if node is None or not same or node.stat.version != self._version + 1:
                    raise LogFenced(f"{self.path} was changed by another broker") from None
                # Our own earlier write, whose outcome was unknown, has succeeded.
                self._version = node.stat.version
            except BaseException:
                self._attempted = value
                raise
            else:
                self._version = stat.version
                self._attempted = None
                self.is_ours = True
                return

    async def remove(self, listed: Callable[[ManagedCursorInfo], Awaitable[None]]) -> None:
        """Delete the node; `listed` is called with its content before, and again if a write of ours
        that was under way changes it meanwhile. It must raise LogFenced if another broker has
        claimed the log: what was read before is ours then. Idempotent. Raises LogFenced,
        MetadataError.
        """
        while (node := await self._store.get(self.path)) is not None:
            info = decode_cursor_info(node.value)
            await listed(info)
            try:
                await self._store.delete(self.path, node.stat.version)
            except BadVersion:
                continue  # by a write that was under way
            except NoNode:
                pass
            break

    async def take_back(self) -> None:
        """Delete the node that the last write made, unless it was changed. Raises MetadataError."""
        try:
            await self._store.delete(self.path, self._version)
        except (BadVersion, NoNode):
            pass

    async def _settle(self, attempted: bytes) -> None:
        """Find out whether an earlier write has succeeded, while only one can have: of several
        nobody would know which. Raises MetadataError.
        """
        node = await self._store.get(self.path)
        is_ours = node is not None and node.value == attempted
        if node is not None and is_ours and node.stat.version == self._version + 1:
            self._version = node.stat.version
