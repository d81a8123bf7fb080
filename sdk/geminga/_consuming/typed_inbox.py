"""Inboxes of consumers with a schema: entries wait until their writers' schemas are known (spec
SDK-41; MultiVersionSchemaInfoProvider of the Java client).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import Any

from geminga._connection.core import Core
from geminga._connection.schema_lookup import schema_of
from geminga._consuming.inbox import Inbox, InterceptedInbox, begin_of
from geminga._entries.entry import Entry, Source
from geminga._entries.value_reader import ValueReader
from geminga.errors import GemingaError, SchemaUnavailableError
from geminga.message import Message
from geminga.schema._base import Schema
from geminga_protocol.topic_name import TopicName

VERSIONS_MAX = 1000
"""Bound of a consumer's cached schema versions, over all topics; the oldest is dropped."""

Version = tuple[str, bytes]
"""Topic without partition, version."""


class Readers:
    """The value reader of each version, fetched once."""

    def __init__(self, core: Core, schema: Schema[Any], on_known: Callable[[], None]) -> None:
        self._core = core
        self._schema = schema
        self._on_known = on_known
        self._plain = ValueReader(schema, None)
        self._known: dict[Version, ValueReader] = {}
        self._asked: set[Version] = set()
        self._bases: dict[str, str] = {}

    def of(self, entry: Entry) -> ValueReader | None:
        """An entry's value reader; None if its schema is not known yet."""
        if not self._schema._wants_writer:
            return self._plain
        version = entry.metadata.schema_version
        if not version:
            return self._plain
        base = self._bases.get(entry.topic)
        if base is None:
            base = str(TopicName.parse(entry.topic).partitioned_base)
            self._bases[entry.topic] = base
        wanted = base, version
        found = self._known.get(wanted)
        if found is None and wanted not in self._asked:
            self._asked.add(wanted)
            self._core.nursery.start_soon(self._ask, wanted, entry.topic)
        return found

    async def _ask(self, wanted: Version, topic: str) -> None:
        version = wanted[1]
        try:
            info = await schema_of(self._core, topic, version)
            if info is None:
                raise SchemaUnavailableError("the topic has no such version")
            found = ValueReader(self._schema, info, version)
        except GemingaError as error:
            found = ValueReader(self._schema, None, version, error)
            self._put(wanted, found)
            # Reading the waiting entries' values raises the error; a later entry retries.
            self._on_known()
            del self._known[wanted]
        else:
            self._put(wanted, found)
            self._on_known()

    def _put(self, wanted: Version, found: ValueReader) -> None:
        self._asked.discard(wanted)
        if len(self._known) >= VERSIONS_MAX:
            del self._known[next(iter(self._known))]
        self._known[wanted] = found


class TypedInbox(Inbox):
    """An inbox that holds entries back, each partition's in order, until their schemas are known.
    It is bounded, as held entries have used their permits.
    """

    def __init__(self, core: Core, schema: Schema[Any]) -> None:
        Inbox.__init__(self)
        self._readers = Readers(core, schema, self._go_on)
        self._held: dict[Source, deque[Entry]] = {}
        self.notify: Callable[[int], None] = lambda messages: None
        """Called with the number of messages that are released later."""

    def put(self, entry: Entry) -> None:
        """As Inbox.put, perhaps later."""
        held = self._held.get(entry.source)
        if held is None:
            reader = self._readers.of(entry)
            if reader is not None:
                entry.value_reader = reader
                super().put(entry)
                return
            held = self._held[entry.source] = deque()
        held.append(entry)

    def put_all(self, entries: Sequence[Entry]) -> None:
        """As Inbox.put_all, maybe later."""
        for entry in entries:
            self.put(entry)

    def _go_on(self) -> None:
        let_through = 0
        for source, held in list(self._held.items()):
            while held:
                reader = self._readers.of(held[0])
                if reader is None:
                    break
                entry = held.popleft()
                entry.value_reader = reader
                let_through += len(entry.indexes)
                super().put(entry)
            if not held:
                del self._held[source]
        if let_through:
            self.notify(let_through)

    def holds(self, source: Source) -> bool:
        """As Inbox.holds."""
        return source in self._held or super().holds(source)

    def begin_of(self, source: Source) -> tuple[int, int] | None:
        """As Inbox.begin_of."""
        begins = [super().begin_of(source), *map(begin_of, self._held.get(source, ()))]
        return min((each for each in begins if each is not None), default=None)

    def waiting_of(self, source: Source) -> tuple[int, int, int]:
        """As Inbox.waiting_of."""
        waiting, taken, size_bytes = super().waiting_of(source)
        return waiting + sum(len(e.indexes) for e in self._held.get(source, ())), taken, size_bytes

    def discard(
        self,
        source: Source,
        positions: Container[tuple[int, int]] | None = None,
        *,
        recalls: bool = True,
    ) -> int:
        """As Inbox.discard."""
        released = super().discard(source, positions, recalls=recalls)
        kept: deque[Entry] = deque()
        for entry in self._held.pop(source, ()):
            if positions is None or (entry.ledger_id, entry.entry_id) in positions:
                released += len(entry.indexes)
            else:
                kept.append(entry)
        if kept:
            self._held[source] = kept
        return released


class TypedInterceptedInbox(TypedInbox, InterceptedInbox):
    """A typed inbox with interceptors."""

    def __init__(
        self, core: Core, schema: Schema[Any], before_consume: Callable[[Message], Message]
    ) -> None:
        super().__init__(core, schema)
        self._before_consume = before_consume


def make_inbox(
    core: Core,
    schema: Schema[Any] | None,
    before_consume: Callable[[Message], Message] | None,
) -> Inbox:
    """The inbox of a consumer."""
    if schema is None:
        return InterceptedInbox(before_consume) if before_consume else Inbox()
    if before_consume is None:
        return TypedInbox(core, schema)
    return TypedInterceptedInbox(core, schema, before_consume)
