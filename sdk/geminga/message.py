"""A received message (spec SDK-20; Message of the official clients, properties for methods)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic

import msgspec

from geminga._entries.crypto import context_of
from geminga._entries.entry import Entry
from geminga.encryption import EncryptionContext
from geminga.errors import CorruptMessageError
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.keys import decode_key
from geminga_protocol.message_id import MessageId
from geminga_protocol.messages import text
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import TypeVar

    V_co = TypeVar("V_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    V_co = TypeVar("V_co", covariant=True)


class Message(msgspec.Struct, Generic[V_co], eq=False):
    """One message, as `receive` returns it. Its parts are read out of the entry when asked for.
    `V_co` is the type of its value.

    Keys, properties, times and sequence ids of a message in a batch raise CorruptMessageError if
    what describes it can't be read.
    """

    _entry: Entry
    _index: int

    def __repr__(self) -> str:
        return f"<Message {self.message_id!r} of {self.topic_name}, {len(self.data)} bytes>"

    def replace(
        self, *, data: bytes | None = None, properties: Mapping[str, str] | None = None
    ) -> Message[V_co]:
        """The same message with another payload or other properties, for interceptors to hand on.
        All else stays, acknowledging too.
        """
        return ChangedMessage(
            self._entry,
            self._index,
            self.data if data is None else data,
            self.properties if properties is None else dict(properties),
        )

    @property
    def data(self) -> bytes:
        """The payload."""
        return self._entry.payload_of(self._index)

    @property
    def value(self) -> V_co:
        """What the payload says by the consumer's schema; without one the payload itself. None for
        a message that says that it is null. It is decoded anew each time.

        Raises UndecodableValueError, and SchemaUnavailableError if the schema that it was written
        with can't be had; `receive` raises neither, and the message can be acknowledged all the
        same.
        """
        reader = self._entry.value_reader
        found: V_co
        if reader is None:
            found = self.data  # type: ignore[assignment]
        else:
            found = reader.value_of(self)
        return found

    @property
    def message_id(self) -> MessageId:
        """Where the message stands; orders the messages of one partition."""
        return self._entry.id_of(self._index)

    @property
    def topic_name(self) -> str:
        """Full name of the topic, with its partition."""
        return self._entry.topic

    @property
    def topic(self) -> str:
        """The same as `topic_name`."""
        return self.topic_name

    @property
    def properties(self) -> dict[str, str]:
        """The program's own properties."""
        return {text(pair.key): text(pair.value) for pair in self._described().properties}

    @property
    def partition_key(self) -> str | None:
        """The key that chose the partition, None without one."""
        metadata = self._described()
        return text(metadata.partition_key) if metadata.HasField("partition_key") else None

    @property
    def key(self) -> str | None:
        """The same as `partition_key`."""
        return self.partition_key

    @property
    def partition_key_bytes(self) -> bytes | None:
        """The same as bytes, for keys that were given as bytes. Raises CorruptMessageError if it
        isn't the Base64 that it says it is.
        """
        metadata = self._described()
        if not metadata.HasField("partition_key"):
            return None
        if not metadata.partition_key_b64_encoded:
            return text(metadata.partition_key).encode()
        try:
            return decode_key(text(metadata.partition_key))
        except RemoteProtocolError as error:
            raise self._corrupt(error) from error

    @property
    def has_base64_key(self) -> bool:
        """Whether the key was given as bytes: `partition_key` is their Base64 text then."""
        return self._described().partition_key_b64_encoded

    @property
    def ordering_key(self) -> bytes | None:
        """The key that Key_Shared orders by, where it isn't the partition key."""
        metadata = self._described()
        return metadata.ordering_key if metadata.HasField("ordering_key") else None

    @property
    def event_time_ms(self) -> int | None:
        """Event time that the program gave, in ms since 1970, None without one."""
        return self._described().event_time or None

    @property
    def publish_time_ms(self) -> int:
        """When the producer sent it, in ms since 1970."""
        return self._entry.metadata.publish_time

    @property
    def is_null(self) -> bool:
        """Whether it says that its key is deleted (a tombstone for compaction)."""
        return self._described().null_value

    @property
    def redelivery_count(self) -> int:
        """How often the broker has delivered it before (Shared and Key_Shared)."""
        return self._entry.redelivery_count

    @property
    def producer_name(self) -> str:
        """Name of the producer."""
        return text(self._entry.metadata.producer_name)

    @property
    def sequence_id(self) -> int:
        """The producer's number for it."""
        metadata = self._described()
        if metadata.HasField("sequence_id"):
            return metadata.sequence_id
        return self._entry.metadata.sequence_id + self._index

    @property
    def schema_version(self) -> bytes | None:
        """Version of the topic's schema that it was written with, None without one."""
        metadata = self._entry.metadata
        return metadata.schema_version or None

    @property
    def encryption_context(self) -> EncryptionContext | None:
        """How it was encrypted, None if it came plain."""
        return context_of(self._entry.metadata, self._entry.is_encrypted)

    @property
    def index(self) -> int | None:
        """The message's number in its partition, where the broker tells it (PIP-70)."""
        broker = self._entry.broker_metadata()
        if broker is None or not broker.HasField("index"):
            return None
        entry = self._entry
        behind = 0 if entry.bounds is None else entry.message_count - 1 - self._index
        return broker.index - behind

    @property
    def broker_publish_time_ms(self) -> int | None:
        """When the broker stored it, in ms since 1970, where it tells (PIP-70)."""
        broker = self._entry.broker_metadata()
        if broker is None or not broker.HasField("broker_timestamp"):
            return None
        return broker.broker_timestamp

    def _described(self) -> MessageMetadata | SingleMessageMetadata:
        """What describes this very message: the entry's metadata, or its own within a batch. Raises
        CorruptMessageError.
        """
        try:
            return self._entry.metadata_of(self._index)
        except RemoteProtocolError as error:
            raise self._corrupt(error) from error

    def _corrupt(self, error: RemoteProtocolError) -> CorruptMessageError:
        return CorruptMessageError(f"message {self.message_id!r}: {error}", topic=self.topic_name)


class ChangedMessage(Message[V_co], eq=False):
    """A message as an interceptor would have it."""

    _data: bytes
    _properties: dict[str, str]

    @property
    def data(self) -> bytes:
        """The payload."""
        return self._data

    @property
    def properties(self) -> dict[str, str]:
        """The program's own properties."""
        return dict(self._properties)
