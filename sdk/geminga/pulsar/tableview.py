"""`TableView` of the official client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

import geminga.blocking
from geminga.pulsar._checks import check_function, closing_of, staying
from geminga.pulsar._errors import officially
from geminga.pulsar.exceptions import ConsumerNotInitialized
from geminga.pulsar.schema.schema import Schema


class TableView:
    """The latest value of each key of a topic. Created by `Client.create_table_view`."""

    def __init__(
        self,
        table_view: geminga.blocking.TableView[Any],
        topic: str,
        subscription: str | None,
        schema: Schema,
    ) -> None:
        self._table_view = table_view
        self._topic = topic
        self._subscription = subscription
        self._schema = schema
        self._is_closed = False

    def get(self, key: str) -> Any | None:
        """The key's value, or None."""
        found = self._table_view.get(key)
        return None if found is None else self._schema.decode(found)

    def for_each(self, callback: Callable[[str, Any], None]) -> None:
        """Call `callback(key, value)` for each key."""
        for key, value in self._table_view.items():
            callback(key, self._schema.decode(value))

    @officially
    def for_each_and_listen(self, callback: Callable[[str, Any], None]) -> None:
        """`for_each`, and a call at each change from then on, in the client's own thread, where the
        callback must not wait. A removed key comes with the value of an empty payload.
        """
        check_function(callback, "callback")
        view, decode = self._table_view, self._schema.decode

        def told(key: str, value: bytes | None) -> None:
            callback(key, decode(value or b""))

        view.for_each_and_listen(staying(told))
        # The calls for the present keys come before this one.
        view._session.call(trio.lowlevel.checkpoint)

    @officially
    def close(self) -> None:
        """Stop reading. Raises ConsumerNotInitialized the second time."""
        if self._is_closed:
            raise ConsumerNotInitialized("the table view is closed")
        with closing_of(self):
            self._table_view.close()

    def __len__(self) -> int:
        return 0 if self._is_closed else len(self._table_view)

    def __str__(self) -> str:
        named = f", subscription={self._subscription}" if self._subscription is not None else ""
        return f"TableView(topic={self._topic}{named})"

    __repr__ = __str__
