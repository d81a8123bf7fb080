"""Lines of the shell about entries, as Apache's FormatUtil and LedgerIdFormatter write them (spec
BK-11). Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from geminga_protocol.bookkeeper.digest import DigestError, header

LEDGER_ID_FORMATS = ("long", "hex", "uuid")
ENTRY_FORMATS = ("string", "hex")

_PAYLOAD_AT = 32
"""Behind ledger id, entry id, LAC and length. The digest is in front of the payload there: its kind
stands in the ledger's metadata only."""
_HEX_WIDTH = 16
_KEPT = frozenset("\t\n\r")


def ledger_name(ledger_id: int, form: str) -> str:
    """A ledger's id in one of the formats."""
    if form == "hex":
        return f"{ledger_id & (1 << 64) - 1:x}"
    if form == "uuid":
        return str(uuid.UUID(int=ledger_id))
    return str(ledger_id)


def ledger_number(text: str, form: str) -> int:
    """The inverse of `ledger_name`. Raises ValueError."""
    if form == "uuid":
        number = uuid.UUID(text).int
    else:
        number = int(text, 16 if form == "hex" else 10)
    if not 0 <= number < 1 << 63:
        raise ValueError(f"no ledger has the id {text}")
    return number


def entry_head(ledger: str, entry_id: int, offset: int, size_bytes: int) -> str:
    """The first line about an entry, or about a fact in a journal."""
    return (
        f"--------- Lid={ledger}, Eid={entry_id}, ByteOffset={offset}, EntrySize={size_bytes} "
        "---------"
    )


def data_lines(packet: bytes, form: str | None) -> Iterator[str]:
    """What is told of an entry; its payload too, if a format is given."""
    yield "Type:           DATA"
    try:
        yield f"LastConfirmed:  {header(packet)[2]}"
    except DigestError as error:
        yield f"Error:          {error}"
    if form is not None:
        yield "Data:"
        yield ""
        yield from payload_lines(packet[_PAYLOAD_AT:], form)
    yield ""


def payload_lines(payload: bytes, form: str) -> Iterator[str]:
    """Text without control characters, which could steer a terminal; or a hexadecimal dump."""
    if form == "hex":
        yield from hex_lines(payload)
        return
    text = payload.decode("utf-8", "replace")
    yield "".join(
        each if each.isprintable() or each in _KEPT else f"\\x{ord(each):02x}" for each in text
    )


def hex_lines(data: bytes) -> Iterator[str]:
    """Offset, hexadecimal and printable form, sixteen bytes a line."""
    for offset in range(0, len(data), _HEX_WIDTH):
        row = data[offset : offset + _HEX_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{offset:08x}  {row.hex(' '):<{3 * _HEX_WIDTH - 1}}  |{text}|"
