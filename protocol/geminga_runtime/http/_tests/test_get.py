from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from geminga_runtime.http.get import AnswerReader, BadHttpAnswer, get
from geminga_runtime.stream import FramedStream

BY_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello"
IN_CHUNKS = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 307 \r\nTransfer-Encoding: Chunked\r\nLocation:/b\r\n\r\n"
    b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n"
)
TO_THE_END = b"HTTP/1.0 404 Not Found\r\n\r\nhello"


@given(
    st.sampled_from([(BY_LENGTH, 200), (IN_CHUNKS, 307), (TO_THE_END, 404)]),
    st.lists(st.integers(1, 80), max_size=20),
)
def test_any_cut_gives_the_same(case: tuple[bytes, int], cuts: list[int]) -> None:
    data, status = case
    reader = AnswerReader()
    for size in [*cuts, len(data)]:
        part, data = data[:size], data[size:]
        if part and not reader.is_whole:
            reader.feed(part)
    if status == 404:
        reader.end()
    assert reader.is_whole
    assert (reader.answer.status, reader.answer.body) == (status, b"hello")
    if status == 307:
        assert reader.answer.headers["location"] == "/b"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxyz",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
        b"x" * 20_000,
    ],
)
def test_bad_answers(data: bytes) -> None:
    with pytest.raises(BadHttpAnswer):
        AnswerReader(body_bytes_max=100).feed(data)


def test_a_body_is_bounded_however_small_its_pieces() -> None:
    reader = AnswerReader(body_bytes_max=100)
    reader.feed(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(10):
        reader.feed(b"x" * 10)
    with pytest.raises(BadHttpAnswer, match="too long"):
        reader.feed(b"x")


@pytest.mark.parametrize("data", [BY_LENGTH[:-1], IN_CHUNKS[:-4], BY_LENGTH[:20]])
def test_cut_short(data: bytes) -> None:
    reader = AnswerReader()
    reader.feed(data)
    with pytest.raises(BadHttpAnswer, match="cut short"):
        reader.end()


def test_a_peer_that_only_closes_is_perhaps_another_port() -> None:
    with pytest.raises(BadHttpAnswer, match="is this the web service's port"):
        AnswerReader().end()


async def test_get() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    asked = b""

    async def serve() -> None:
        nonlocal asked
        async with theirs:
            asked = await theirs.receive_some(10_000)
            await theirs.send_all(BY_LENGTH)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        answer = await get(FramedStream(ours, name="x"), "h:80", "/a?b=c", {"Some": "header"})
    assert answer.body == b"hello"
    assert asked.startswith(b"GET /a?b=c HTTP/1.1\r\nHost: h:80\r\n")
    assert asked.endswith(b"\r\nSome: header\r\n\r\n")


async def test_line_breaks_in_requests_are_refused() -> None:
    ours, _ = trio.testing.memory_stream_pair()
    with pytest.raises(BadHttpAnswer, match="line break"):
        await get(FramedStream(ours, name="x"), "h", "/", {"A": "b\r\nC: d"})
