"""A metadata store in memory, for tests and `--in-memory` (spec CL-01). Several sessions share
a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import (
    ANY_VERSION,
    Node,
    Notification,
    Session,
    SessionExpired,
    Stat,
    StoreUnavailable,
    Write,
    Writes,
)
from geminga_runtime.metadata.embedded import Listeners
from geminga_runtime.metadata.paths import check_path, split_path
from geminga_runtime.metadata.session import SessionTracker
from geminga_runtime.metadata.tree import (
    PERSISTENT,
    Put,
    Row,
    apply_delete,
    apply_numbered,
    apply_put,
    apply_skip,
    apply_writes,
    check_put,
    checked_writes,
)
from geminga_runtime.metadata.watches import WatchHub


class Publisher(Protocol):
    """Is told each change: `WatchHub`."""

    def publish(self, notifications: Sequence[Notification]) -> None:
        """The changes of one write."""


class _MemoryRows:
    """Rows of `tree` in dicts; the children of each node are kept as a dict of names."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {"/": Row(b"", 0, 0, 0)}
        self._children: dict[str, dict[str, None]] = {}
        self.hubs: list[Publisher] = []
        self.listeners = Listeners()
        self.sessions = 0

    def read(self, path: str) -> Row | None:
        return self._rows.get(path)

    def insert(self, path: str, row: Row) -> None:
        parent, name = split_path(path)
        self._rows[path] = row
        self._children.setdefault(parent, {})[name] = None

    def update(self, path: str, row: Row) -> None:
        self._rows[path] = row

    def remove(self, path: str) -> None:
        parent, name = split_path(path)
        del self._rows[path]
        names = self._children[parent]
        del names[name]
        if not names:
            del self._children[parent]

    def has_children(self, path: str) -> bool:
        return path in self._children

    def children(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))

    def owned_by(self, session: int) -> list[str]:
        return [path for path, row in self._rows.items() if row.owner == session]

    def publish(self, notifications: Sequence[Notification]) -> None:
        for hub in self.hubs:
            hub.publish(notifications)
        self.listeners.publish(notifications)


class MemoryMetadataStore:
    """One session on a tree in memory. Implements MetadataStore."""

    def __init__(self, *, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._clock_ms = clock_ms
        self._join(_MemoryRows())

    def _join(self, rows: _MemoryRows) -> None:
        self._rows = rows
        self._hub = WatchHub()
        self.watch = self._hub.watch
        self.listen = rows.listeners.listen
        self._tracker = SessionTracker()
        self.wait_change = self._tracker.wait_change
        self._closed = False
        self._available = True
        rows.hubs.append(self._hub)
        self._renew()

    def _renew(self) -> None:
        self._rows.sessions += 1
        self._session = PERSISTENT + self._rows.sessions

    @property
    def session(self) -> Session:
        """MetadataStore.session."""
        return self._tracker.session

    def another_session(self) -> MemoryMetadataStore:
        """Another session on the same tree, as another process would have."""
        other = MemoryMetadataStore(clock_ms=self._clock_ms)
        other._join(self._rows)
        return other

    def set_available(self, available: bool) -> None:
        """Lose or restore the connection: while it is lost, all calls raise StoreUnavailable."""
        if available != self._available:
            self._available = available
            if available:
                self._tracker.connect()
            else:
                self._tracker.suspend()

    def expire_session(self) -> None:
        """Simulate a lost session: delete its ephemeral nodes, and begin a new one when there is
        a connection.
        """
        self._tracker.lose()
        self._drop_ephemerals()
        self._renew()
        if self._available:
            self._tracker.connect()

    def _drop_ephemerals(self) -> None:
        for path in self._rows.owned_by(self._session):
            self.delete_now(path, ANY_VERSION)

    async def _enter(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise SessionExpired("the store is closed")
        if not self._available:
            raise StoreUnavailable("the store is set unavailable")

    async def get(self, path: str) -> Node | None:
        """MetadataStore.get."""
        check_path(path)
        await self._enter()
        return self.get_now(path)

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """MetadataStore.put."""
        request = self.put_request(path, value, expected_version, epoch, sequential)
        await self._enter()
        self.check_epoch(epoch)
        return self.put_now(request)

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        """MetadataStore.put_numbered."""
        await self._enter()
        return self.put_numbered_now(at, writes)

    async def put_all(self, writes: Sequence[Write]) -> Sequence[int]:
        """EmbeddedStore.put_all."""
        await self._enter()
        return self.put_all_now(writes)

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """MetadataStore.delete."""
        check_path(path)
        await self._enter()
        self.delete_now(path, expected_version)

    async def exists(self, path: str) -> bool:
        """MetadataStore.exists."""
        check_path(path)
        await self._enter()
        return self.get_now(path) is not None

    async def children(self, path: str) -> Sequence[str]:
        """MetadataStore.children."""
        check_path(path)
        await self._enter()
        return self.children_now(path)

    async def next_number(self, parent: str) -> int:
        """EmbeddedStore.next_number."""
        check_path(parent)
        await self._enter()
        row = self._rows.read(parent)
        return 0 if row is None else row.sequence

    async def skip_numbers(self, parent: str, number: int) -> None:
        """EmbeddedStore.skip_numbers."""
        check_path(parent)
        await self._enter()
        self._rows.publish(apply_skip(self._rows, parent, number, self._clock_ms()))

    # The same at once and whether available or not, for doors that bring delays of their own.

    def get_now(self, path: str) -> Node | None:
        """The node as it is."""
        row = self._rows.read(path)
        return None if row is None else Node(row.value, row.stat(self._session))

    def put_request(
        self,
        path: str,
        value: bytes,
        expected_version: int | None,
        epoch: int | None,
        sequential: bool,
    ) -> Put:
        """What `put_now` takes. Raises ValueError."""
        owner = PERSISTENT if epoch is None else self._session
        request = Put(path, bytes(value), expected_version, owner, sequential)
        check_put(request)
        return request

    def check_epoch(self, epoch: int | None) -> None:
        """Raises SessionExpired if it is another session's."""
        self._tracker.check_epoch(epoch)

    def put_now(self, request: Put) -> tuple[str, Stat]:
        """Raises as `put`."""
        made, row, heard = apply_put(self._rows, request, self._clock_ms())
        self._rows.publish(heard)
        return made, row.stat(self._session)

    def put_numbered_now(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        """Raises as `put_numbered`."""
        number, versions, heard = apply_numbered(self._rows, at, writes, self._clock_ms())
        self._rows.publish(heard)
        return number, versions

    def put_all_now(self, writes: Sequence[Write]) -> Sequence[int]:
        """Raises as `put_all`."""
        found = checked_writes(self._rows, writes)
        versions, heard = apply_writes(self._rows, found, self._clock_ms())
        self._rows.publish(heard)
        return versions

    def delete_now(self, path: str, expected_version: int | None) -> None:
        """Raises as `delete`."""
        self._rows.publish(apply_delete(self._rows, path, expected_version))

    def children_now(self, path: str) -> Sequence[str]:
        """Raises as `children`."""
        return self._rows.children(path)

    async def aclose(self) -> None:
        """MetadataStore.aclose."""
        if not self._closed:
            self._closed = True
            self._rows.hubs.remove(self._hub)
            self._drop_ephemerals()
            self._tracker.close()
            self._hub.close()
        await trio.lowlevel.checkpoint()
