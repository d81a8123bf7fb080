"""A metadata store in memory whose calls a test surrounds with code of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from geminga_runtime.metadata.api import Node, Stat, Writes
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.paths import parent_path


class SteppedStore(MemoryMetadataStore):
    """A store whose calls are steps; a subclass may put code around each."""

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        """Surrounds a "get", "put" or "delete"; `expected_version` is that of the call."""
        yield

    async def get(self, path: str) -> Node | None:
        async with self.step("get", path, None):
            return await super().get(path)

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        async with self.step("put", path, expected_version):
            return await super().put(
                path, value, expected_version, epoch=epoch, sequential=sequential
            )

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        async with AsyncExitStack() as steps:
            for each in writes(await self.next_number(parent_path(at))):
                await steps.enter_async_context(self.step("put", each.path, each.version))
            return await super().put_numbered(at, writes)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        async with self.step("delete", path, expected_version):
            await super().delete(path, expected_version)
