"""A stored message as a response: its payload, and its metadata as headers (spec OP-04; Apache's
`PersistentTopicsBase.generateResponseWithEntry`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import trio
from starlette.responses import Response

from geminga_broker.admin.answers import BYTES
from geminga_broker.admin.rest import RestError, encoded
from geminga_broker.compaction.batches import UNCOMPRESSED_BYTES_MAX
from geminga_broker.log.api import Entry
from geminga_protocol import compression, payload
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.messages import text
from geminga_protocol.pb.pulsar_api_pb2 import (
    BrokerEntryMetadata,
    CompressionType,
    MessageMetadata,
)

INLINE_BYTES_MAX = 256 << 10
"""Payloads that are larger when unpacked are unpacked in a thread: the loop must not wait."""

HEADERS_BYTES_MAX = 8 << 10
"""Apache's server fails with 500, too, if an answer's headers are larger."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = ("publish_time", "event_time", "deliver_at_time")
_PLAIN = (
    "null_value", "producer_name", "sequence_id", "replicated_from", "partition_key",
    "uncompressed_size", "encryption_algo", "partition_key_b64_encoded", "marker_type",
    "txnid_least_bits", "txnid_most_bits", "highest_sequence_id", "uuid", "num_chunks_from_msg",
    "total_chunk_msg_size", "chunk_id", "null_partition_key",
)  # fmt: skip
_BINARY = ("encryption_param", "schema_version", "ordering_key")


async def message_response(entry: Entry) -> Response:
    """200 with the uncompressed payload of the entry, and headers `X-Pulsar-...`. Raises RestError
    500 for an entry that can't be read as a message.
    """
    try:
        metadata, parts = entry.metadata, payload.split(entry.data)
        if len(parts.metadata) > HEADERS_BYTES_MAX:
            raise _too_long(entry)  # before megabytes of them are made to text
        body = await _uncompressed(metadata, parts.payload)
        found = _headers(entry, metadata, len(parts.metadata))
        headers = [(name.encode("ascii"), _value(value)) for name, value in found]
    except (RemoteProtocolError, LocalProtocolError) as error:
        raise RestError(500, f"The entry {entry.position} can't be read: {error}") from None
    if sum(len(name) + len(value) + 4 for name, value in headers) > HEADERS_BYTES_MAX:
        raise _too_long(entry)
    response = encoded(body, BYTES)
    # Java's admin client looks for names in this case.
    response.raw_headers += headers
    return response


def _too_long(entry: Entry) -> RestError:
    text = f"The metadata of {entry.position} don't fit in {HEADERS_BYTES_MAX} bytes of headers"
    return RestError(500, text)


async def _uncompressed(metadata: MessageMetadata, packed: memoryview) -> bytes:
    kind, size = metadata.compression, metadata.uncompressed_size
    if kind == CompressionType.NONE:
        return bytes(packed)
    if size <= INLINE_BYTES_MAX:
        return bytes(compression.decompress(kind, packed, size, UNCOMPRESSED_BYTES_MAX))
    return bytes(
        await trio.to_thread.run_sync(
            compression.decompress, kind, packed, size, UNCOMPRESSED_BYTES_MAX
        )
    )


def _headers(
    entry: Entry, metadata: MessageMetadata, metadata_bytes: int
) -> Iterator[tuple[str, object]]:
    yield "X-Pulsar-Message-ID", str(entry.position)
    properties = {text(each.key): text(each.value) for each in metadata.properties}
    yield "X-Pulsar-PROPERTY", msgspec.json.encode(properties).decode()
    if (broker := entry.broker_metadata) is not None:
        yield from _broker_headers(broker)
    for name in _TIMES:
        if metadata.HasField(name):
            yield _header(name), _instant(getattr(metadata, name))
    if metadata.HasField("num_messages_in_batch"):
        yield "X-Pulsar-num-batch-message", metadata.num_messages_in_batch
        yield "X-Pulsar-batch-size", entry.size - metadata_bytes
    yield "X-Pulsar-Is-Encrypted", bool(metadata.encryption_keys)
    for name in _PLAIN:
        if metadata.HasField(name):
            yield _header(name), getattr(metadata, name)
    if metadata.HasField("num_chunks_from_msg"):
        yield "X-Pulsar-PROPERTY-TOTAL-CHUNKS", metadata.num_chunks_from_msg
        yield "X-Pulsar-PROPERTY-CHUNK-ID", metadata.chunk_id
    if metadata.HasField("compression"):
        yield "X-Pulsar-compression", CompressionType.Name(metadata.compression)
    for cluster in metadata.replicate_to:
        yield "X-Pulsar-replicated-to", text(cluster)
    for key in metadata.encryption_keys:
        yield "X-Pulsar-Base64-encryption-keys", b64encode(key.SerializeToString()).decode()
    yield "X-Pulsar-txn-uncommitted", False
    for name in _BINARY:
        if metadata.HasField(name):
            header = f"X-Pulsar-Base64-{name.replace('_', '-')}"
            yield header, b64encode(getattr(metadata, name)).decode()


def _broker_headers(broker: BrokerEntryMetadata) -> Iterator[tuple[str, object]]:
    prefix = "X-Pulsar-Broker-Entry-METADATA"
    if broker.HasField("broker_timestamp"):
        yield f"{prefix}-timestamp", _instant(broker.broker_timestamp)
    if broker.HasField("index"):
        yield f"{prefix}-index", broker.index


def _header(field: str) -> str:
    return f"X-Pulsar-{field.replace('_', '-')}"


def _instant(milliseconds: int) -> str:
    """As Java writes an instant: `2026-11-26T01:01:42.13Z`, without ending zeros."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    fraction = f".{milliseconds % 1000:03}".rstrip("0").rstrip(".")
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _value(value: object) -> bytes:
    """A header's bytes. A client chose most texts: line ends must not begin another header. What
    Latin-1 lacks is a space, as from Apache's server.
    """
    if isinstance(value, bool):
        return str(value).lower().encode()
    shown = text(value) if isinstance(value, bytes) else str(value)
    return "".join(c if " " <= c <= "\xff" else " " for c in shown).strip().encode("latin-1")
