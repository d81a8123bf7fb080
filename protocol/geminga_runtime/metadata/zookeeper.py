"""The metadata store of a cluster, on ZooKeeper 3.6 or newer (spec CL-01; Apache's
ZKMetadataStore). Needs the extra `zk`.

A change whose connection was lost has an unknown outcome: it raises StoreUnavailable and is never
sent again. Watches are ZooKeeper's persistent recursive ones. They are armed anew on each
connection; changes in between may have been missed, so that each watch gets LOST.
"""

# kazoo is of an extra.
# pyright: reportMissingImports=false

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import trio

try:
    from kazoo.exceptions import (
        BadVersionError,
        NodeExistsError,
        NoNodeError,
        NotEmptyError,
    )
    from kazoo.protocol.serialization import (
        Create,
        Create2,
        Delete,
        Exists,
        GetChildren,
        GetData,
        SetData,
        Transaction,
    )
    from kazoo.security import OPEN_ACL_UNSAFE
except ImportError as error:
    raise ImportError("ZooKeeper needs kazoo: pip install 'geminga[zk]'") from error

from geminga_runtime.metadata.api import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    NUMBER_DIGITS,
    BadVersion,
    Change,
    MetadataError,
    Node,
    NoNode,
    NotEmpty,
    Notification,
    Session,
    Stat,
    ValueTooLarge,
    Write,
    Writes,
)
from geminga_runtime.metadata.paths import check_path, parent_path
from geminga_runtime.metadata.session import SessionTracker
from geminga_runtime.metadata.tree import PERSISTENT, Put, check_put
from geminga_runtime.metadata.watches import WatchHub
from geminga_runtime.metadata.witness.handle import Witness
from geminga_runtime.metadata.zookeeper_link import AddWatch, RemoveWatches, stat_of
from geminga_runtime.metadata.zookeeper_session import LOST, ZooKeeperSession
from geminga_runtime.metadata.zookeeper_url import parse_url

_log = logging.getLogger(__name__)

SESSION_TIMEOUT_S = 30.0
"""Apache's `metadataStoreSessionTimeoutMillis`."""

REQUEST_BYTES_MAX = 0xFFFFF
"""Largest request that a server takes by default (its `jute.maxbuffer`)."""

_HEADER_BYTES = 64
"""Most of what a request holds beside path and value."""

_PATH_SHOWN = 200
"""Characters of a path in an error that says it is too long."""

_EPHEMERAL = 1
_SEQUENTIAL = 2
_CREATED, _DELETED, _MODIFIED = 1, 2, 3


def _unheard(_value: object, _error: Exception | None) -> None:
    """For a request whose answer says nothing."""


class ZooKeeperMetadataStore:
    """One session with an ensemble. Implements MetadataStore. Made by `open`."""

    def __init__(
        self, url: str, session_timeout_s: float, request_bytes_max: int, has_witness: bool = False
    ) -> None:
        parsed = parse_url(url)
        self._chroot = parsed.chroot
        self._request_bytes_max = request_bytes_max
        self._hub = WatchHub()
        self._calls = ZooKeeperSession(
            parsed.connect_string,
            session_timeout_s,
            connected=self._arm_all,
            changed=self._on_change,
            overflowed=self._on_overflow,
            witness=Witness(parsed.connect_string) if has_witness else None,
        )
        self._tracker: SessionTracker = self._calls.tracker
        self.wait_change = self._tracker.wait_change
        self._closed = False

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        has_witness: bool = False,
    ) -> ZooKeeperMetadataStore:
        """A session with `zk:host1:2181,host2/chroot`. The chroot is made with the first node.

        `request_bytes_max` is the servers' `jute.maxbuffer`. With a witness the session ends at
        once, not by its time-out, if this process is killed (decision 48). Raises ConfigError for
        the URL, StoreUnavailable if no server grants a session within its time-out.
        """
        store = cls(url, session_timeout_s, request_bytes_max, has_witness)
        await store._calls.open(session_timeout_s)
        return store

    @property
    def session(self) -> Session:
        """MetadataStore.session."""
        return self._tracker.session

    async def get(self, path: str) -> Node | None:
        """MetadataStore.get."""
        node = self._node(path)
        try:
            answer = await self._calls.read(GetData(node, None), len(node))
        except NoNodeError:
            return None
        value, stat = cast("tuple[bytes | None, tuple[int, ...]]", answer)
        return Node(bytes(value or b""), self._stat(stat))

    async def exists(self, path: str) -> bool:
        """MetadataStore.exists."""
        node = self._node(path)
        return await self._calls.read(Exists(node, None), len(node)) is not None

    async def children(self, path: str) -> Sequence[str]:
        """MetadataStore.children."""
        node = self._node(path)
        try:
            answer = await self._calls.read(GetChildren(node, None), len(node))
        except NoNodeError:
            return []
        return sorted(cast("list[str]", answer))

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """MetadataStore.put. A cancelled call may still take effect. Raises ValueTooLarge."""
        request = Put(path, bytes(value), expected_version, PERSISTENT, sequential)
        check_put(request)
        self._full(path, len(value))
        flags = (_EPHEMERAL if epoch is not None else 0) | (_SEQUENTIAL if sequential else 0)
        while True:
            try:
                if sequential or expected_version == MUST_NOT_EXIST:
                    return await self._create(request, flags, epoch)
                return await self._set(request, epoch)
            except NoNodeError:
                if expected_version is not None:
                    raise BadVersion(
                        f"{path}: expected version {expected_version}, found none"
                    ) from None
            except (BadVersionError, NodeExistsError):
                raise BadVersion(f"{path}: not of version {expected_version}") from None
            try:
                return await self._create(request, flags, epoch)
            except NodeExistsError:  # made by another since: write over it
                continue

    async def _set(self, put: Put, epoch: int | None) -> tuple[str, Stat]:
        version = -1 if put.expected_version is None else put.expected_version
        content = SetData(self._full(put.path), put.value, version)
        stat = await self._calls.change(content, len(put.value), epoch)
        return put.path, self._stat(cast("tuple[int, ...]", stat))

    async def _create(self, put: Put, flags: int, epoch: int | None) -> tuple[str, Stat]:
        """Raises NodeExistsError, unless sequential; behind 2^31 - 1 numbers would be negative."""
        node = self._full(put.path)
        content = Create2(node, put.value, OPEN_ACL_UNSAFE, flags)
        while True:
            try:
                answer = await self._calls.change(content, len(put.value), epoch)
            except NoNodeError:
                await self._make_parents(node)
            except NodeExistsError:
                if not put.sequential:
                    raise
                await self._skip_number(node)
            else:
                made, stat = cast("tuple[str, tuple[int, ...]]", answer)
                if put.sequential and made[len(node) :].startswith("-"):
                    self._calls.send(Delete(made, -1), _unheard)
                    raise MetadataError(f"{put.path}: ZooKeeper has no numbers for it any more")
                return made[len(self._chroot) :], self._stat(stat)

    async def _make_parents(self, node: str) -> None:
        missing = [parent_path(node)]
        while missing:
            content = Create2(missing[-1], b"", OPEN_ACL_UNSAFE, 0)
            try:
                await self._calls.change(content, len(node))
                missing.pop()
            except NodeExistsError:
                missing.pop()
            except NoNodeError:
                missing.append(parent_path(missing[-1]))

    async def _skip_number(self, node: str) -> None:
        """A node of the next number's name is there. The number is how many children were ever
        made, so one child more moves it.
        """
        parent = parent_path(node)
        content = Create2(
            f"{parent.rstrip('/')}/skipped-", b"", OPEN_ACL_UNSAFE, _EPHEMERAL | _SEQUENTIAL
        )
        made, _ = cast("tuple[str, object]", await self._calls.change(content, len(node)))
        await self._calls.change(Delete(made, -1), len(made))

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        """MetadataStore.put_numbered: the number as BookKeeper's `ZkLedgerIdGenerator` takes it,
        the writes as one `multi`. A cancelled call may still take effect. Raises ValueTooLarge.
        """
        epoch = self._tracker.session.epoch
        path, _ = await self.put(at, b"", MUST_NOT_EXIST, epoch=epoch, sequential=True)
        # Nobody waits for its end, and should it not come, the session's takes the node along.
        self._calls.send(Delete(self._node(path), -1), _unheard)
        number = int(path[-NUMBER_DIGITS:])
        found = writes(number)
        self._full(at, sum(len(each.path) + len(each.value) for each in found))
        while True:
            try:
                return number, await self._put_all(found)
            except NoNodeError:
                for each in found:
                    if each.version == MUST_NOT_EXIST:
                        await self._make_parents(self._full(each.path))

    async def _put_all(self, writes: Sequence[Write]) -> Sequence[int]:
        """Raises NoNodeError if a parent is missing."""
        operations = [self._operation(each) for each in writes]
        size = sum(len(each.value) for each in writes)
        answer = await self._calls.change(Transaction(operations), size)
        outcomes = cast("list[object]", answer)
        for write, outcome in zip(writes, outcomes, strict=False):
            if isinstance(outcome, BadVersionError | NodeExistsError):
                raise BadVersion(f"{write.path}: not of version {write.version}", write.path)
            if isinstance(outcome, NoNodeError) and write.version != MUST_NOT_EXIST:
                raise BadVersion(f"{write.path}: there is no such node", write.path)
            if isinstance(outcome, NoNodeError):
                raise outcome
        if len(outcomes) != len(writes) or any(isinstance(each, Exception) for each in outcomes):
            raise MetadataError(f"ZooKeeper refuses to write {writes[0].path} and others")
        return [each.version + 1 for each in writes]

    def _operation(self, write: Write) -> object:
        node = self._full(write.path, len(write.value))
        if write.version == MUST_NOT_EXIST:
            return Create(node, write.value, OPEN_ACL_UNSAFE, 0)
        return SetData(node, write.value, write.version)

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """MetadataStore.delete. A cancelled call may still take effect."""
        node = self._node(path)
        if path == "/":
            raise NotEmpty(path)
        if expected_version == MUST_NOT_EXIST:  # to ZooKeeper that is any version
            if await self.exists(path):
                raise BadVersion(f"{path} exists")
            raise NoNode(path)
        version = -1 if expected_version is None else expected_version
        try:
            await self._calls.change(Delete(node, version), len(node))
        except NoNodeError:
            raise NoNode(path) from None
        except NotEmptyError:
            raise NotEmpty(path) from None
        except BadVersionError:
            raise BadVersion(f"{path}: not of version {expected_version}") from None

    @asynccontextmanager
    async def watch(
        self, prefix: str, *, events_max: int = 1024
    ) -> AsyncIterator[trio.MemoryReceiveChannel[Notification]]:
        """MetadataStore.watch. Without a connection it begins with the next one, and LOST.

        Raises MetadataError if the servers are older than ZooKeeper 3.6.
        """
        async with self._hub.watch(prefix, events_max=events_max) as changes:
            node = self._node(prefix)
            try:
                await self._calls.arm(AddWatch(node))
                yield changes
            finally:
                if self._hub.count(prefix) == 1:
                    self._calls.disarm(RemoveWatches(node))

    def _arm_all(self) -> None:
        """The oldest first: its request is the first one of the connection, so that nothing is
        answered before it, and what was missed is said before another watch brings news.
        """
        self._arm_next(self._hub.prefixes()[::-1])

    def _arm_next(self, prefixes: list[str]) -> None:
        """The last one, then the others, one after the other: other requests go between them."""
        while prefixes and not self._hub.count(prefixes[-1]):
            prefixes.pop()  # its watch has ended meanwhile
        if not prefixes:
            return
        prefix = prefixes.pop()

        def done(_value: object, error: Exception | None) -> None:
            if isinstance(error, LOST):
                return  # the next connection arms all of them
            if error is not None:
                _log.error("no changes beneath %.200s: ZooKeeper refuses: %r", prefix, error)
            self._hub.lose(prefix)
            self._arm_next(prefixes)

        self._calls.send(AddWatch(self._node(prefix)), done)

    def _on_change(self, kind: int, node: str) -> None:
        path = node[len(self._chroot) :] or "/"
        if kind == _MODIFIED:
            self._hub.publish([Notification(Change.MODIFIED, path)])
        elif kind in (_CREATED, _DELETED):
            what = Change.CREATED if kind == _CREATED else Change.DELETED
            heard = [Notification(what, path)]
            if path != "/":
                heard.append(Notification(Change.CHILDREN, parent_path(path)))
            self._hub.publish(heard)

    def _on_overflow(self) -> None:
        for prefix in self._hub.prefixes():
            self._hub.lose(prefix)

    def _node(self, path: str) -> str:
        return self._full(check_path(path))

    def _full(self, path: str, value_bytes: int = 0) -> str:
        """Raises ValueTooLarge: a server ends the connection of such a request; ValueError for a
        path that isn't text, which would end kazoo's thread.
        """
        node = self._chroot + path if path != "/" else self._chroot or "/"
        if len(node.encode()) + value_bytes + _HEADER_BYTES > self._request_bytes_max:
            raise ValueTooLarge(
                f"{path[:_PATH_SHOWN]}: {value_bytes} bytes, of a request's "
                f"{self._request_bytes_max}"
            )
        return node

    def _stat(self, fields: tuple[int, ...]) -> Stat:
        return stat_of(fields, self._calls.session_id)

    async def aclose(self) -> None:
        """MetadataStore.aclose: completes earlier requests first. Closes even when
        cancelled, and when no server answers.
        """
        with trio.CancelScope(shield=True):
            if not self._closed:
                self._closed = True
                self._hub.close()
                await self._calls.aclose()
        await trio.lowlevel.checkpoint()
