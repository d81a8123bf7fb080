"""Chunks of one large message (spec PR-10, PIP-37; Apache's ProducerImpl and ChunkedMessageCtx)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata


class Chunk(NamedTuple):
    """A chunk's numbers: `chunk_id` of `chunks` of a message of `total_bytes` bytes."""

    uuid: str
    chunk_id: int
    chunks: int
    total_bytes: int


def chunk_of(metadata: MessageMetadata, *, chunks_max: int, bytes_max: int) -> Chunk | None:
    """The chunk's numbers, None for a message that isn't chunked.

    Raises RemoteProtocolError for inconsistent numbers, and for more chunks or bytes than the
    reader would put together.
    """
    if not metadata.uuid or metadata.num_chunks_from_msg <= 1:
        return None
    chunk = Chunk(
        metadata.uuid,
        metadata.chunk_id,
        metadata.num_chunks_from_msg,
        metadata.total_chunk_msg_size,
    )
    if not 0 <= chunk.chunk_id < chunk.chunks or chunk.total_bytes < 0:
        raise RemoteProtocolError(f"chunk numbers don't fit: {chunk}")
    if chunk.chunks > chunks_max or chunk.total_bytes > bytes_max:
        raise RemoteProtocolError(f"chunked message is above the limits: {chunk}")
    return chunk


def mark(metadata: MessageMetadata, chunk: Chunk) -> None:
    """Write the chunk's numbers into the metadata of its own frame."""
    metadata.uuid = chunk.uuid
    metadata.chunk_id = chunk.chunk_id
    metadata.num_chunks_from_msg = chunk.chunks
    metadata.total_chunk_msg_size = chunk.total_bytes


def cut(payload: memoryview, uuid: str, chunk_bytes_max: int) -> Iterator[tuple[Chunk, memoryview]]:
    """Cut a (compressed) payload; all chunks but the last have `chunk_bytes_max` bytes.

    `uuid` is `producer name-sequence id`, as Apache's producer makes it. Raises LocalProtocolError
    if metadata leave no room for payload.
    """
    if chunk_bytes_max <= 0:
        raise LocalProtocolError("metadata leave no room for a chunk's payload")
    total = len(payload)
    count = max(1, -(-total // chunk_bytes_max))
    for index in range(count):
        part = payload[index * chunk_bytes_max : (index + 1) * chunk_bytes_max]
        yield Chunk(uuid, index, count, total), part
