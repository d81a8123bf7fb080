"""Packets of BookKeeper: made, checked, and damaged in every bit."""

from __future__ import annotations

import pytest

from geminga_protocol.bookkeeper.digest import (
    CRC32,
    CRC32C,
    DUMMY,
    HMAC,
    Digest,
    DigestError,
    header,
    lac_header,
)

KINDS = [CRC32, HMAC, CRC32C, DUMMY]


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: int) -> None:
    digest = Digest(kind, b"secret")
    packet = digest.packet(5, 6, 4, 100, [b"ab", memoryview(b"cd")])
    assert len(packet) == digest.overhead_bytes + 4
    assert header(packet) == (5, 6, 4, 100)
    payload = digest.payload(5, 6, packet)
    assert payload == b"abcd"
    assert payload.obj is packet
    with pytest.raises(DigestError):
        digest.payload(5, 7, packet)
    with pytest.raises(DigestError):
        digest.payload(4, 6, packet)


@pytest.mark.parametrize("kind", [CRC32, HMAC, CRC32C])
def test_every_flipped_bit_is_found(kind: int) -> None:
    digest = Digest(kind, b"secret")
    packet = digest.packet(5, 6, 4, 100, [b"payload"])
    for bit in range(len(packet) * 8):
        damaged = bytearray(packet)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DigestError):
            digest.verify(damaged)


@pytest.mark.parametrize("kind", KINDS)
def test_every_truncation_of_the_front_is_found(kind: int) -> None:
    digest = Digest(kind)
    packet = digest.packet(5, 6, 4, 100, [])
    for size in range(len(packet)):
        with pytest.raises(DigestError):
            digest.payload(5, 6, packet[:size])


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_packets_is_those_of_its_entries(kind: int) -> None:
    digest = Digest(kind, b"secret")
    entries = [(b"one",), (b"t", memoryview(b"w"), b"o"), (), (memoryview(b"three"),)]
    made, length = digest.packets(5, 6, 4, 100, entries)
    assert length == 111
    expected = [(6, 103, b"one"), (7, 106, b"two"), (8, 106, b""), (9, 111, b"three")]
    assert made == [digest.packet(5, n, 4, upto, [text]) for n, upto, text in expected]
    found = digest.payloads(5, 6, made)
    assert found == [b"one", b"two", b"", b"three"]
    assert all(view.obj is packet for view, packet in zip(found, made, strict=True))
    for wrong in ((4, 6), (5, 7), (5, 5)):
        with pytest.raises(DigestError):
            digest.payloads(*wrong, made)


@pytest.mark.parametrize("kind", [CRC32, HMAC, CRC32C])
def test_every_damaged_packet_of_a_run_is_found(kind: int) -> None:
    digest = Digest(kind, b"secret")
    made, _ = digest.packets(5, 6, 4, 100, [(b"whole",), (b"payload",)])
    for at in range(len(made[1])):
        damaged = bytearray(made[1])
        damaged[at] ^= 1
        with pytest.raises(DigestError):
            digest.payloads(5, 6, [made[0], bytes(damaged)])
        with pytest.raises(DigestError):
            digest.payloads(5, 6, [made[0], made[1][:at]])


def test_short_header() -> None:
    with pytest.raises(DigestError):
        header(b"1234")
    with pytest.raises(ValueError, match="no digest type"):
        Digest(9)


EXPLICIT_LACS = {
    CRC32: "000000000000000500000000000000070000000038489bb9",
    HMAC: "000000000000000500000000000000074bf835e33f80e392c95e1c66deaa9b5939595f5a",
    CRC32C: "00000000000000050000000000000007bc4bea7a",
    DUMMY: "00000000000000050000000000000007",
}
"""Of LAC 7 of ledger 5 with the password "secret", as BookKeeper's DigestManager writes it."""


@pytest.mark.parametrize("kind", KINDS)
def test_an_explicit_lac_is_apaches(kind: int) -> None:
    digest = Digest(kind, b"secret")
    packet = digest.lac_packet(5, 7)
    assert packet.hex() == EXPLICIT_LACS[kind]
    assert lac_header(packet) == (5, 7)
    assert digest.explicit_lac(5, packet) == 7
    with pytest.raises(DigestError):
        digest.explicit_lac(6, packet)
    for size in range(len(packet)):
        with pytest.raises(DigestError):
            digest.explicit_lac(5, packet[:size])
    with pytest.raises(DigestError):
        digest.explicit_lac(5, packet + bytes(21))


@pytest.mark.parametrize("kind", [CRC32, HMAC, CRC32C])
def test_every_damaged_lac_is_found(kind: int) -> None:
    digest = Digest(kind, b"secret")
    explicit, entry = digest.lac_packet(5, 7), digest.packet(5, 8, 7, 100, [b"payload"])
    assert digest.confirmed_in(5, entry) == 7
    with pytest.raises(DigestError):
        digest.confirmed_in(6, entry)
    for packet, read in ((explicit, digest.explicit_lac), (entry, digest.confirmed_in)):
        for bit in range(len(packet) * 8):
            damaged = bytearray(packet)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(DigestError):
                read(5, damaged)
