"""Tasks and their locks, while other daemons work too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from geminga_bookie.autorecovery.task_store import TaskStore
from geminga_protocol.bookkeeper import underreplication as tree
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.memory import MemoryMetadataStore


class LateStore(SteppedStore):
    """Something happens before the first lock is taken."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        meanwhile = self.meanwhile
        if operation == "put" and path.startswith(tree.LOCKS) and meanwhile is not None:
            self.meanwhile = None
            await meanwhile()
        yield


async def test_the_task_is_that_of_the_moment_when_it_was_locked() -> None:
    """Another worker completes it, and an auditor marks the ledger for another bookie: the first
    version of both tasks is the same.
    """
    store = LateStore()
    tasks = TaskStore(store, "one")
    await tasks.publish(1, ["a:1"])

    async def marked_again() -> None:
        await store.delete(tree.task(1))
        await TaskStore(store, "auditor").publish(1, ["b:1"])

    store.meanwhile = marked_again
    task = await tasks.acquire(1, store.session.epoch)
    assert task is not None
    assert task.missing.replicas == ("b:1",)


async def test_a_task_that_is_gone_when_it_is_locked_leaves_no_lock() -> None:
    store = MemoryMetadataStore()
    tasks = TaskStore(store, "one")
    assert await tasks.acquire(1, store.session.epoch) is None
    assert await store.children(tree.LOCKS) == []
    await tasks.publish(1, [])
    assert await tasks.acquire(1, store.session.epoch) is not None
    assert await tasks.acquire(1, store.session.epoch) is None
