"""Headers and payload: parts, checksums, broker entry metadata, wrong lengths."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol import payload
from geminga_protocol._tests.strategies import messages
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata

METADATA = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)


@settings(max_examples=30, deadline=None)
@given(messages(MessageMetadata), st.binary(max_size=40), st.booleans(), st.booleans())
def test_split_is_the_inverse_of_build(
    metadata: MessageMetadata, body: bytes, checksum: bool, broker_entry: bool
) -> None:
    built = payload.build(metadata, body, checksum)
    assert payload.verify_checksum(memoryview(built))
    entry = memoryview((payload.broker_entry_prefix(5, 6) if broker_entry else b"") + built)
    parts = payload.split(entry)
    assert parts.metadata == metadata.SerializeToString()
    assert parts.payload == body
    assert (parts.checksum is not None) == checksum
    assert payload.parse_metadata(entry) == metadata
    assert payload.strip_broker_entry_metadata(entry) == built
    expected = BrokerEntryMetadata(broker_timestamp=5, index=6) if broker_entry else None
    assert payload.peek_broker_entry_metadata(entry) == expected
    if expected is not None:
        assert parts.broker_entry_metadata == expected.SerializeToString()
    else:
        assert parts.broker_entry_metadata is None


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))
def test_prefix_equals_protobuf(timestamp_ms: int, index: int) -> None:
    encoded = BrokerEntryMetadata(broker_timestamp=timestamp_ms, index=index).SerializeToString()
    expected = b"\x0e\x02" + len(encoded).to_bytes(4, "big") + encoded
    assert payload.broker_entry_prefix(timestamp_ms, index) == expected


def test_every_flipped_bit_is_found() -> None:
    built = payload.build(METADATA, b"body")
    for bit in range(16, len(built) * 8):
        damaged = bytearray(built)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not payload.verify_checksum(memoryview(bytes(damaged)))


def test_nothing_to_verify() -> None:
    assert payload.verify_checksum(memoryview(b""))
    assert payload.verify_checksum(memoryview(payload.build(METADATA, b"x", checksum=False)))


@pytest.mark.parametrize("prefix", [b"", payload.broker_entry_prefix(5, 6)])
def test_every_truncation_is_an_error_or_loses_only_payload(prefix: bytes) -> None:
    built = prefix + payload.build(METADATA, b"body")
    whole = payload.split(memoryview(built))
    for size in range(len(built)):
        view = memoryview(built)[:size]
        if size < len(built) - len(whole.payload):
            with pytest.raises(RemoteProtocolError):
                payload.split(view)
            with pytest.raises(RemoteProtocolError):
                payload.parse_metadata(view)
        else:
            assert payload.split(view).metadata == whole.metadata


@given(st.binary(max_size=60))
def test_any_bytes_give_a_result_or_a_protocol_error(data: bytes) -> None:
    for front in (b"", b"\x0e\x01", b"\x0e\x02\x00\x00\x00", b"\x0e\x02\x00\x00\x00\x04\x08\x01"):
        view = memoryview(front + data)
        payload.verify_checksum(view)
        for read in (
            payload.split,
            payload.parse_metadata,
            payload.strip_broker_entry_metadata,
            payload.peek_broker_entry_metadata,
        ):
            try:
                read(view)
            except RemoteProtocolError:
                pass


def test_missing_fields() -> None:
    with pytest.raises(RemoteProtocolError, match="publish_time"):
        payload.decode_metadata(b"\x0a\x01p\x10\x01")
    with pytest.raises(LocalProtocolError):
        payload.build(MessageMetadata(producer_name="p"), b"")
