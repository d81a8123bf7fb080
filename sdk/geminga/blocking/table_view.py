"""`TableView` of `geminga.blocking`. Made by tools/faces.py from `aio`: don't edit."""

from __future__ import annotations

from collections.abc import ItemsView, KeysView
from typing import Generic

import geminga.table_view
from geminga._bridge.threads import ThreadBlock, ThreadSession
from geminga._options.arguments import function
from geminga.blocking.table_changes import TableChanges
from geminga.table_changes import R
from geminga.table_view import TableListener


class TableView(ThreadBlock, Generic[R]):
    """A read-only mapping of keys to the payload (with a schema: the value) of their latest
    message, kept up to date. Created by `Client.create_table_view`.

    A message without payload removes its key; messages without a key, or undecodable by the schema,
    are skipped. All keys and values are in memory.
    """

    def __init__(self, session: ThreadSession, inner: geminga.table_view.TableView[R]) -> None:
        self._session = session
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __contains__(self, key: object) -> bool:
        return key in self._inner

    def get(self, key: str) -> R | None:
        """The key's value, or None."""
        return self._inner.get(key)

    def keys(self) -> KeysView[str]:
        """A copy of the keys."""
        return self._inner.keys()

    def items(self) -> ItemsView[str, R]:
        """A copy of keys and values."""
        return self._inner.items()

    def listen(self, listener: TableListener[R]) -> None:
        """Call `listener(key, value)` at every change from now on, in the thread of the client's
        event loop: it must be short and not wait. Its errors are logged.
        """
        function(listener, "listener")
        self._session.portal.post(self._inner.listen, listener)

    def for_each_and_listen(self, listener: TableListener[R]) -> None:
        """`listen`, with a first call for each present key; no change is missed."""
        function(listener, "listener")
        self._session.portal.post(self._inner.for_each_and_listen, listener)

    def changes(self) -> TableChanges[R]:
        """An iterator over the changes from now on, as key and value (None if removed), until the
        view is closed.
        """
        return TableChanges(self._session, self._inner.changes())

    def refresh(self) -> None:
        """Return when all messages now in the topic are in the view. Raises GemingaError."""
        self._session.call(lambda: self._inner.refresh())

    def close(self) -> None:
        """Stop reading; the values stay. Idempotent."""
        if not self._session.portal.is_forked and self._session.is_running:
            self._session.call(self._inner.aclose)
