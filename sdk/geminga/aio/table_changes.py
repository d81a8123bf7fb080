"""`TableChanges` of `geminga.aio`; tools/faces.py makes the blocking one from it."""

from __future__ import annotations

from typing import Generic

import geminga.table_changes
from geminga._bridge.asyncs import AsyncSession
from geminga.table_changes import R


class TableChanges(Generic[R]):
    """The changes of a `TableView` as they occur; created by `TableView.changes`.

    If changes of one key occur faster than the program takes them, only the latest is kept: it
    holds each key at most once.
    """

    def __init__(self, session: AsyncSession, inner: geminga.table_changes.TableChanges[R]) -> None:
        self._session = session
        self._inner = inner

    def close(self) -> None:
        """Collect no more changes. Idempotent."""
        self._session.portal.post(self._inner.close)

    async def next_change(self) -> tuple[str, R | None] | None:
        """The next change; None after the last."""
        return await self._session.call(lambda: self._inner.next_change())

    def __aiter__(self) -> TableChanges[R]:
        return self

    async def __anext__(self) -> tuple[str, R | None]:
        """The next change; the iteration ends when the view is closed."""
        change = await self.next_change()
        if change is None:
            raise StopAsyncIteration
        return change
