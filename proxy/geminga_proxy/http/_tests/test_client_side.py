"""Valid and refused requests, in any chunking (spec PX-06)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_proxy.http.client_side import BodyEnd, BodyPart, ClientSide, Event, Gone, RequestHead
from geminga_proxy.http.errors import BadRequest

HOST = b"Host: p\r\n"
REFUSED = {
    "lengths that differ": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n"
    b"Content-Length: 4\r\n\r\nabcd",
    "lengths that differ, in one line": b"POST / HTTP/1.1\r\n" + HOST
    + b"Content-Length: 3, 4\r\n\r\nabcd",
    "a length with a sign": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +3\r\n\r\nabc",
    "a length below zero": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -3\r\n\r\nabc",
    "a length that is no number": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0x3\r\n\r\nabc",
    "a length without end": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1" + b"0" * 30
    + b"\r\n\r\n",
    "length and chunks": b"POST / HTTP/1.1\r\n" + HOST
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "another encoding": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n",
    "an encoding that looks like chunked": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: xchunked\r\n\r\n",
    "two encodings": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n"
    b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, chunked\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "space before the colon": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n",
    "a folded first line": b"GET / HTTP/1.1\r\n X: a\r\n" + HOST + b"\r\n",
    "a tab that folds": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding:\r\n\tchunked\r\n\r\n0\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: p\n\n",
    "a bare line feed": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\nY: b\r\n\r\n",
    "a bare carriage return": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\rY: b\r\n\r\n",
    "a head that ends in bare line feeds": b"GET / HTTP/1.1\r\n" + HOST + b"\n\r\n\r\n",
    "a zero byte": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\x00b\r\n\r\n",
    "no name": b"GET / HTTP/1.1\r\n" + HOST + b": x\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\n" + HOST + b"Host: q\r\n\r\n",
    "two Hosts in HTTP/1.0": b"GET / HTTP/1.0\r\n" + HOST + b"Host: q\r\n\r\n",
    "a version that is none": b"GET / HTTP/1.9\r\n" + HOST + b"\r\n",
    "HTTP/0.9": b"GET /\r\n" + HOST + b"\r\n",
    "a preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "another scheme": b"GET ftp://x/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a target that is no path": b"GET evil:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment": b"GET /metrics#x HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment in a query": b"GET /a?b#c HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment in a URL": b"GET http://p/metrics# HTTP/1.1\r\n" + HOST + b"\r\n",
    "spaces in the target": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "a chunk whose length is no number": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "a chunk with a sign": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "a chunk with 0x": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "a chunk of 2**80": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 24 + b"\r\na\r\n",
    "a chunk that is longer than it says": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "a chunk's line with a bare line feed": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
    "an extension with a bare line feed": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n1;a\nb\r\na\r\n0\r\n\r\n",
    "a trailer with a bare line feed": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n",
    "a bare line feed after the last chunk": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\n",
    "a trailer": b"POST / HTTP/1.1\r\n" + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
}  # fmt: skip
"""Requests that one server may read in one way, and the next in another."""


def read(data: list[bytes], *, ends: bool = True) -> list[Event]:
    """All events, bodies joined. The server answers each request at once."""
    side = ClientSide(8192)
    found: list[Event] = []

    def drain() -> None:
        while (event := side.next_event()) is not None:
            if isinstance(event, BodyPart) and found and isinstance(found[-1], BodyPart):
                event = BodyPart(found.pop().data + event.data)  # type: ignore[union-attr]
            found.append(event)
            whole = isinstance(event, BodyEnd) or (
                isinstance(event, RequestHead) and not event.has_body
            )
            if whole:
                side.answer(200, [(b"content-length", b"0")])
                side.end()
                if not side.can_go_on:
                    return
                side.go_on()
            if isinstance(event, Gone):
                return

    for piece in data:
        side.feed(piece)
        drain()
    if ends:
        side.feed(b"")
        drain()
    return found


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("by_byte", [False, True])
def test_ambiguous_requests_are_refused(name: str, by_byte: bool) -> None:
    data = REFUSED[name]
    pieces = [data[at : at + 1] for at in range(len(data))] if by_byte else [data]
    with pytest.raises(BadRequest) as refused:
        read(pieces, ends=False)
    assert refused.value.status in (400, 505)


def test_large_heads_are_refused() -> None:
    for data in (b"GET /" + b"a" * 9000, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 2000):
        with pytest.raises(BadRequest) as refused:
            read([data], ends=False)
        assert refused.value.status == 431


def test_half_a_request_is_refused() -> None:
    for data in (b"GET / HT", b"POST / HTTP/1.1\r\nHost: p\r\nContent-Length: 5\r\n\r\nabc"):
        with pytest.raises(BadRequest):
            read([data])


def test_targets() -> None:
    for target, path in (
        (b"/a?b=c", b"/a?b=c"),
        (b"http://p/a?b", b"/a?b"),
        (b"https://p", b"/"),
        (b"http://p?q=/x", b"/?q=/x"),
        (b"*", b"*"),
    ):
        (head, gone) = read([b"OPTIONS " + target + b" HTTP/1.1\r\nHost: p\r\n\r\n"])
        assert isinstance(head, RequestHead)
        assert head.target == path
        assert isinstance(gone, Gone)


REQUESTS = st.lists(
    st.tuples(st.sampled_from([b"POST", b"PUT"]), st.binary(max_size=300), st.booleans()),
    max_size=4,
)


def written(method: bytes, body: bytes, in_chunks: bool) -> bytes:
    head = method + b" /x HTTP/1.1\r\nHost: p\r\n"
    if not in_chunks:
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    chunks = b"".join(b"%x;e=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


@settings(max_examples=60, deadline=None)
@given(REQUESTS, st.lists(st.integers(1, 60), min_size=1))
def test_any_chunking_gives_the_same_events(
    requests: list[tuple[bytes, bytes, bool]], sizes: list[int]
) -> None:
    data = b"".join(written(*request) for request in requests)
    pieces, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        pieces.append(data[at : at + size])
        at, turn = at + size, turn + 1
    events = read(pieces)
    assert events == read([data] if data else [])
    bodies: list[bytes] = []
    for event in events:
        if isinstance(event, RequestHead):
            bodies.append(b"")
        elif isinstance(event, BodyPart):
            bodies[-1] += event.data
    assert bodies == [body for _, body, _ in requests]
    assert isinstance(events[-1], Gone)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(
    st.sampled_from([b"\r\n", b"\n", b"\r", b" ", b"GET / HTTP/1.1\r\n", b"Host: p\r\n", b"0",
                     b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n", b"2\r\nab\r\n"]),
    st.binary(max_size=5)), max_size=25))  # fmt: skip
@pytest.mark.slow
def test_random_bytes_raise_bad_request_only(pieces: list[bytes]) -> None:
    try:
        read([piece for piece in pieces if piece])
    except BadRequest:
        pass
