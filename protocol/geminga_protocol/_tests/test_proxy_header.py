"""PROXY headers (spec PR-14)."""

from __future__ import annotations

import ipaddress
import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.proxy_header import (
    PEEK_BYTES,
    V1_BYTES_MAX,
    V2_SIGNATURE,
    Endpoint,
    ProxyHeaderError,
    ProxyHeaderReader,
    proxy_header,
)

FRAME = struct.pack(">II", 8, 4) + b"\x08\x12\x92\x01"
IPS = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6).filter(lambda ip: not ip.scope_id))
ENDPOINTS = st.builds(lambda ip, port: Endpoint(str(ip), port), IPS, st.integers(0, 65535))


def v2(source: Endpoint, destination: Endpoint, more: bytes = b"", command: int = 0x21) -> bytes:
    ips = [ipaddress.ip_address(each.host) for each in (source, destination)]
    family = 0x11 if ips[0].version == 4 else 0x21
    rest = ips[0].packed + ips[1].packed + struct.pack(">HH", source.port, destination.port) + more
    return V2_SIGNATURE + bytes([command, family]) + struct.pack(">H", len(rest)) + rest


def read(chunks: list[bytes]) -> tuple[Endpoint | None, bytes]:
    """The source that a server reads, and the bytes after the header."""
    reader = ProxyHeaderReader()
    stream = b"".join(chunks)
    at = available = 0
    for chunk in chunks:
        available += len(chunk)
        while not reader.done and at < available:
            at += reader.feed(stream[at:available])
        if reader.done:
            return reader.source, reader.unused + stream[at:]
    raise EOFError


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


@given(ENDPOINTS, ENDPOINTS, st.booleans(), st.binary(max_size=60), st.lists(st.integers(0, 400)))
def test_both_versions_in_any_chunks(
    source: Endpoint, destination: Endpoint, second: bool, rest: bytes, cuts: list[int]
) -> None:
    same = (":" in source.host) == (":" in destination.host)
    if second and not same:
        return
    header = v2(source, destination, rest) if second else proxy_header(source, destination)
    found, follows = read(chunked(header + FRAME + rest, cuts))
    assert found == (source if same else None)
    assert follows == FRAME + rest


@given(st.binary(max_size=40), st.lists(st.integers(0, 60)))
def test_a_stream_without_header_is_left_as_it_is(rest: bytes, cuts: list[int]) -> None:
    for begin in (FRAME, b"\x16\x03\x01", b"PROXX", b"\r\n\r\nGET", b"P"):
        data = begin + rest
        try:
            found = read(chunked(data, cuts))
        except EOFError:
            assert b"PROXY ".startswith(data)
        except ProxyHeaderError:
            assert data.startswith(b"PROXY ")
        else:
            assert found[1] == data or data.startswith(b"PROXY ")


@given(st.sampled_from([b"PROXY ", b"PROXY TCP4 ", V2_SIGNATURE, b""]), st.binary(max_size=300))
def test_any_bytes_give_a_header_or_an_error(begin: bytes, rest: bytes) -> None:
    reader = ProxyHeaderReader()
    try:
        taken = reader.feed(begin + rest)
    except ProxyHeaderError:
        return
    assert 0 <= taken <= len(begin + rest)
    assert reader.done or taken == len(begin + rest) <= PEEK_BYTES


@pytest.mark.parametrize(
    "line",
    [
        "PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        "PROXY TCP4 1.2.3.4 ::1 1 2\r\n",
        "PROXY TCP6 fe80::1%x ::1 1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 -1 2\r\n",
        "PROXY TCP4 1.2.3.04 5.6.7.8 1 2\r\n",
        "PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY " + "x" * V1_BYTES_MAX,
    ],
)
def test_bad_lines(line: str) -> None:
    with pytest.raises(ProxyHeaderError):
        ProxyHeaderReader().feed(line.encode())


def test_unknown_and_local_headers_have_no_source() -> None:
    ends = Endpoint("1.2.3.4", 5), Endpoint("6.7.8.9", 10)
    for header in (b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN what ever\r\n", v2(*ends, command=0x20)):
        assert read([header + FRAME]) == (None, FRAME)
    unix = V2_SIGNATURE + b"\x21\x31" + struct.pack(">H", 216) + bytes(216)
    assert read([unix + FRAME]) == (None, FRAME)


@pytest.mark.parametrize(
    "head", [b"\x31\x11\x00\x0c", b"\x22\x11\x00\x0c", b"\x21\x11\xff\xff", b"\x21\x11\x00\x04"]
)
def test_bad_heads(head: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        ProxyHeaderReader().feed(V2_SIGNATURE + head + bytes(12))


def test_only_addresses_are_written() -> None:
    assert proxy_header(Endpoint("1.2.3.4", 5), Endpoint("::1", 6)) == b"PROXY UNKNOWN\r\n"
    with pytest.raises(LocalProtocolError):
        proxy_header(Endpoint("x\r\ny", 5), Endpoint("1.1.1.1", 6))
