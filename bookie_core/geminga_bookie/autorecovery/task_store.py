"""The tasks of auto-recovery in the metadata store: what Apache's auditor and workers share with
ours (spec BK-26; Apache's LedgerUnderreplicationManager).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import NamedTuple

from geminga_protocol.bookkeeper import underreplication as tree
from geminga_protocol.bookkeeper.underreplication import Underreplicated
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataError,
    MetadataStore,
    NoNode,
    NotEmpty,
)

_log = logging.getLogger(__name__)

REPLICAS_MAX = 1_000
"""Bookies that one task names; a task without names means the same work."""


class Task(NamedTuple):
    """A ledger that may lack copies. The version tells whether it was marked again."""

    ledger_id: int
    version: int
    missing: Underreplicated


class TaskStore:
    """All methods also raise MetadataError."""

    def __init__(
        self, store: MetadataStore, owner: str, *, now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self._store = store
        self._owner = owner
        self._now_ms = now_ms
        self._held: set[int] = set()
        """Ledgers whose locks this object has."""
        self._doubtful: set[int] = set()
        """Ledgers whose locks it may have: an answer of the store was lost."""

    async def prepare(self) -> None:
        """Make what Apache's daemons expect. Raises MetadataError for a tree of another layout."""
        node = await self._store.get(tree.LAYOUT)
        if node is None:
            await self._make(tree.LAYOUT, tree.layout())
            node = await self._store.get(tree.LAYOUT)
        try:
            tree.check_layout(node.value if node is not None else b"")
        except ValueError as error:
            raise MetadataError(str(error)) from None
        for path in (tree.TASKS, tree.LOCKS):
            if not await self._store.exists(path):
                await self._make(path, b"")

    async def _make(self, path: str, value: bytes) -> bool:
        """Returns False if it was there."""
        try:
            await self._store.put(path, value, MUST_NOT_EXIST)
        except BadVersion:
            return False
        return True

    async def publish(self, ledger_id: int, missing: Iterable[str]) -> None:
        """Mark a ledger, or add bookies to its task. A ledger that is marked gets a new version all
        the same: a worker that looked before must look again.
        """
        path, missing = tree.task(ledger_id), tuple(missing)
        while True:
            node = await self._store.get(path)
            if node is None:
                wanted, version = Underreplicated(missing, self._now_ms()), MUST_NOT_EXIST
            else:
                known = self._decode(path, node.value)
                wanted, version = (
                    tree.add_replicas(known, missing, self._now_ms()),
                    node.stat.version,
                )
            if len(wanted.replicas) > REPLICAS_MAX:
                wanted = wanted._replace(replicas=wanted.replicas[:REPLICAS_MAX])
            try:
                await self._store.put(path, tree.encode_task(wanted), version)
            except BadVersion:
                continue
            return

    def _decode(self, path: str, value: bytes) -> Underreplicated:
        try:
            return tree.decode_task(value)
        except ValueError as error:
            _log.warning("%s has no valid value, taken for an empty one: %s", path, error)
            return Underreplicated((), None)

    async def tasks(self) -> AsyncGenerator[int, None]:
        """Ids of all ledgers with a task, the newest first, as Apache's workers take them."""
        pending = [tree.TASKS]
        while pending:
            parent = pending.pop()
            for name in await self._store.children(parent):
                ledger_id = tree.ledger_id(name)
                if ledger_id is not None:
                    yield ledger_id
                else:
                    pending.append(f"{parent}/{name}")

    async def read(self, ledger_id: int) -> Task | None:
        """The task of a ledger, None if there is none."""
        path = tree.task(ledger_id)
        node = await self._store.get(path)
        if node is None:
            return None
        return Task(ledger_id, node.stat.version, self._decode(path, node.value))

    async def acquire(self, ledger_id: int, epoch: int) -> Task | None:
        """Lock a ledger for the session of that epoch. None if another has it, or nobody marked it.
        Raises SessionExpired.
        """
        if ledger_id in self._held:
            return None
        path = tree.lock(ledger_id)
        is_doubtful = ledger_id in self._doubtful
        self._doubtful.add(ledger_id)
        try:
            await self._store.put(path, tree.encode_lock(self._owner), MUST_NOT_EXIST, epoch=epoch)
        except BadVersion:
            node = await self._store.get(path) if is_doubtful else None
            if node is None or not node.stat.created_by_self:
                self._doubtful.discard(ledger_id)
                return None
        # Read under the lock: one that was read before may have been completed by another worker,
        # and its ledger marked again, with a version that looks the same.
        task = await self.read(ledger_id)
        if task is None:
            await self.release(ledger_id)
            return None
        self._doubtful.discard(ledger_id)
        self._held.add(ledger_id)
        return task

    async def locked(self) -> set[int]:
        """Ids of ledgers that some worker certainly has."""
        names = await self._store.children(tree.LOCKS)
        found = {ledger_id for name in names if (ledger_id := tree.ledger_id(name)) is not None}
        return found - self._doubtful

    async def worker_of(self, ledger_id: int) -> str | None:
        """Who has the lock of a ledger."""
        node = await self._store.get(tree.lock(ledger_id))
        try:
            return None if node is None else tree.decode_lock(node.value)
        except ValueError:
            return None

    async def release(self, ledger_id: int) -> None:
        """Give a lock back, if it is ours still. If this fails, it is given back with the session,
        or acquired again. Idempotent.
        """
        self.abandon(ledger_id)
        path = tree.lock(ledger_id)
        node = await self._store.get(path)
        if node is not None and node.stat.created_by_self:
            try:
                await self._store.delete(path)
            except NoNode:
                pass
        self._doubtful.discard(ledger_id)

    def abandon(self, ledger_id: int) -> None:
        """Its work ended with an error of the store: the next acquire takes the lock over."""
        self._held.discard(ledger_id)
        self._doubtful.add(ledger_id)

    def forget(self) -> None:
        """The session has ended, and all locks with it."""
        self._held.clear()
        self._doubtful.clear()

    async def complete(self, task: Task) -> bool:
        """Remove a task, unless it was marked again since it was acquired. The lock stays."""
        path = tree.task(task.ledger_id)
        try:
            await self._store.delete(path, task.version)
        except NoNode:
            return True
        except BadVersion:
            return False
        for _ in range(4):
            path = path.rpartition("/")[0]
            try:
                await self._store.delete(path)
            except (NoNode, NotEmpty):
                break
        return True

    async def is_enabled(self) -> bool:
        """Whether auditors and workers may work."""
        return not await self._store.exists(tree.DISABLE)

    async def enable(self) -> bool:
        """Returns False if it was enabled."""
        try:
            await self._store.delete(tree.DISABLE)
        except NoNode:
            return False
        return True

    async def disable(self) -> bool:
        """Returns False if it was disabled."""
        return await self._make(tree.DISABLE, b"")

    async def lost_bookie_delay(self) -> int | None:
        """Seconds; None if nobody has set it, or the value is no number."""
        node = await self._store.get(tree.LOST_BOOKIE_RECOVERY_DELAY)
        text = b"" if node is None else node.value
        return int(text) if text.isdigit() else None

    async def set_lost_bookie_delay(self, delay_s: int) -> None:
        """Auditors that run take it at once; the value that is there means: audit now."""
        await self._store.put(tree.LOST_BOOKIE_RECOVERY_DELAY, b"%d" % delay_s)

    async def init_lost_bookie_delay(self, delay_s: int) -> int:
        """Set it unless it is set; returns what holds."""
        await self._make(tree.LOST_BOOKIE_RECOVERY_DELAY, b"%d" % delay_s)
        known = await self.lost_bookie_delay()
        return delay_s if known is None else known

    async def checked_ms(self, path: str) -> int | None:
        """When a periodic check ended last; `path` is one of the nodes for that."""
        node = await self._store.get(path)
        try:
            return None if node is None else tree.decode_time(path, node.value)
        except ValueError:
            return None

    async def count_older(self, age_s: int) -> int:
        """How many ledgers are marked for longer than that; 0 for an age of 0."""
        count = 0
        if age_s <= 0:
            return 0
        async with aclosing(self.tasks()) as found:
            async for ledger_id in found:
                task = await self.read(ledger_id)
                ctime_ms = None if task is None else task.missing.ctime_ms
                count += ctime_ms is not None and self._now_ms() - ctime_ms > age_s * 1000
        return count

    async def set_checked(self, path: str) -> None:
        """A periodic check ended now."""
        await self._store.put(path, tree.encode_time(path, self._now_ms()))
