"""The messages that an earlier attempt of a task wrote to one partition of a topic (spec SP-06).

With deduplication the broker drops a message whose sequence id it knows, whatever its content. If a
task is retried and its rows come in another order, rows that were never written would be dropped.
So dropped messages are compared with the stored ones of the same ids.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import geminga
import geminga.blocking
from geminga import EntryBatch, MessageId

LOOK_BACK_S = (60.0, 480.0, 3600.0, 8 * 3600.0)
"""How far back to search for the first message, before searching from the topic's beginning."""
QUEUE_SIZE = 64
"""Messages that the reader prefetches."""
BYTES_MAX = 1024 * 1024
"""Bytes of payload read at once; at least one entry."""
READ_WAIT_S = 0.5
READ_TIMEOUT_S = 60.0
"""Time limit for an existing message to arrive."""


class Row(NamedTuple):
    """The content by which messages are compared."""

    payload: bytes
    is_null: bool
    key: bytes | None
    ordering_key: bytes | None
    event_time_ms: int | None
    properties: Mapping[str, str]

    @classmethod
    def of(cls, payload: bytes | None, told: Mapping[str, Any]) -> Row:
        """The row of a message as passed to `submit`."""
        key = told.get("partition_key")
        return cls(
            payload or b"",
            payload is None,
            key.encode() if isinstance(key, str) else key,
            told.get("ordering_key"),
            told.get("event_time_ms") or None,
            told.get("properties") or {},
        )


class NotComparable(Exception):
    """The earlier messages can't be read, and why."""


class EarlierRows:
    """The messages of one producer name in one topic or partition, by sequence id. The caller
    closes it.
    """

    def __init__(
        self,
        client: geminga.blocking.Client,
        topic: str,
        name: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._topic = topic
        self._name = name
        self._clock = clock
        self._reader: geminga.blocking.Reader[bytes] | None = None
        self._rows: Iterator[tuple[int, Row]] = iter(())
        self._next: tuple[int, Row] | None = None

    def find(self, number: int) -> Row | None:
        """The message with this sequence id, None if it doesn't exist. Ids must grow from call to
        call. Raises NotComparable, GemingaError.
        """
        if self._reader is None:
            self._begin(number)
        while self._next is not None and self._next[0] < number:
            self._next = next(self._rows, None)
        if self._next is not None and self._next[0] == number:
            return self._next[1]
        return None

    def close(self) -> None:
        """Close the reader."""
        reader, self._reader = self._reader, None
        self._rows, self._next = iter(()), None
        if reader is not None:
            reader.close()

    def _begin(self, number: int) -> None:
        """Seek to the message with this sequence id or one before it."""
        try:
            self._reader = reader = self._client.create_reader(
                self._topic,
                geminga.EARLIEST,
                receiver_queue_size=QUEUE_SIZE,
                crypto_failure_action=geminga.ConsumerCryptoFailureAction.CONSUME,
            )
        except geminga.AuthorizationError as error:
            raise NotComparable(f"the role may not read the topic: {error}") from None
        now_ms = int(self._clock() * 1000)
        starts: list[MessageId | int] = [now_ms - int(back_s * 1000) for back_s in LOOK_BACK_S]
        for start in [*starts, geminga.EARLIEST]:
            reader.seek(start)
            self._rows = self._read(reader)
            self._next = next(self._rows, None)
            if self._next is not None and self._next[0] <= number:
                return

    def _read(self, reader: geminga.blocking.Reader[bytes]) -> Iterator[tuple[int, Row]]:
        """The messages of the producer name from here to the current end."""
        last = max((each.ledger_id, each.entry_id) for each in reader.last_message_ids())
        while reader.has_message_available():
            for entry in self._entries(reader, last):
                if entry.producer_name == self._name:
                    yield from zip(entry.sequence_ids(), _rows_of(entry), strict=True)
                if (entry.ledger_id, entry.entry_id) >= last:
                    return

    def _entries(
        self, reader: geminga.blocking.Reader[bytes], last: tuple[int, int]
    ) -> Sequence[EntryBatch]:
        deadline_s = time.monotonic() + READ_TIMEOUT_S
        while True:
            try:
                return reader.read_batches(READ_WAIT_S, bytes_max=BYTES_MAX)
            except geminga.OperationTimeoutError:
                received = max((each.ledger_id, each.entry_id) for each in reader.received_ids())
                if received >= last or not reader.has_message_available():
                    # Chunks without the last one, or transaction markers.
                    return []
                if time.monotonic() > deadline_s:
                    raise


def _rows_of(entry: EntryBatch) -> list[Row]:
    """Raises NotComparable."""
    if entry.is_encrypted:
        raise NotComparable("the messages are encrypted")
    return [
        Row(*each)
        for each in zip(
            entry.payloads(),
            entry.nulls(),
            entry.keys_as_bytes(),
            entry.ordering_keys(),
            entry.event_times_ms(),
            entry.properties(),
            strict=True,
        )
    ]
