"""`Message` and what belongs to it, with the names of the official client."""

from __future__ import annotations

from typing import Any

import geminga.encryption
import geminga.message
from geminga._entries.batch_index import index_batch
from geminga._entries.entry import Entry
from geminga.errors import InvalidArgumentError
from geminga.options import RoutedMessage
from geminga.pulsar._enums import CompressionType
from geminga.pulsar._errors import officially
from geminga.pulsar._ids import MessageId
from geminga.pulsar.schema.schema import BytesSchema, Schema
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata


class EncryptionKey:
    """A data key, encrypted by one of the public keys."""

    def __init__(self, key: Any) -> None:
        self._name, self._info = key

    @property
    def key(self) -> str:
        """The public key's name."""
        return str(self._name)

    @property
    def value(self) -> bytes:
        """The encrypted data key."""
        found: bytes = self._info.key
        return found

    @property
    def metadata(self) -> dict[str, str]:
        """What was sent with the key."""
        return dict(self._info.metadata)

    def __str__(self) -> str:
        size = len(self.value)
        return f"EncryptionKey(key={self.key}, value_len={size}, metadata={self.metadata})"

    __repr__ = __str__


class EncryptionContext:
    """How a message was encrypted and compressed, for programs that decrypt it themselves."""

    def __init__(self, context: Any) -> None:
        self._context: geminga.encryption.EncryptionContext = context

    def keys(self) -> list[EncryptionKey]:
        """The data key, once for each public key."""
        return [EncryptionKey(pair) for pair in self._context.keys.items()]

    def param(self) -> bytes:
        """The initialization vector."""
        return self._context.param

    def algorithm(self) -> str:
        """Empty: no client sets it."""
        return ""

    def compression_type(self) -> CompressionType:
        """Compression of the payload."""
        return CompressionType(self._context.compression_type)

    def uncompressed_message_size(self) -> int:
        """The payload's size when decompressed, 0 without compression."""
        if not self._context.compression_type:
            return 0
        return self._context.uncompressed_size_bytes

    def batch_size(self) -> int:
        """Messages of the batch, -1 if it is not a batch."""
        size = self._context.batch_size
        return -1 if size is None else size

    def is_decryption_failed(self) -> bool:
        """Whether the payload is still encrypted."""
        return self._context.is_encrypted

    def __str__(self) -> str:
        keys = ", ".join(str(each) for each in self.keys())
        return (
            f"EncryptionContext(algorithm={self.algorithm()}, "
            f"compression_type={self.compression_type().name}, "
            f"uncompressed_message_size={self.uncompressed_message_size()}, "
            f"is_decryption_failed={self.is_decryption_failed()}, keys=[{keys}])"
        )

    __repr__ = __str__


class Message:
    """A received message."""

    _message: geminga.message.Message
    _schema: Schema
    _consumer: object = None

    @staticmethod
    def _made(message: geminga.message.Message, schema: Schema, consumer: object) -> Message:
        made = Message()
        made._message = message
        made._schema = schema
        made._consumer = consumer
        return made

    def data(self) -> bytes:
        """The payload."""
        return self._message.data

    def value(self) -> Any:
        """The payload decoded by the schema, at each call."""
        return self._schema.decode_message(self)

    @officially
    def properties(self) -> dict[str, str]:
        """Properties set by the program."""
        return self._message.properties

    @officially
    def partition_key(self) -> str:
        """The partition key, or an empty text."""
        return self._message.partition_key or ""

    @officially
    def ordering_key(self) -> str:
        """The ordering key, or an empty text."""
        return (self._message.ordering_key or b"").decode(errors="replace")

    def publish_timestamp(self) -> int:
        """The producer's publish time, in ms since 1970."""
        return self._message.publish_time_ms

    @officially
    def event_timestamp(self) -> int:
        """The event time set by the program, in ms since 1970, or 0."""
        return self._message.event_time_ms or 0

    def message_id(self) -> MessageId:
        """The message's id."""
        made = MessageId._of(self._message.message_id, self._message.topic_name)
        made._message, made._consumer = self._message, self._consumer
        return made

    def topic_name(self) -> str:
        """Full name of the topic, with its partition."""
        return self._message.topic_name

    def redelivery_count(self) -> int:
        """Number of earlier deliveries by the broker."""
        return self._message.redelivery_count

    def schema_version(self) -> str:
        """Version of the topic's schema that it was written with: eight characters, or none."""
        return (self._message.schema_version or b"").decode("latin-1")

    def producer_name(self) -> str:
        """Name of the producer."""
        return self._message.producer_name

    @officially
    def has_null_value(self) -> bool:
        """Whether it is null, which deletes its key."""
        return self._message.is_null

    def encryption_context(self) -> EncryptionContext | None:
        """How it was encrypted; None if it was not."""
        context = self._message.encryption_context
        return None if context is None else EncryptionContext(context)


class OutgoingMessage(Message):
    """A message that a `message_router` chooses a partition for: it has what the program gave."""

    def __init__(self, routed: RoutedMessage) -> None:
        self._routed = routed

    def data(self) -> bytes:
        """The payload."""
        return self._routed.data

    def value(self) -> bytes:
        """The payload, as with the official client."""
        return self._routed.data

    def message_id(self) -> MessageId:
        """None yet: the id of nothing."""
        return MessageId()

    def topic_name(self) -> str:
        """Empty as yet."""
        return ""

    def publish_timestamp(self) -> int:
        """0: it is not sent yet."""
        return 0

    def event_timestamp(self) -> int:
        """0: a router doesn't learn it."""
        return 0

    def properties(self) -> dict[str, str]:
        """Properties set by the program."""
        return dict(self._routed.properties)

    def partition_key(self) -> str:
        """The partition key, or an empty text."""
        return self._routed.partition_key or ""

    def ordering_key(self) -> str:
        """The ordering key, or an empty text."""
        return (self._routed.ordering_key or b"").decode(errors="replace")


class MessageBatch:
    """Splits a batch's decompressed payload into its messages."""

    def __init__(self) -> None:
        self._id = MessageId()

    def with_message_id(self, msg_id: MessageId) -> MessageBatch:
        """Set the id of the entry. Raises TypeError."""
        if not isinstance(msg_id, MessageId):
            raise TypeError(f"msg_id must be a MessageId, not {type(msg_id).__name__}")
        self._id = msg_id
        return self

    @officially
    def parse_from(self, data: bytes, size: int) -> list[Message]:
        """The `size` messages of the batch. Raises InvalidConfiguration if it can't be read."""
        place = self._id._place
        try:
            bounds = index_batch(size, data)
        except RemoteProtocolError as error:
            raise InvalidArgumentError(f"data: not a batch of {size} messages: {error}") from error
        entry = Entry(
            place.ledger_id,
            place.entry_id,
            place.partition,
            0,
            (),
            MessageMetadata(),
            data,
            None,  # type: ignore[arg-type]  # it is of no consumer
            "",
            message_count=size,
            bounds=bounds,
            indexes=range(size),
        )
        schema = BytesSchema()
        return [
            Message._made(geminga.message.Message(entry, index), schema, None)
            for index in range(size)
        ]


def target(message: object, consumer: object) -> Any:
    """What a consumer of `geminga` takes for a message or an id: the message itself if it has
    received that, else the id. Raises TypeError.
    """
    if not isinstance(message, Message | MessageId):
        kind = type(message).__name__
        raise TypeError(f"message must be a Message or MessageId, not {kind}")
    if message._consumer is consumer and message._message is not None:
        return message._message
    found = message.message_id() if isinstance(message, Message) else message
    return found._place
