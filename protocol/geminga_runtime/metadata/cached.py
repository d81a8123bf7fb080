"""A metadata store that remembers what it read until that changes (spec CL-01; Apache's
MetadataCacheImpl).

What is remembered is that of one subtree, which one watch covers. The watch's channel is emptied
before each answer, without a task of its own: an answer is never older than the last change that
the store has told of, and a store tells of a change before it answers what was asked later. Own
writes are forgotten when they are answered, whatever the answer is. All is forgotten when changes
were missed, and when the session is lost: without one nothing is remembered. While it is only
suspended what was read before is answered still, for as long as an answer lives.

Values are bytes and tuples: who decodes one has an object of his own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import IntEnum
from sys import getsizeof
from typing import NamedTuple, Protocol, cast, runtime_checkable

import trio

from geminga_runtime.metadata.api import (
    ANY_VERSION,
    Change,
    MetadataStore,
    Node,
    Notification,
    SessionPhase,
    Stat,
    Write,
    Writes,
)
from geminga_runtime.metadata.beneath import SessionBeneath
from geminga_runtime.metadata.paths import check_path, parent_path
from geminga_runtime.waiters import Promise

BYTES_MAX = 16 * 1024 * 1024
"""Bound of what is remembered; what was used least recently goes first."""

EVENTS_MAX = 4096
"""Changes that no answer has looked at yet; with more of them everything is forgotten."""

ANSWERS_A_TURN = 16
"""Remembered answers after which others have a turn."""

EXPIRE_S = 300.0
"""An answer is asked for again after that, as by Apache's cache: should a server refuse the watch
of a later connection, nothing is told any more.
"""

_ENTRY_BYTES = 512
"""What an answer takes beside its path and value."""
_NAME_BYTES = 8
"""What a name takes in a list, beside itself."""


class _Kind(IntEnum):
    """Numbers, for their hashes cost nothing."""

    NODE = 0
    EXISTS = 1
    CHILDREN = 2


_Key = tuple[_Kind, str]


@dataclass(frozen=True, slots=True)
class _Answer:
    value: object
    size_bytes: int
    until: float


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """`hits` counts answers that were remembered, `loads` those that the store was asked for."""

    hits: int
    loads: int
    answers: int
    size_bytes: int


class Known(NamedTuple):
    """An answer that needed no waiting."""

    node: Node | None


@runtime_checkable
class Remembering(Protocol):
    """A store that can answer at once."""

    def remembered(self, path: str) -> Known | None:
        """What `get` would answer now without asking another store; None if it would ask."""


class CachedMetadataStore(SessionBeneath):
    """Implements MetadataStore over another one. Made by `open`."""

    def __init__(
        self,
        store: MetadataStore,
        subtree: str,
        bytes_max: int,
        changes: trio.MemoryReceiveChannel[Notification],
        closing: AsyncExitStack,
    ) -> None:
        super().__init__(store)
        self._subtree = subtree
        self._bytes_max = bytes_max
        self._changes = changes
        self._closing = closing
        self._remembering = store if isinstance(store, Remembering) else None
        self._epoch = store.session.epoch
        self._answers: dict[_Key, _Answer] = {}
        """The least recently used one first."""
        self._size_bytes = 0
        self._loads: dict[_Key, Promise[_Answer | None]] = {}
        """Under way, unless what they ask for has changed since: one of each. None: cancelled."""
        self._since_turn = 0
        self._hit_count = 0
        self._load_count = 0

    @classmethod
    async def open(
        cls,
        store: MetadataStore,
        subtree: str,
        *,
        bytes_max: int = BYTES_MAX,
        events_max: int = EVENTS_MAX,
    ) -> CachedMetadataStore:
        """Remember what is read at and beneath `subtree`. To be opened before other watches of the
        store: the first one is armed first on a new connection, so that whoever is told of a change
        is not answered with what was there before. `aclose` closes the store too.

        Raises MetadataError if the store can't be watched.
        """
        async with AsyncExitStack() as stack:
            changes = await stack.enter_async_context(store.watch(subtree, events_max=events_max))
            return cls(store, subtree, bytes_max, changes, stack.pop_all())

    def statistics(self) -> CacheStatistics:
        """What is remembered, and how often that was of use."""
        return CacheStatistics(
            self._hit_count, self._load_count, len(self._answers), self._size_bytes
        )

    async def get(self, path: str) -> Node | None:
        """MetadataStore.get."""
        return cast("Node | None", await self._ask(_Kind.NODE, path))

    def remembered(self, path: str) -> Known | None:
        """See `Remembering`."""
        if not self._covers(path):
            return None if self._remembering is None else self._remembering.remembered(path)
        if not self._follow():
            return None
        found = self._remembered(_Kind.NODE, path)
        return None if found is None else Known(cast("Node | None", found.value))

    async def exists(self, path: str) -> bool:
        """MetadataStore.exists."""
        return cast("bool", await self._ask(_Kind.EXISTS, path))

    async def children(self, path: str) -> Sequence[str]:
        """MetadataStore.children."""
        return list(cast("tuple[str, ...]", await self._ask(_Kind.CHILDREN, path)))

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
        made = path
        try:
            made, stat = await self._beneath.put(
                path, value, expected_version, epoch=epoch, sequential=sequential
            )
        finally:
            self._forget_written(made)
        return made, stat

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        """MetadataStore.put_numbered."""
        written: list[str] = [parent_path(at)]

        def noted(number: int) -> Sequence[Write]:
            found = writes(number)
            written.extend(each.path for each in found)
            return found

        try:
            return await self._beneath.put_numbered(at, noted)
        finally:
            for path in written:
                self._forget_written(path)

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """MetadataStore.delete."""
        try:
            await self._beneath.delete(path, expected_version)
        finally:
            self._forget_written(path)

    async def aclose(self) -> None:
        """MetadataStore.aclose: closes the store beneath."""
        try:
            await self._closing.aclose()
        finally:
            await super().aclose()

    # What is asked.

    async def _ask(self, kind: _Kind, path: str) -> object:
        check_path(path)
        if not self._covers(path):
            return await self._request(kind, path)
        # A turn of the loop costs more than an answer that is remembered: one for many of them.
        self._since_turn += 1
        if self._since_turn < ANSWERS_A_TURN:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._since_turn = 0
            await trio.lowlevel.checkpoint()
        while self._follow():
            found = self._remembered(kind, path)
            if found is None:
                load = self._loads.get((kind, path))
                found = await (self._load(kind, path) if load is None else load.wait())
            if found is not None:
                return found.value
        return await self._request(kind, path)

    def _covers(self, path: str) -> bool:
        return path == self._subtree or path.startswith(f"{self._subtree.rstrip('/')}/")

    def _remembered(self, kind: _Kind, path: str) -> _Answer | None:
        found = self._answers.get((kind, path))
        if found is None:
            return None
        if trio.current_time() >= found.until:
            self._forget_key((kind, path))
            return None
        self._hit_count += 1
        self._answers[kind, path] = self._answers.pop((kind, path))  # now the last one used
        return found

    async def _load(self, kind: _Kind, path: str) -> _Answer:
        """Ask the store; others who want the same wait for the answer. If the task that asks is
        cancelled, one of them asks again.
        """
        key = kind, path
        load: Promise[_Answer | None] = Promise()
        self._loads[key] = load
        self._load_count += 1
        try:
            value = await self._request(kind, path)
        except Exception as error:
            load.reject(error)
            raise
        else:
            size_bytes = _ENTRY_BYTES + getsizeof(path) + _size_of(value)
            found = _Answer(value, size_bytes, trio.current_time() + EXPIRE_S)
            load.resolve(found)
            if self._follow() and self._loads.get(key) is load:
                self._remember(key, found)
            return found
        finally:
            load.resolve(None)  # cancelled, unless there is an outcome
            if self._loads.get(key) is load:
                del self._loads[key]

    async def _request(self, kind: _Kind, path: str) -> object:
        if kind is _Kind.NODE:
            return await self._beneath.get(path)
        if kind is _Kind.EXISTS:
            return await self._beneath.exists(path)
        return tuple(await self._beneath.children(path))

    # What is remembered.

    def _remember(self, key: _Key, found: _Answer) -> None:
        if found.size_bytes > self._bytes_max:
            return
        self._forget_key(key)
        self._answers[key] = found
        self._size_bytes += found.size_bytes
        while self._size_bytes > self._bytes_max:
            self._forget_key(next(iter(self._answers)))

    def _follow(self) -> bool:
        """Forget what has changed. Whether anything may be remembered now."""
        session = self._beneath.session
        if session.epoch != self._epoch:
            self._epoch = session.epoch
            self._forget_all()
        try:
            while True:
                self._take(self._changes.receive_nowait())
        except trio.WouldBlock:
            return session.phase in (SessionPhase.CONNECTED, SessionPhase.SUSPENDED)
        except (trio.EndOfChannel, trio.ClosedResourceError):  # nothing is told any more
            self._forget_all()
            return False

    def _take(self, change: Notification) -> None:
        if change.kind is Change.LOST:
            self._forget_all()
        elif change.kind is Change.CHILDREN:
            self._forget_key((_Kind.CHILDREN, change.path))
        else:
            self._forget_path(change.path)

    def _forget_written(self, path: str) -> None:
        """Forget the node and those above it, which a write may have made."""
        while path.startswith("/") and self._covers(path):
            self._forget_path(path)
            path = parent_path(path) if path != "/" else ""

    def _forget_path(self, path: str) -> None:
        for kind in _Kind:
            self._forget_key((kind, path))

    def _forget_key(self, key: _Key) -> None:
        """Also what is asked for now: the answer may be what was there before."""
        self._loads.pop(key, None)
        found = self._answers.pop(key, None)
        if found is not None:
            self._size_bytes -= found.size_bytes

    def _forget_all(self) -> None:
        self._answers.clear()
        self._loads.clear()
        self._size_bytes = 0


def _size_of(value: object) -> int:
    if isinstance(value, Node):
        return getsizeof(value.value)
    if isinstance(value, tuple):
        return sum(getsizeof(name) + _NAME_BYTES for name in value)
    return 0
