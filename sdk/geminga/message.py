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
    """One message, as returned by `receive`; its fields are parsed on use. `V_co` is the type of
    its value.

    Keys, properties, times and sequence ids of a message in a batch raise CorruptMessageError if
    its metadata can't be read.
    """

    _entry: Entry
    _index: int

    def __repr__(self) -> str:
        return f"<Message {self.message_id!r} of {self.topic_name}, {len(self.data)} bytes>"

    def replace(
        self, *, data: bytes | None = None, properties: Mapping[str, str] | None = None
    ) -> Message[V_co]:
        """A copy with another payload or other properties, for interceptors to return. It can be
        acknowledged as the original.
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
        """The payload decoded by the consumer's schema; without a schema the payload itself. None
        for a null message. It is decoded at each call.

        Raises UndecodableValueError, and SchemaUnavailableError if the writer's schema can't be
        fetched; `receive` raises neither, and the message can still be acknowledged.
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
        """The message's id; ids of one partition are ordered."""
        return self._entry.id_of(self._index)

    @property
    def topic_name(self) -> str:
        """Full name of the topic, with its partition."""
        return self._entry.topic

    @property
    def topic(self) -> str:
        """`topic_name`."""
        return self.topic_name

    @property
    def properties(self) -> dict[str, str]:
        """Properties set by the program."""
        return {text(pair.key): text(pair.value) for pair in self._described().properties}

    @property
    def partition_key(self) -> str | None:
        """The partition key, or None."""
        metadata = self._described()
        return text(metadata.partition_key) if metadata.HasField("partition_key") else None

    @property
    def key(self) -> str | None:
        """`partition_key`."""
        return self.partition_key

    @property
    def partition_key_bytes(self) -> bytes | None:
        """The partition key if it was given as bytes, else None. Raises CorruptMessageError for
        invalid Base64.
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
        """Whether the key was given as bytes; then `partition_key` is in Base64."""
        return self._described().partition_key_b64_encoded

    @property
    def ordering_key(self) -> bytes | None:
        """The ordering key for Key_Shared, if it differs from the partition key."""
        metadata = self._described()
        return metadata.ordering_key if metadata.HasField("ordering_key") else None

    @property
    def event_time_ms(self) -> int | None:
        """The event time set by the program, in ms since 1970, or None."""
        return self._described().event_time or None

    @property
    def publish_time_ms(self) -> int:
        """The producer's publish time, in ms since 1970."""
        return self._entry.metadata.publish_time

    @property
    def is_null(self) -> bool:
        """Whether it is null, which deletes its key (a tombstone for compaction)."""
        return self._described().null_value

    @property
    def redelivery_count(self) -> int:
        """Number of earlier deliveries by the broker (Shared and Key_Shared)."""
        return self._entry.redelivery_count

    @property
    def producer_name(self) -> str:
        """Name of the producer."""
        return text(self._entry.metadata.producer_name)

    @property
    def sequence_id(self) -> int:
        """The producer's sequence id."""
        metadata = self._described()
        if metadata.HasField("sequence_id"):
            return metadata.sequence_id
        return self._entry.metadata.sequence_id + self._index

    @property
    def schema_version(self) -> bytes | None:
        """Version of the topic's schema that it was written with, or None."""
        metadata = self._entry.metadata
        return metadata.schema_version or None

    @property
    def encryption_context(self) -> EncryptionContext | None:
        """How it was encrypted; None if it was not."""
        return context_of(self._entry.metadata, self._entry.is_encrypted)

    @property
    def index(self) -> int | None:
        """The message's number in its partition, if the broker provides it (PIP-70)."""
        broker = self._entry.broker_metadata()
        if broker is None or not broker.HasField("index"):
            return None
        entry = self._entry
        behind = 0 if entry.bounds is None else entry.message_count - 1 - self._index
        return broker.index - behind

    @property
    def broker_publish_time_ms(self) -> int | None:
        """The broker's append time, in ms since 1970, if provided (PIP-70)."""
        broker = self._entry.broker_metadata()
        if broker is None or not broker.HasField("broker_timestamp"):
            return None
        return broker.broker_timestamp

    def _described(self) -> MessageMetadata | SingleMessageMetadata:
        """The message's metadata: the entry's, or its own within a batch. Raises
        CorruptMessageError.
        """
        try:
            return self._entry.metadata_of(self._index)
        except RemoteProtocolError as error:
            raise self._corrupt(error) from error

    def _corrupt(self, error: RemoteProtocolError) -> CorruptMessageError:
        return CorruptMessageError(f"message {self.message_id!r}: {error}", topic=self.topic_name)


class ChangedMessage(Message[V_co], eq=False):
    """A message changed by an interceptor."""

    _data: bytes
    _properties: dict[str, str]

    @property
    def data(self) -> bytes:
        """The payload."""
        return self._data

    @property
    def properties(self) -> dict[str, str]:
        """Properties set by the program."""
        return dict(self._properties)
