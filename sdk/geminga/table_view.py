"""The latest value of each key of a topic (spec SDK-28; TableViewImpl of the Java client)."""

from __future__ import annotations

import logging
from collections.abc import Callable, ItemsView, KeysView
from typing import Generic, TypeAlias

import trio

from geminga._connection.core import Core
from geminga._connection.opening import Block
from geminga._connection.together import undone_on_error
from geminga._options.arguments import function
from geminga._options.callbacks import FAILURES
from geminga.errors import AlreadyClosedError, CorruptMessageError, GemingaError, SchemaError
from geminga.message import Message
from geminga.reader import Reader
from geminga.table_changes import R, TableChanges
from geminga_protocol.message_id import MessageId
from geminga_runtime.waiters import own_copy

logger = logging.getLogger("geminga")

REFRESH_POLL_S = 0.1
"""Interval at which `refresh` checks for the end: compaction may have removed the last message."""
Place: TypeAlias = tuple[int, int, int]
"""Ledger, entry and index in the batch."""
NOWHERE: Place = (-1, -1, -1)

TableListener: TypeAlias = Callable[[str, R | None], object]
"""(key, value); None for a key that was removed."""


class TableView(Block, Generic[R]):
    """A read-only mapping of keys to the payload (with a schema: the value) of their latest
    message, kept up to date. Created by `Client.create_table_view`.

    A message without payload removes its key; messages without a key, or undecodable by the schema,
    are skipped. All keys and values are in memory.
    """

    def __init__(self, core: Core, reader: Reader[R]) -> None:
        self._core = core
        self._reader = reader
        self._values: dict[str, R] = {}
        self._listeners: list[TableListener[R]] = []
        self._changes: set[TableChanges[R]] = set()
        self._places: dict[int, Place] = {}
        """The last applied message of each partition."""
        self._applied = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()
        self._error: GemingaError | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"<TableView of {self._reader.topics}, {len(self._values)} keys>"

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: str) -> R | None:
        """The key's value, or None."""
        return self._values.get(key)

    def keys(self) -> KeysView[str]:
        """A copy of the keys."""
        return dict(self._values).keys()

    def items(self) -> ItemsView[str, R]:
        """A copy of keys and values."""
        return dict(self._values).items()

    def listen(self, listener: TableListener[R]) -> None:
        """Call `listener(key, value)` at every change from now on, in the thread of the client's
        event loop: it must be short and not wait. Its errors are logged.
        """
        function(listener, "listener")
        self._listeners.append(listener)

    def for_each_and_listen(self, listener: TableListener[R]) -> None:
        """`listen`, with a first call for each present key; no change is missed."""
        function(listener, "listener")
        for key, value in dict(self._values).items():
            _call(listener, key, value)
        self.listen(listener)

    def changes(self) -> TableChanges[R]:
        """An iterator over the changes from now on, as key and value (None if removed), until the
        view is closed.
        """
        return TableChanges(self._changes, lambda: self._is_over)

    async def refresh(self) -> None:
        """Return when all messages now in the topic are in the view. Raises GemingaError."""
        wanted = await self._last_places()
        while any(self._places.get(n, NOWHERE) < place for n, place in wanted.items()):
            self._check()
            if not await self._reader.has_message_available():
                return
            with trio.move_on_after(REFRESH_POLL_S):
                await self._applied.park()

    def _check(self) -> None:
        if self._is_over:
            if self._error is None:
                raise AlreadyClosedError("the table view is closed")
            raise own_copy(self._error)

    async def _start(self) -> None:
        """Read all messages that are in the topic."""
        async with undone_on_error(self._reader.aclose):
            wanted = await self._last_places()
            while any(self._places.get(n, NOWHERE) < place for n, place in wanted.items()):
                if not await self._reader.has_message_available():
                    break
                self._apply(await self._reader.read_next())
        self._core.nursery.start_soon(self._run)

    async def _last_places(self) -> dict[int, Place]:
        """The place of the last message of each partition that has any."""
        last = await self._reader.last_message_ids()
        return {each.partition: _place(each) for each in last if each.entry_id >= 0}

    async def _run(self) -> None:
        try:
            with self._scope:
                async for message in self._reader:
                    self._apply(message)
        except GemingaError as error:
            logger.error("%r: updates have stopped: %s", self, error)
            self._error = error
        finally:
            self._is_over = True
            for each in list(self._changes):
                each._end()

    def _apply(self, message: Message[R]) -> None:
        message_id = message.message_id
        self._places[message_id.partition] = _place(message_id)
        if self._applied:
            self._applied.unpark_all()
        try:
            key = message.partition_key
            if key is None:
                logger.debug("%r: skipped a message without key", message)
                return
            value = None if message.is_null or not message.data else message.value
        except (SchemaError, CorruptMessageError) as error:
            logger.warning("%r: skipped a message: %s", message, error)
            return
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
        for listener in self._listeners:
            _call(listener, key, value)
        for each in list(self._changes):
            each._put(key, value)

    async def aclose(self) -> None:
        """Stop reading; the values stay. Idempotent."""
        self._scope.cancel()
        self._is_over = True
        for each in list(self._changes):
            each._end()
        await self._reader.aclose()


def _place(message_id: MessageId) -> Place:
    return message_id.ledger_id, message_id.entry_id, message_id.batch_index


def _call(listener: TableListener[R], key: str, value: R | None) -> None:
    try:
        listener(key, value)
    except FAILURES:
        logger.exception("a listener of a table view failed at %r", key)
