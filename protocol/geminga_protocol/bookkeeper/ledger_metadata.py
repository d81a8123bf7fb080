"""A ledger's metadata as BookKeeper stores it (spec BK-20, BK-27; Apache's LedgerMetadataSerDe).

"BookieMetadataFormatVersion\\t3\\n" | size varint | LedgerMetadataFormat        what we write
"BookieMetadataFormatVersion\\t2\\n" | LedgerMetadataFormat as protobuf text     read too
"""

from __future__ import annotations

from google.protobuf import text_format
from google.protobuf.message import DecodeError, EncodeError

from geminga_protocol.encode import varint
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.messages import has_bad_text, missing_fields, parser
from geminga_protocol.pb.bookkeeper_metadata_pb2 import LedgerMetadataFormat

_VERSION_KEY = b"BookieMetadataFormatVersion\t"
_FRONT = _VERSION_KEY + b"3\n"
_parse = parser(LedgerMetadataFormat)


def serialise(metadata: LedgerMetadataFormat) -> bytes:
    """Version 3. Raises LocalProtocolError if required fields are missing."""
    try:
        body = metadata.SerializeToString()
    except EncodeError as error:
        raise LocalProtocolError(f"ledger metadata are incomplete: {error}") from error
    return _FRONT + varint(len(body)) + body


def parse(data: bytes) -> LedgerMetadataFormat:
    """Version 2 or 3. Raises RemoteProtocolError for anything else."""
    front, newline, body = data.partition(b"\n")
    if not newline or not front.startswith(_VERSION_KEY):
        raise RemoteProtocolError("ledger metadata don't begin with their format version")
    version = front[len(_VERSION_KEY) :]
    if version == b"3":
        metadata = _parse_binary(body)
    elif version == b"2":
        metadata = _parse_text(body)
    else:
        raise RemoteProtocolError(f"ledger metadata of version {version!r} can't be read")
    if not metadata.IsInitialized():
        raise RemoteProtocolError(f"ledger metadata lack {missing_fields(metadata)}")
    if has_bad_text(metadata):
        raise RemoteProtocolError("ledger metadata have text that is not UTF-8")
    return metadata


def _parse_binary(body: bytes) -> LedgerMetadataFormat:
    size = shift = at = 0
    while True:
        if at >= min(len(body), 5):
            raise RemoteProtocolError("ledger metadata have no size")
        byte = body[at]
        size |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:
            break
    if size > len(body) - at:
        raise RemoteProtocolError(f"ledger metadata of {size} bytes are cut off")
    try:
        return _parse(body[at : at + size])
    except DecodeError as error:
        raise RemoteProtocolError(f"ledger metadata can't be decoded: {error}") from error


def _parse_text(body: bytes) -> LedgerMetadataFormat:
    try:
        return text_format.Parse(body.decode(), LedgerMetadataFormat(), allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"ledger metadata can't be read: {error}") from error
