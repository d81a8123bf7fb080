"""A whole received entry, for programs that process columns instead of messages (spec SDK-28,
SP-03).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from geminga._entries.batch_index import all_metadata
from geminga._entries.crypto import context_of
from geminga._entries.entry import Entry
from geminga.encryption import EncryptionContext
from geminga.errors import CorruptMessageError
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.keys import decode_key
from geminga_protocol.message_id import MessageId
from geminga_protocol.messages import text
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

_Described = Sequence[MessageMetadata | SingleMessageMetadata]
_match_plain = re.compile(
    rb"(?:[\x18\x40][\x80-\xff]*+[\x00-\x7f])*+", re.DOTALL
).fullmatch  # fmt: skip
"""Consecutive metadata of messages with nothing but payload size and sequence id."""
_SEQUENCE_ID = b"\x40"
"""Its tag; if a payload size has the same byte, the sequence ids are read needlessly."""
_NOTHING, _NUMBERED, _ANYTHING = range(3)
"""The possible content of a batch's message metadata."""


class EntryBatch:
    """The messages of one entry (a batch, or a single message) as columns, returned by
    `Reader.read_batches`. Each column is a new list in the order of `indexes`.

    Message metadata are parsed once, on first use, and only if messages have keys, properties or
    event times. These columns raise CorruptMessageError for a batch with unreadable message
    metadata.
    """

    __slots__ = ("_described", "_entry", "_told", "indexes")

    indexes: Sequence[int]
    """Indexes in the batch: all, except messages before the reader's start, removed by compaction,
    or read one by one. [-1] for an entry that is not a batch.
    """

    def __init__(self, entry: Entry, indexes: Sequence[int]) -> None:
        self._entry = entry
        self.indexes = indexes
        self._told = -1
        self._described: _Described | None = None

    def __repr__(self) -> str:
        place = f"{self.ledger_id}:{self.entry_id}"
        return f"<EntryBatch {place} of {self.topic_name}, {len(self.indexes)} messages>"

    def __len__(self) -> int:
        """Number of messages."""
        return len(self.indexes)

    # ---- of the entry ----

    @property
    def topic_name(self) -> str:
        """Full name of the topic, with its partition."""
        return self._entry.topic

    @property
    def ledger_id(self) -> int:
        """Ledger of the entry."""
        return self._entry.ledger_id

    @property
    def entry_id(self) -> int:
        """The entry's number in its ledger; for a chunked message that of its last chunk."""
        return self._entry.entry_id

    @property
    def partition(self) -> int:
        """Index of the topic's partition, -1 if it has none."""
        return self._entry.partition

    @property
    def message_count(self) -> int:
        """Messages of the batch as published; 1 for an entry that is not a batch."""
        return self._entry.message_count

    @property
    def publish_time_ms(self) -> int:
        """The producer's publish time, in ms since 1970."""
        return self._entry.metadata.publish_time

    @property
    def producer_name(self) -> str:
        """Name of the producer."""
        return self._entry.metadata.producer_name

    @property
    def redelivery_count(self) -> int:
        """Number of earlier deliveries by the broker: 0, as readers get a message once."""
        return self._entry.redelivery_count

    @property
    def schema_version(self) -> bytes | None:
        """Version of the topic's schema that it was written with, or None."""
        return self._entry.metadata.schema_version or None

    @property
    def is_encrypted(self) -> bool:
        """Whether the payload is still encrypted, as it couldn't be decrypted
        (`ConsumerCryptoFailureAction.CONSUME`); then a batch is one payload.
        """
        return self._entry.is_encrypted

    @property
    def encryption_context(self) -> EncryptionContext | None:
        """How it was encrypted; None if it was not."""
        return context_of(self._entry.metadata, self._entry.is_encrypted)

    @property
    def size_bytes(self) -> int:
        """Bytes of the payloads."""
        entry = self._entry
        if self.indexes is entry.indexes:
            return entry.size_between(0, len(self.indexes))
        return entry.size_of_all(self.indexes)

    # ---- of the messages ----

    def payloads(self) -> list[bytes]:
        """The payloads."""
        entry = self._entry
        payload = entry.payload
        bounds = entry.bounds
        if bounds is None:
            return [payload]
        indexes = self.indexes
        if isinstance(indexes, range):
            first, end = indexes.start, indexes.stop
            starts = bounds[2 * first + 1 : 2 * end : 2]
            # The size of the next message's metadata follows each payload.
            return [
                payload[start : stop - 4]
                for start, stop in zip(starts, bounds[2 * first + 2 : 2 * end + 1 : 2], strict=True)
            ]
        return [payload[bounds[2 * n + 1] : bounds[2 * n + 2] - 4] for n in indexes]

    def message_ids(self) -> list[MessageId]:
        """The ids of the messages."""
        entry = self._entry
        ledger_id, entry_id, partition = entry.ledger_id, entry.entry_id, entry.partition
        if entry.bounds is None:
            return [entry.id_of(-1)]
        count = entry.message_count
        return [MessageId(ledger_id, entry_id, partition, n, count) for n in self.indexes]

    def nulls(self) -> list[bool]:
        """Whether each is null, which deletes its key (a tombstone for compaction)."""
        if self._glance() != _ANYTHING:
            return [False] * len(self.indexes)
        return [each.null_value for each in self._all()]

    def keys(self) -> list[str | None]:
        """Partition keys; if given as bytes, in Base64. As in Java, invalid UTF-8 is replaced."""
        if self._glance() != _ANYTHING:
            return [None] * len(self.indexes)
        found = [
            key if (key := each.partition_key) or each.HasField("partition_key") else None
            for each in self._all()
        ]
        if bytes in map(type, found):
            return [None if key is None else text(key) for key in found]
        return found

    def keys_as_bytes(self) -> list[bytes | None]:
        """Partition keys that were given as bytes, else None. Raises CorruptMessageError for
        invalid Base64.
        """
        if self._glance() != _ANYTHING:
            return [None] * len(self.indexes)
        try:
            return [
                None if key is None else decode_key(key) if is_base64 else key.encode()
                for key, is_base64 in zip(
                    self.keys(),
                    [each.partition_key_b64_encoded for each in self._all()],
                    strict=True,
                )
            ]
        except RemoteProtocolError as error:
            raise self._corrupt(error) from error

    def ordering_keys(self) -> list[bytes | None]:
        """Ordering keys for Key_Shared, if they differ from the partition keys."""
        if self._glance() != _ANYTHING:
            return [None] * len(self.indexes)
        return [
            each.ordering_key if each.HasField("ordering_key") else None for each in self._all()
        ]

    def event_times_ms(self) -> list[int | None]:
        """Event times set by the program, in ms since 1970, or None."""
        if self._glance() != _ANYTHING:
            return [None] * len(self.indexes)
        return [each.event_time or None for each in self._all()]

    def properties(self) -> list[dict[str, str]]:
        """Properties set by the program."""
        if self._glance() != _ANYTHING:
            return [{} for _ in self.indexes]
        found = [
            {pair.key: pair.value for pair in pairs} if (pairs := each.properties) else {}
            for each in self._all()
        ]
        kinds: set[type] = {type(word) for each in found for pair in each.items() for word in pair}
        if bytes in kinds:
            return [{text(key): text(value) for key, value in each.items()} for each in found]
        return found

    def sequence_ids(self) -> list[int]:
        """The producer's sequence ids."""
        first = self._entry.metadata.sequence_id
        if self._entry.bounds is None:
            return [first]
        if self._glance() == _NOTHING:
            return [first + n for n in self.indexes]
        return [
            told if (told := each.sequence_id) or each.HasField("sequence_id") else first + n
            for n, each in zip(self.indexes, self._all(), strict=True)
        ]

    # ---- their metadata ----

    def _glance(self) -> int:
        """A cheap check of what the message metadata surely don't contain."""
        told = self._told
        if told < 0:
            told = _ANYTHING
            if self._entry.bounds is not None:
                joined = b"".join(self._texts())
                if _match_plain(joined):
                    told = _NUMBERED if _SEQUENCE_ID in joined else _NOTHING
            self._told = told
        return told

    def _texts(self) -> list[bytes]:
        """The encoded metadata of each message of a batch."""
        entry = self._entry
        payload = entry.payload
        bounds = entry.bounds
        assert bounds is not None, "only a batch's messages are described by themselves"
        return [payload[bounds[2 * n] : bounds[2 * n + 1]] for n in self.indexes]

    def _all(self) -> _Described:
        """The metadata of each message. Raises CorruptMessageError."""
        found = self._described
        if found is None:
            entry = self._entry
            try:
                found = [entry.metadata] if entry.bounds is None else all_metadata(self._texts())
            except RemoteProtocolError as error:
                raise self._corrupt(error) from error
            self._described = found
        return found

    def _corrupt(self, error: RemoteProtocolError) -> CorruptMessageError:
        place = f"{self.ledger_id}:{self.entry_id}"
        return CorruptMessageError(f"message {place}: {error}", topic=self.topic_name)
