"""A received entry, whole: for programs that work on columns rather than on messages (spec SDK-28,
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
"""Metadata of messages, one behind the other, that tell nothing but payload size and sequence id.
"""
_SEQUENCE_ID = b"\x40"
"""Its tag; a payload size may have the same byte, and then the sequence ids are read."""
_NOTHING, _NUMBERED, _ANYTHING = range(3)
"""What the messages of a batch tell of themselves, at most."""


class EntryBatch:
    """The messages of one entry (a batch, or a single message), as `Reader.read_batches` returns
    them: columns instead of messages. Each column is a new list in the order of `indexes`.

    What describes the messages is read when it is asked for, once; a batch whose messages have
    neither keys nor properties nor event times is not even read then. All of these columns raise
    CorruptMessageError for a batch in which what describes a message can't be read.
    """

    __slots__ = ("_described", "_entry", "_told", "indexes")

    indexes: Sequence[int]
    """Which messages of the batch these are: all, but for those before the reader's start, those
    that compaction took out, and those that were read one by one. -1 alone for an entry that is no
    batch.
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
        """How many messages it has to be read."""
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
        """The entry's number in its ledger; that of the last one of a message in chunks."""
        return self._entry.entry_id

    @property
    def partition(self) -> int:
        """Index of the topic's partition, -1 if it has none."""
        return self._entry.partition

    @property
    def message_count(self) -> int:
        """Messages of the batch as it was published, 1 for an entry that is no batch."""
        return self._entry.message_count

    @property
    def publish_time_ms(self) -> int:
        """When the producer sent it, in ms since 1970."""
        return self._entry.metadata.publish_time

    @property
    def producer_name(self) -> str:
        """Name of the producer."""
        return self._entry.metadata.producer_name

    @property
    def redelivery_count(self) -> int:
        """How often the broker has delivered it before: 0, since readers have it delivered once."""
        return self._entry.redelivery_count

    @property
    def schema_version(self) -> bytes | None:
        """Version of the topic's schema that it was written with, None without one."""
        return self._entry.metadata.schema_version or None

    @property
    def is_encrypted(self) -> bool:
        """Whether the payload is as the broker has it, since it couldn't be decrypted
        (`ConsumerCryptoFailureAction.CONSUME`): a batch is one payload then.
        """
        return self._entry.is_encrypted

    @property
    def encryption_context(self) -> EncryptionContext | None:
        """How it was encrypted, None if it came plain."""
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
            # Between a payload and the next message's metadata stands the size of the latter.
            return [
                payload[start : stop - 4]
                for start, stop in zip(starts, bounds[2 * first + 2 : 2 * end + 1 : 2], strict=True)
            ]
        return [payload[bounds[2 * n + 1] : bounds[2 * n + 2] - 4] for n in indexes]

    def message_ids(self) -> list[MessageId]:
        """Where the messages stand."""
        entry = self._entry
        ledger_id, entry_id, partition = entry.ledger_id, entry.entry_id, entry.partition
        if entry.bounds is None:
            return [entry.id_of(-1)]
        count = entry.message_count
        return [MessageId(ledger_id, entry_id, partition, n, count) for n in self.indexes]

    def nulls(self) -> list[bool]:
        """Whether they say that their keys are deleted (tombstones for compaction)."""
        if self._glance() != _ANYTHING:
            return [False] * len(self.indexes)
        return [each.null_value for each in self._all()]

    def keys(self) -> list[str | None]:
        """The keys that chose the partition. Those that were given as bytes are their Base64 text.
        Wrong UTF-8 is replaced, as Java does.
        """
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
        """The same as bytes, for keys that were given as bytes. Raises CorruptMessageError if one
        isn't the Base64 that it says it is.
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
        """The keys that Key_Shared orders by, where these aren't the partition keys."""
        if self._glance() != _ANYTHING:
            return [None] * len(self.indexes)
        return [
            each.ordering_key if each.HasField("ordering_key") else None for each in self._all()
        ]

    def event_times_ms(self) -> list[int | None]:
        """Event times that the program gave, in ms since 1970, None without one."""
        if self._glance() != _ANYTHING:
            return [None] * len(self.indexes)
        return [each.event_time or None for each in self._all()]

    def properties(self) -> list[dict[str, str]]:
        """The program's own properties."""
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
        """The producer's numbers for them."""
        first = self._entry.metadata.sequence_id
        if self._entry.bounds is None:
            return [first]
        if self._glance() == _NOTHING:
            return [first + n for n in self.indexes]
        return [
            told if (told := each.sequence_id) or each.HasField("sequence_id") else first + n
            for n, each in zip(self.indexes, self._all(), strict=True)
        ]

    # ---- what describes them ----

    def _glance(self) -> int:
        """How much the messages surely don't tell of themselves."""
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
        """What describes each message of a batch, as it came."""
        entry = self._entry
        payload = entry.payload
        bounds = entry.bounds
        assert bounds is not None, "only a batch's messages are described by themselves"
        return [payload[bounds[2 * n] : bounds[2 * n + 1]] for n in self.indexes]

    def _all(self) -> _Described:
        """What describes each message. Raises CorruptMessageError."""
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
