"""Entries and a reader of them without a broker, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from geminga import EntryBatch, MessageId, OperationTimeoutError
from pyspark_pulsar._positions import Position

TOPIC = "persistent://public/default/t-partition-2"


class Entry:
    """The part of an EntryBatch that a scan needs. A batch if `indexes` are given."""

    def __init__(
        self,
        ledger_id: int,
        entry_id: int,
        payloads: Sequence[bytes] = (b"x",),
        *,
        indexes: Sequence[int] | None = None,
        message_count: int | None = None,
        **told: Any,
    ) -> None:
        """`told` may have version, publish_time_ms, first_chunk, and for each message properties,
        event_times and keys.
        """
        self.topic_name = TOPIC
        self.partition = 2
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.indexes: Sequence[int] = (-1,) if indexes is None else indexes
        self.message_count = message_count or len(self.indexes)
        self.producer_name = f"producer-{ledger_id}"
        self.redelivery_count = 0
        self.publish_time_ms: int = told.pop("publish_time_ms", 1_700_000_000_123)
        self.schema_version: bytes | None = told.pop("version", None)
        self.is_encrypted = False
        self.reads = 0
        """How often payloads were asked for."""
        self._payloads = list(payloads)
        self._properties: Sequence[dict[str, str]] | None = told.pop("properties", None)
        self._event_times: Sequence[int | None] | None = told.pop("event_times", None)
        self._first_chunk: MessageId | None = told.pop("first_chunk", None)
        self._keys: Sequence[str | None] | None = told.pop("keys", None)
        assert not told, f"unknown: {told}"

    @property
    def received(self) -> EntryBatch:
        """As code under test takes it."""
        return cast("EntryBatch", self)

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self._payloads))

    def payloads(self) -> list[bytes]:
        self.reads += 1
        return list(self._payloads)

    def nulls(self) -> list[bool]:
        return [False] * len(self.indexes)

    def keys(self) -> list[str | None]:
        return list(self._keys or [None] * len(self.indexes))

    def keys_as_bytes(self) -> list[bytes | None]:
        return [None if key is None else key.encode() for key in self.keys()]

    def ordering_keys(self) -> list[bytes | None]:
        return [b"o"] * len(self.indexes)

    def event_times_ms(self) -> list[int | None]:
        return list(self._event_times or [None] * len(self.indexes))

    def properties(self) -> list[dict[str, str]]:
        return list(self._properties or [{}] * len(self.indexes))

    def sequence_ids(self) -> list[int]:
        return [7 + max(index, 0) for index in self.indexes]

    def message_ids(self) -> list[MessageId]:
        if self.indexes[0] < 0:
            first = self._first_chunk
            return [MessageId(self.ledger_id, self.entry_id, self.partition, first_chunk=first)]
        count = self.message_count
        return [
            MessageId(self.ledger_id, self.entry_id, self.partition, index, count)
            for index in self.indexes
        ]


class Reader:
    """Returns entries from a position on, at most `at_once` at a time; those in `silent` exist, but
    no message comes of them. Nothing comes for the first `late` times.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        at: Position = Position(-1, -1),
        *,
        silent: Sequence[Position] = (),
        at_once: int = 3,
        ends: bool = True,
        late: int = 0,
    ) -> None:
        self._left = [e for e in entries if (e.ledger_id, e.entry_id) >= at[:2]]
        self._silent = [each for each in silent if each >= at.entry]
        self._at_once = at_once
        self._ends = ends
        self._late = late
        self._received = Position(-1, -1)
        self.is_open = True
        self.waits: list[float] = []

    def read_batches(
        self, timeout_s: float | None = None, *, bytes_max: float = 0
    ) -> list[EntryBatch]:
        if self._late:
            self._late -= 1
            self.waits.append(timeout_s or 0.0)
            raise OperationTimeoutError("nothing yet")
        found, self._left = self._left[: self._at_once], self._left[self._at_once :]
        if not found:
            self._received = max([self._received, *self._silent])
            self.waits.append(timeout_s or 0.0)
            raise OperationTimeoutError("nothing")
        self._received = Position(found[-1].ledger_id, found[-1].entry_id)
        return [each.received for each in found]

    def has_message_available(self) -> bool:
        return bool(self._left) or not self._ends

    def received_ids(self) -> list[MessageId]:
        return [MessageId(*self._received[:2])]

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False
