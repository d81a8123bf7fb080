"""Batches and chunks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol import chunking
from geminga_protocol._tests.strategies import messages
from geminga_protocol.batch import BatchBuilder, split_batch
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata


def metadata_of(count: int) -> MessageMetadata:
    return MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, num_messages_in_batch=count
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(messages(SingleMessageMetadata), st.binary(max_size=30)), min_size=1, max_size=5
    )
)
def test_round_trip(sent: list[tuple[SingleMessageMetadata, bytes]]) -> None:
    builder = BatchBuilder()
    for index, (single, body) in enumerate(sent):
        assert builder.add(single, body) == index
    size = builder.size_bytes
    built = builder.build()
    assert len(built) == size
    assert (builder.messages, builder.size_bytes) == (0, 0)
    assert split_batch(metadata_of(len(sent)), memoryview(built)) == sent
    for cut in range(len(built)):
        with pytest.raises(RemoteProtocolError):
            split_batch(metadata_of(len(sent)), memoryview(built)[:cut])


def test_bounds() -> None:
    builder = BatchBuilder(messages_max=2, bytes_max=100)
    assert builder.fits(1000)
    builder.add(SingleMessageMetadata(), b"x" * 50)
    assert builder.fits(10)
    assert not builder.fits(90)
    builder.add(SingleMessageMetadata(), b"y")
    assert builder.full
    assert not builder.fits(0)


def test_a_wrong_count_allocates_nothing() -> None:
    with pytest.raises(RemoteProtocolError, match="ends after 0"):
        split_batch(metadata_of((1 << 31) - 1), memoryview(b""))


def test_a_negative_payload_size_is_an_error() -> None:
    encoded = SingleMessageMetadata(payload_size=-3).SerializeToString()
    data = len(encoded).to_bytes(4, "big") + encoded + b"abc"
    with pytest.raises(RemoteProtocolError, match="cut off"):
        split_batch(metadata_of(2), memoryview(data))


@given(st.integers(-1, 5), st.binary(max_size=40))
def test_any_bytes_give_a_result_or_a_protocol_error(count: int, data: bytes) -> None:
    try:
        split_batch(metadata_of(count), memoryview(data))
    except RemoteProtocolError:
        pass


@given(st.binary(max_size=100), st.integers(1, 30))
def test_chunks_join_again(body: bytes, chunk_bytes_max: int) -> None:
    joined = b""
    for chunk, part in chunking.cut(memoryview(body), "p-1", chunk_bytes_max):
        metadata = metadata_of(1)
        chunking.mark(metadata, chunk)
        read = chunking.chunk_of(metadata, chunks_max=1000, bytes_max=1000)
        assert read == (chunk if chunk.chunks > 1 else None)
        assert chunk.total_bytes == len(body)
        assert len(part) <= chunk_bytes_max
        joined += part
    assert joined == body


def test_inconsistent_chunk_numbers() -> None:
    with pytest.raises(LocalProtocolError):
        list(chunking.cut(memoryview(b"x"), "p-1", 0))
    for chunk_id, chunks, total in ((2, 2, 5), (-1, 2, 5), (0, 2, -1), (0, 11, 5), (0, 2, 101)):
        metadata = metadata_of(1)
        chunking.mark(metadata, chunking.Chunk("u", chunk_id, chunks, total))
        with pytest.raises(RemoteProtocolError):
            chunking.chunk_of(metadata, chunks_max=10, bytes_max=100)
