"""Records of the metadata store, valid and damaged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol import managed_ledger
from geminga_protocol._tests.strategies import messages
from geminga_protocol.bookkeeper import ledger_metadata
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.pb.bookkeeper_metadata_pb2 import LedgerMetadataFormat
from geminga_protocol.pb.managed_ledger_pb2 import (
    CompressionType,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)


@settings(max_examples=40, deadline=None)
@given(messages(LedgerMetadataFormat))
def test_ledger_metadata_round_trip(metadata: LedgerMetadataFormat) -> None:
    assert ledger_metadata.parse(ledger_metadata.serialise(metadata)) == metadata


def test_ledger_metadata_torn_anywhere() -> None:
    metadata = LedgerMetadataFormat(
        quorumSize=1, ensembleSize=1, length=5, state=LedgerMetadataFormat.OPEN, password=b"x" * 200
    )
    data = ledger_metadata.serialise(metadata)
    for size in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            ledger_metadata.parse(data[:size])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"BookieMetadataFormatVersion\t1\n",
        b"BookieMetadataFormatVersion\t4\n",
        b"BookieMetadataFormatVersion\t2\nnonsense",
        b"BookieMetadataFormatVersion\t2\n\xff",
        b"BookieMetadataFormatVersion\t2\nquorumSize: 1",
        b"BookieMetadataFormatVersion\t3\n\xff\xff\xff\xff\xff\xff",
        b"BookieMetadataFormatVersion\t3\n\x01\x08",
        b"BookieMetadataFormatVersion\t3\n\x02\x08\x01",
    ],
)
def test_invalid_ledger_metadata(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        ledger_metadata.parse(data)


def test_text_that_is_not_utf8_is_an_error() -> None:
    info = ManagedLedgerInfo()
    info.properties.add(key="k", value="v")
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        managed_ledger.decode_ledger_info(info.SerializeToString().replace(b"v", b"\xff"))
    metadata = LedgerMetadataFormat(quorumSize=1, ensembleSize=1, length=5)
    metadata.state = LedgerMetadataFormat.OPEN
    metadata.segment.add(firstEntryId=0, ensembleMember=["name"])
    data = ledger_metadata.serialise(metadata).replace(b"name", b"nam\xff")
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        ledger_metadata.parse(data)


def test_incomplete_metadata_are_our_own_error() -> None:
    with pytest.raises(LocalProtocolError):
        ledger_metadata.serialise(LedgerMetadataFormat())
    with pytest.raises(LocalProtocolError):
        managed_ledger.encode_cursor_info(ManagedCursorInfo())


@settings(max_examples=30, deadline=None)
@given(
    messages(ManagedLedgerInfo),
    messages(ManagedCursorInfo),
    messages(PositionInfo),
    st.sampled_from(list(CompressionType.values())),
)
def test_managed_ledger_round_trip(
    info: ManagedLedgerInfo,
    cursor: ManagedCursorInfo,
    position: PositionInfo,
    kind: CompressionType,
) -> None:
    encoded = managed_ledger.encode_ledger_info(info, kind)
    assert managed_ledger.decode_ledger_info(encoded) == info
    encoded = managed_ledger.encode_cursor_info(cursor, kind)
    assert managed_ledger.decode_cursor_info(encoded) == cursor
    encoded = managed_ledger.encode_position_info(position)
    assert managed_ledger.decode_position_info(encoded) == position


@given(st.binary(max_size=40))
def test_any_bytes_give_a_result_or_a_protocol_error(data: bytes) -> None:
    for front in (b"", b"\x47\x78\x00\x00\x00", b"\x47\x78\x00\x00\x00\x04\x08\x01\x10\x05"):
        for decode in (
            managed_ledger.decode_ledger_info,
            managed_ledger.decode_cursor_info,
            managed_ledger.decode_position_info,
        ):
            try:
                decode(front + data)
            except RemoteProtocolError:
                pass
    try:
        ledger_metadata.parse(b"BookieMetadataFormatVersion\t3\n" + data)
    except RemoteProtocolError:
        pass


def test_a_lying_uncompressed_size_is_an_error() -> None:
    about = b"\x08\x02\x10\xff\xff\xff\xff\x07"
    data = b"\x47\x78" + len(about).to_bytes(4, "big") + about + b"x"
    with pytest.raises(RemoteProtocolError):
        managed_ledger.decode_ledger_info(data)
