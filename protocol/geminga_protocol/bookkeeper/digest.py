"""BookKeeper's packet, the form of an entry in a bookie (spec BK-12; Apache's DigestManager).

    ledger id i64 | entry id i64 | last add confirmed i64 | length i64 | digest | payload

`length` is the sum of payload sizes of the ledger up to and with this entry. The digest covers
header and payload. The packet of an explicit LAC (the last add confirmed that a writer tells
without an entry) is shorter:

    ledger id i64 | last add confirmed i64 | digest
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache

from fastcrc import crc32

from geminga_protocol.buffers import Buffer

CRC32 = 1
HMAC = 2
CRC32C = 3
DUMMY = 4
"""Kinds of digest, numbered as in LedgerMetadataFormat.DigestType."""

HEADER_BYTES = 32
"""Bytes before the digest."""
LAC_HEADER_BYTES = 16
"""The same in the packet of an explicit LAC."""
LAC_PACKET_BYTES_MAX = LAC_HEADER_BYTES + 20
"""With the longest digest."""

DIGEST_BYTES = {CRC32: 8, HMAC: 20, CRC32C: 4, DUMMY: 0}

_HEADER = struct.Struct(">qqqq")
_IDS = struct.Struct(">qq")
_pack_header = _HEADER.pack
_unpack_header = _HEADER.unpack_from
_unpack_ids = _IDS.unpack_from
_unpack_checked = struct.Struct(">qqqqI").unpack_from
_pack_u32 = struct.Struct(">I").pack
_pack_u64 = struct.Struct(">Q").pack
_crc32c = crc32.iscsi

_Mac = Callable[[Buffer, Sequence[Buffer]], bytes]


class DigestError(ValueError):
    """The packet is too short, belongs to another entry, or its digest is wrong."""


@lru_cache(maxsize=256)
def master_key(password: bytes) -> bytes:
    """The key by which a client proves to bookies that it may write the ledger: 20 bytes
    (DigestManager.generateMasterKey).
    """
    return hashlib.sha1(b"ledger" + password).digest()


def header(packet: Buffer) -> tuple[int, int, int, int]:
    """(ledger id, entry id, last add confirmed, length) of a packet, unverified. Raises DigestError
    if too short.
    """
    try:
        return _unpack_header(packet)
    except struct.error:
        raise DigestError(f"a packet of {len(packet)} bytes has no header") from None


def lac_header(packet: Buffer) -> tuple[int, int]:
    """(ledger id, last add confirmed) of an explicit LAC's packet, unverified. Raises DigestError
    if it is too short, or too long.
    """
    if not LAC_HEADER_BYTES <= len(packet) <= LAC_PACKET_BYTES_MAX:
        raise DigestError(f"{len(packet)} bytes are no packet of an explicit LAC")
    return _unpack_ids(packet)


class Digest:
    """Makes and checks packets of ledgers with one kind of digest and one password.

    The password matters to HMAC only. One object serves all such ledgers.
    """

    __slots__ = ("_mac", "digest_bytes", "kind", "overhead_bytes")

    def __init__(self, kind: int = CRC32C, password: bytes = b"") -> None:
        self.kind = kind
        self._mac = _mac_of(kind, password)
        self.digest_bytes = DIGEST_BYTES[kind]
        self.overhead_bytes = HEADER_BYTES + self.digest_bytes

    def packet(
        self, ledger_id: int, entry_id: int, lac: int, length: int, parts: Sequence[Buffer]
    ) -> bytes:
        """The packet of an entry. Its payload is the joined parts, which are copied only here."""
        head = _pack_header(ledger_id, entry_id, lac, length)
        return b"".join((head, self._mac(head, parts), *parts))

    def packets(
        self, ledger_id: int, first: int, lac: int, length: int, entries: Sequence[Sequence[Buffer]]
    ) -> tuple[list[bytes], int]:
        """Packets of consecutive entries, given as the parts of their payloads, after payloads of
        `length` bytes; and the length with them.
        """
        made: list[bytes] = []
        packet = self.packet
        is_crc32c = self.kind == CRC32C
        pack_header, crc32c, pack_u32, join = _pack_header, _crc32c, _pack_u32, b"".join
        entry_id = first
        for parts in entries:
            if is_crc32c and len(parts) == 1:
                # `packet` inlined: this is the hot path.
                part = parts[0]
                length += len(part)
                head = pack_header(ledger_id, entry_id, lac, length)
                made.append(join((head, pack_u32(crc32c(part, crc32c(head))), part)))
            else:
                length += sum(map(len, parts))
                made.append(packet(ledger_id, entry_id, lac, length, parts))
            entry_id += 1
        return made, length

    def payload(self, ledger_id: int, entry_id: int, packet: Buffer) -> memoryview:
        """The payload as a view of the packet. Raises DigestError unless digest, ledger and entry
        are right.
        """
        view = self.verify(packet)
        found = _unpack_ids(packet)
        if found != (ledger_id, entry_id):
            raise DigestError(f"packet is of {found[0]}:{found[1]}, not {ledger_id}:{entry_id}")
        return view

    def payloads(self, ledger_id: int, first: int, packets: Sequence[bytes]) -> list[memoryview]:
        """The payloads of consecutive entries, as views. Raises DigestError as `payload` does."""
        found: list[memoryview] = []
        is_crc32c = self.kind == CRC32C
        unpack, crc32c, overhead = _unpack_checked, _crc32c, self.overhead_bytes
        for entry_id, packet in enumerate(packets, first):
            if is_crc32c and len(packet) >= overhead:
                # `payload` written out: this stands on the hot path.
                its_ledger, its_entry, _, _, checksum = unpack(packet)
                view = memoryview(packet)[overhead:]
                if (
                    its_entry == entry_id
                    and its_ledger == ledger_id
                    and crc32c(view, crc32c(packet[:HEADER_BYTES])) == checksum
                ):
                    found.append(view)
                    continue
            found.append(self.payload(ledger_id, entry_id, packet))
        return found

    def verify(self, packet: Buffer) -> memoryview:
        """The payload of any entry, as a view. Raises DigestError unless the digest is right."""
        overhead = self.overhead_bytes
        if len(packet) < overhead:
            raise DigestError(f"a packet of {len(packet)} bytes has no header and digest")
        payload = memoryview(packet)[overhead:]
        if self._mac(packet[:HEADER_BYTES], (payload,)) != packet[HEADER_BYTES:overhead]:
            ledger_id, entry_id = _unpack_ids(packet)
            raise DigestError(f"digest of the packet said to be {ledger_id}:{entry_id} is wrong")
        return payload

    def lac_packet(self, ledger_id: int, lac: int) -> bytes:
        """The packet of an explicit LAC."""
        head = _IDS.pack(ledger_id, lac)
        return head + self._mac(head, ())

    def explicit_lac(self, ledger_id: int, packet: Buffer) -> int:
        """The LAC in its packet. Raises DigestError unless digest and ledger are right."""
        found, lac = lac_header(packet)
        if found != ledger_id:
            raise DigestError(f"the explicit LAC is of ledger {found}, not {ledger_id}")
        head, mac = packet[:LAC_HEADER_BYTES], packet[LAC_HEADER_BYTES:]
        if self._mac(head, ()) != mac:
            raise DigestError(f"digest of the explicit LAC of ledger {ledger_id} is wrong")
        return lac

    def confirmed_in(self, ledger_id: int, packet: Buffer) -> int:
        """The LAC in the packet of any entry. Raises DigestError unless digest and ledger are
        right.
        """
        self.verify(packet)
        found, _, lac, _ = header(packet)
        if found != ledger_id:
            raise DigestError(f"packet is of ledger {found}, not {ledger_id}")
        return lac


def _mac_of(kind: int, password: bytes) -> _Mac:
    if kind == CRC32C:
        return _crc32c_of
    if kind == CRC32:
        return _crc32_of
    if kind == DUMMY:
        return _nothing_of
    if kind != HMAC:
        raise ValueError(f"{kind} is no digest type")
    # Not the master key: bookies know that one, and must not be able to forge entries.
    keyed = hmac.new(hashlib.sha1(b"mac" + password).digest(), digestmod="sha1")

    def hmac_of(head: Buffer, parts: Sequence[Buffer]) -> bytes:
        mac = keyed.copy()
        mac.update(head)
        for part in parts:
            mac.update(part)
        return mac.digest()

    return hmac_of


def _crc32c_of(head: Buffer, parts: Sequence[Buffer]) -> bytes:
    value = _crc32c(head)
    for part in parts:
        value = _crc32c(part, value)
    return _pack_u32(value)


def _crc32_of(head: Buffer, parts: Sequence[Buffer]) -> bytes:
    value = zlib.crc32(head)
    for part in parts:
        value = zlib.crc32(part, value)
    return _pack_u64(value)


def _nothing_of(head: Buffer, parts: Sequence[Buffer]) -> bytes:
    return b""
