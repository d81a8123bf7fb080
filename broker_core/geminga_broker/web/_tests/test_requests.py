"""Requests cut out of bytes (spec OP-03, PX-24; RFC 9112)."""

from __future__ import annotations

import random

import pytest

from geminga_broker.web.requests import HEAD_BYTES_MAX, Request, RequestReader
from geminga_protocol._tests.cost import cpu_s

HOST = b"Host: p\r\n"


def read(data: bytes) -> RequestReader:
    reader = RequestReader()
    reader.feed(data)
    return reader


def of(request: Request) -> tuple[object, ...]:
    return (request.method, request.target, request.headers, request.taken(), request.is_complete)


STREAM = (
    b"\r\nGET /a?b=c HTTP/1.1\r\nHost: p\r\nX-Name:  value \r\n\r\n"
    b"PUT /b HTTP/1.1\r\nhost: p\r\nContent-Length: 5\r\n\r\nabcde"
    b"POST /c HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n"
    b"GET /d HTTP/1.1\r\nHost: p\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"
    b"DELETE /e HTTP/1.0\r\n\r\nwhat comes behind"
)
WHOLE = [
    ("GET", b"/a?b=c", [(b"host", b"p"), (b"x-name", b"value")], b"", True),
    ("PUT", b"/b", [(b"host", b"p"), (b"content-length", b"5")], b"abcde", True),
    ("POST", b"/c", [(b"host", b"p"), (b"transfer-encoding", b"chunked")], b"abcde", True),
    (
        *("GET", b"/d"),
        [(b"host", b"p"), (b"connection", b"Upgrade, HTTP2-Settings"), (b"upgrade", b"h2c")],
        *(b"", True),
    ),
    ("DELETE", b"/e", [], b"", True),
]


@pytest.mark.parametrize("seed", range(40))
def test_requests_are_the_same_however_they_come(seed: int) -> None:
    """Also by single bytes; what comes behind the last one is not read."""
    chance = random.Random(seed)
    reader = RequestReader()
    at = 0
    while at < len(STREAM):
        size = 1 if seed == 0 else chance.randint(1, 40)
        reader.feed(STREAM[at : at + size])
        at += size
    assert [of(each) for each in reader.ready] == WHOLE
    assert reader.is_over
    assert reader.failed is None
    assert [each.is_last for each in reader.ready] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: p\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: p\rX: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : p\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: p\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: p\0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: +1\r\n\r\na", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\n"
            + HOST
            + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: \x0bchunked\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 505),
        (b"GET /\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"WHAT / HTTP/1.1\r\n" + HOST + b"\r\n", 501),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * HEAD_BYTES_MAX, 431),
        (b"\r\n" * HEAD_BYTES_MAX, 431),
    ],
)
def test_what_is_no_request(data: bytes, status: int) -> None:
    reader = read(data)
    assert reader.failed is not None
    assert reader.failed.status == status
    assert not reader.ready


@pytest.mark.parametrize("header", ["Connection", "Proxy-Connection"])
def test_a_client_may_end_the_connection(header: str) -> None:
    """Nothing behind the request is read: it isn't refused either."""
    head = b"GET / HTTP/1.1\r\n" + HOST + f"{header}: Close\r\n\r\n".encode()
    reader = read(head + head)
    assert reader.failed is None
    assert [each.is_last for each in reader.ready] == [True]


def test_tls_on_the_plain_port_is_told() -> None:
    failed = read(b"\x16\x03\x01\x02\x00\x01\x00").failed
    assert failed is not None
    assert "without TLS" in failed.reason


@pytest.mark.parametrize(
    "endless", [b"5;x=" + b"y" * 1000, b"0\r\n" + b"A: b\r\n" * 200, b"0" * 1000]
)
def test_what_stands_between_the_parts_of_a_body_is_bounded(endless: bytes) -> None:
    """Extensions, trailers, digits: they say nothing, and nobody asks for them."""
    reader = read(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(100):
        reader.feed(endless)
        endless = endless.removeprefix(b"0\r\n").removeprefix(b"5;x=")
        if reader.failed is not None:
            break
    assert reader.failed is not None


def test_a_websocket_is_the_last_request() -> None:
    ask = b"GET /s HTTP/1.1\r\nHost: p\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
    reader = read(b"GET / HTTP/1.1\r\nHost: p\r\n\r\n" + ask + b"\r\nframes")
    assert [each.upgrade for each in reader.ready] == [b"", b"websocket"]
    assert reader.upgraded == b"frames"
    assert reader.is_over
    # Without the option it is a header like others (RFC 9110, 7.8).
    plain = read(ask.replace(b", Upgrade", b"") + b"\r\nGET / HTTP/1.1\r\nHost: p\r\n\r\n")
    assert [each.upgrade for each in plain.ready] == [b"", b""]


UPGRADES = (b"h2c", b"websocket")
BODIES = (
    b"Content-Length: %d\r\n\r\n%b",
    b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n",
)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("method", [b"PUT", b"GET"])
@pytest.mark.parametrize("protocol", UPGRADES)
def test_a_body_behind_a_wish_for_another_protocol_is_no_request(
    protocol: bytes, method: bytes, body: bytes, size: int
) -> None:
    """Java's client wishes for HTTP/2 with its first request, whatever its body."""
    inner = b"DELETE /x HTTP/1.1\r\nHost: p\r\n\r\n"
    head = b"%b /a HTTP/1.1\r\nHost: p\r\nConnection: Upgrade\r\nUpgrade: %b\r\n"
    data = head % (method, protocol) + body % (len(inner), inner)
    data += b"GET /b HTTP/1.1\r\nHost: p\r\n\r\n"
    reader = RequestReader()
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
    assert [each.target for each in reader.ready] == [b"/a", b"/b"]
    assert [each.is_complete for each in reader.ready] == [True, True]
    assert reader.ready[0].taken() == inner
    assert reader.ready[0].upgrade == b""
    assert (reader.failed, reader.upgraded) == (None, None)


def test_many_small_requests_are_cut_quickly() -> None:
    """As many as one read brings."""
    data = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 380
    assert len(data) < 16 * 1024
    assert cpu_s(lambda: read(data), 0.05) < 0.05
    assert len(read(data).ready) == 380


@pytest.mark.parametrize("seed", range(300))
def test_damaged_requests(seed: int) -> None:
    """Whatever comes: no error of ours, and no more kept than was sent."""
    chance = random.Random(seed)
    data = bytearray(STREAM)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data))
        kind = chance.randrange(3)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at : at + chance.randint(1, 10)]
        else:
            data[at:at] = chance.choice(
                [b"\r\n", b"\n", b"\0", b": ", b"chunked", b"Content-Length: 7\r\n", b"\xff" * 9]
            )
    reader = RequestReader()
    for at in range(0, len(data), 7):
        reader.feed(bytes(data[at : at + 7]))
    assert len(reader.ready) <= len(data) // 16
