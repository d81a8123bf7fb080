"""Deletions of namespaces and partitioned topics, which take many writes (decision 44).

A record that is being deleted has Apache's mark, `deleted`. A note of ours, which Apache's brokers
don't look at, stands from before the mark until the record is gone or unmarked. If the broker is
killed in between, another life of it or another broker finds the note and finishes the deletion.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import msgspec
import trio

from geminga_broker.cluster.records import (
    JsonObject,
    Records,
    ResourceChanged,
    ResourceMissing,
    is_name,
)
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.topic_name import TopicName, url_encode
from geminga_runtime.json_text import read_json
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataError,
    MetadataStore,
    NoNode,
)

_log = logging.getLogger(__name__)

DELETIONS = "/geminga/deletions"
"""The notes, by encoded name."""

UNMARK_S = 5.0


class Note(msgspec.Struct, frozen=True):
    """What a note says."""

    name: str
    """`tenant/namespace`, or a topic's full name."""
    force: bool
    """Whether topics may be deleted that are in use."""
    broker: str
    """The id of the broker that does it."""
    id: str
    """Of this deletion, so that two of one name differ."""


class Noted(NamedTuple):
    """A note that was read."""

    note: Note
    version: int
    mtime_ms: int


class Resumed(NamedTuple):
    """A deletion that a dead broker began: it is finished only where the mark stands."""

    version: int
    """Of the note, which whoever resumes it replaces: of two only one succeeds."""
    undoes: Callable[[BaseException], bool]
    """Whether the mark is removed after this error. After others it stays, for another attempt."""


def is_marked(record: JsonObject) -> bool:
    """Whether the record is being deleted."""
    return record.get("deleted") is True


class Deletions:
    """The deletions of one broker, and the notes of all."""

    def __init__(self, store: MetadataStore) -> None:
        self.broker_id = ""
        """This broker's; empty until it serves."""
        self._store = store
        self._running: set[str] = set()

    def is_running(self, note: Note) -> bool:
        """Whether this process is at it."""
        return note.id in self._running

    async def noted(self) -> list[Noted]:
        """All notes. Raises MetadataError."""
        found: list[Noted] = []
        for child in await self._store.children(DELETIONS):
            node = await self._store.get(f"{DELETIONS}/{child}")
            if node is None:
                continue
            try:
                note = _decoded(child, node.value)
            except ValueError as error:
                _log.warning("%s/%s is no note of a deletion: %s", DELETIONS, child, error)
                continue
            found.append(Noted(note, node.stat.version, node.stat.mtime_ms))
        return found

    @asynccontextmanager
    async def marked(
        self,
        records: Records,
        record_name: str,
        name: str,
        *,
        force: bool,
        resumed: Resumed | None = None,
    ) -> AsyncIterator[JsonObject]:
        """In the block the record is marked; the block removes it, and gets it. If the block
        fails, the mark is removed (see `Resumed`). Raises ResourceMissing, also if a deletion is
        resumed that was undone; BadVersion if another broker resumed it.
        """
        note = Note(name, force, self.broker_id, uuid.uuid4().hex)
        self._running.add(note.id)
        try:
            await self._write(note, resumed.version if resumed else None)
            try:
                try:
                    record = await records.update(record_name, _mark_again if resumed else _mark)
                except ResourceMissing:
                    await self._end(note)  # noqa: ASYNC120
                    raise
                await self._keep(note)
                yield record
            except BaseException as error:
                if resumed is None or resumed.undoes(error):
                    await self._undo(records, record_name, note)  # noqa: ASYNC102 - shielded
                raise
            await self._end(note)
        finally:
            self._running.discard(note.id)

    async def check(self, records: Records, record_name: str) -> None:
        """Before each step of a deletion: raises ResourceChanged if its record isn't marked any
        more, as another broker has undone it, or finished it before a new one was made, and
        ResourceMissing.
        """
        record = await records.get(record_name)
        if record is None:
            raise ResourceMissing(record_name)
        if not is_marked(record):
            raise ResourceChanged(record_name)

    async def _write(self, note: Note, version: int | None) -> None:
        await self._store.put(_path(note), msgspec.json.encode(note), version)

    async def _keep(self, note: Note) -> None:
        """After the mark: whoever saw none may have removed the note meanwhile."""
        if not await self._store.exists(_path(note)):
            with suppress(BadVersion):
                await self._write(note, MUST_NOT_EXIST)

    async def _undo(self, records: Records, record_name: str, note: Note) -> None:
        with trio.move_on_after(UNMARK_S, shield=True), suppress(MetadataError):
            with suppress(ResourceMissing):
                await records.update(record_name, lambda old: old | {"deleted": False})
            await self._forget(note)

    async def _end(self, note: Note) -> None:
        """Nothing is left to do. A note that stays is removed by who looks for notes next."""
        with suppress(MetadataError):
            await self._forget(note)

    async def _forget(self, note: Note) -> None:
        """Remove the note, unless another deletion of that name has replaced it."""
        node = await self._store.get(_path(note))
        if node is not None and node.value == msgspec.json.encode(note):
            with suppress(NoNode, BadVersion):
                await self._store.delete(_path(note), node.stat.version)


def _path(note: Note) -> str:
    return f"{DELETIONS}/{url_encode(note.name)}"


def _decoded(child: str, value: bytes) -> Note:
    """The note in the node of that name. Raises ValueError if it is none, or not of that node."""
    note = read_json(value, Note)
    if url_encode(note.name) != child:
        raise ValueError(f"it is of {note.name:.200}")
    if "://" in note.name:
        try:
            TopicName.parse(note.name)
        except LocalProtocolError as error:
            raise ValueError(str(error)) from None
    elif len(parts := note.name.split("/")) != 2 or not all(map(is_name, parts)):
        raise ValueError(f"{note.name:.200} is no namespace")
    return note


def _mark(old: JsonObject) -> JsonObject:
    return old | {"deleted": True}


def _mark_again(old: JsonObject) -> JsonObject:
    if not is_marked(old):
        raise ResourceMissing("its deletion was undone")
    return old
