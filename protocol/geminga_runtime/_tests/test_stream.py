"""FramedStream over sockets and memory streams."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from geminga_runtime.errors import ConnectionLost
from geminga_runtime.stream import FramedStream
from geminga_runtime.transports import SEND_BYTES_MAX, SMALL_BUFFER_BYTES, cap, coalesce

KINDS = ("socket", "memory")


@asynccontextmanager
async def socket_pair() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    client = await trio.open_tcp_stream("127.0.0.1", port)
    server = await listeners[0].accept()
    await listeners[0].aclose()
    async with client, server:
        yield client, server


@asynccontextmanager
async def stream_pair(
    kind: str, *, write_high_bytes: int = 4096
) -> AsyncIterator[tuple[FramedStream, trio.abc.Stream]]:
    """A FramedStream with its writer running, and the raw other end."""
    if kind == "socket":
        context = socket_pair()
        mine, theirs = await context.__aenter__()
    else:
        context = None
        mine, theirs = trio.testing.lockstep_stream_pair()
    stream = FramedStream(mine, name="peer", write_high_bytes=write_high_bytes)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_writer)
        yield stream, theirs
        await stream.aclose()
    await trio.aclose_forcefully(theirs)
    if context is not None:
        await context.__aexit__(None, None, None)


async def read_exactly(stream: trio.abc.Stream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = await stream.receive_some(65536)
        assert more, f"ended after {len(data)} of {size} bytes"
        data += more
    assert len(data) == size
    return bytes(data)


@pytest.mark.parametrize("kind", KINDS)
async def test_writes_arrive_in_order(kind: str) -> None:
    async with stream_pair(kind) as (stream, theirs):
        stream.write(b"one ", memoryview(b"two "))
        stream.write(b"three")
        assert stream.pending_bytes == 13
        assert await read_exactly(theirs, 13) == b"one two three"
        await stream.flush()
        assert stream.pending_bytes == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_large_and_many_buffers(kind: str) -> None:
    parts = [bytes([i % 251]) * (1 if i % 3 else 40_000) for i in range(1500)]
    whole = b"".join(parts)
    async with stream_pair(kind, write_high_bytes=1 << 30) as (stream, theirs):
        stream.write(*parts)
        assert await read_exactly(theirs, len(whole)) == whole


@pytest.mark.parametrize("kind", KINDS)
async def test_receive_and_end(kind: str) -> None:
    async with stream_pair(kind) as (stream, theirs), trio.open_nursery() as nursery:

        async def send() -> None:
            await theirs.send_all(b"abc")
            await theirs.aclose()

        nursery.start_soon(send)
        assert await stream.receive() == b"abc"
        assert await stream.receive() == b""


@pytest.mark.parametrize("kind", KINDS)
async def test_only_one_reader(kind: str) -> None:
    async with stream_pair(kind) as (stream, _), trio.open_nursery() as nursery:
        nursery.start_soon(stream.receive)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await stream.receive()
        nursery.cancel_scope.cancel()


async def test_only_one_writer() -> None:
    async with stream_pair("memory") as (stream, _):
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await stream.run_writer()


@pytest.mark.parametrize("kind", KINDS)
async def test_cancelled_receive_loses_nothing(kind: str) -> None:
    async with stream_pair(kind) as (stream, theirs):
        with trio.move_on_after(0):
            await stream.receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(theirs.send_all, b"kept")
            assert await stream.receive() == b"kept"


@pytest.mark.parametrize("kind", KINDS)
async def test_watermarks(kind: str) -> None:
    big = bytes(1 << 20)
    calls: list[int] = []
    async with stream_pair(kind, write_high_bytes=1 << 20) as (stream, theirs):
        stream.on_writable(lambda: calls.append(-1))
        assert calls == [-1], "nothing pending: called at once"
        for _ in range(16):
            stream.write(big)
        assert not stream.writable
        stream.on_writable(lambda: calls.append(stream.pending_bytes))
        await trio.testing.wait_all_tasks_blocked()
        assert not stream.writable, "the peer does not read"
        assert len(calls) == 1
        await read_exactly(theirs, 16 << 20)
        await stream.flush()
        assert len(calls) == 2
        assert 0 <= calls[1] <= 1 << 18
        assert stream.writable


@pytest.mark.parametrize("kind", KINDS)
async def test_abort_wakes_reader_and_drops_writes(kind: str) -> None:
    async with stream_pair(kind, write_high_bytes=10) as (stream, _):
        called: list[bool] = []

        async def read() -> None:
            with pytest.raises(ConnectionLost, match="peer: too slow"):
                await stream.receive()
            called.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            stream.write(bytes(20))
            stream.on_writable(lambda: called.append(False))
            stream.abort("too slow")
            stream.abort("again")
        assert called == [False, True]
        assert stream.writable
        stream.write(b"swallowed")
        assert stream.pending_bytes == 0
        with pytest.raises(ConnectionLost):
            await stream.flush()
        with pytest.raises(ConnectionLost):
            await stream.receive()


@pytest.mark.parametrize("kind", KINDS)
async def test_writer_ends_when_peer_is_gone(kind: str) -> None:
    async with stream_pair(kind) as (stream, theirs):
        await trio.aclose_forcefully(theirs)
        while not stream.lost:
            stream.write(b"x" * 100_000)
            await trio.lowlevel.checkpoint()
        with pytest.raises(ConnectionLost):
            await stream.receive()


@pytest.mark.parametrize("kind", KINDS)
async def test_flush_raises_when_lost_meanwhile(kind: str) -> None:
    async with stream_pair(kind) as (stream, _), trio.open_nursery() as nursery:
        for _ in range(16):
            stream.write(bytes(1 << 20))

        async def flush() -> None:
            with pytest.raises(ConnectionLost):
                await stream.flush()

        nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
        await stream.aclose()


async def test_one_send_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    sends: list[int] = []
    real = os.writev

    def counted(fd: int, buffers: list[bytes]) -> int:
        sends.append(len(buffers))
        return real(fd, buffers)

    async with stream_pair("socket", write_high_bytes=1 << 20) as (stream, theirs):
        monkeypatch.setattr(os, "writev", counted)
        payload = bytes(5000)
        for _ in range(10):
            stream.write(b"header", payload)
        await read_exactly(theirs, 10 * 5006)
    assert sends == [20], "ten writes of a turn are one call, large buffers not joined"


async def test_partial_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    real = os.writev
    turn = 0

    def torn(fd: int, buffers: list[bytes]) -> int:
        nonlocal turn
        turn += 1
        if turn % 3 == 0:
            raise BlockingIOError
        whole = b"".join(buffers)
        return real(fd, [whole[: max(1, len(whole) // 2)]])

    parts = [bytes([i]) * size for i, size in enumerate((5000, 1, 4096, 7, 3, 9000, 100))]
    async with stream_pair("socket", write_high_bytes=1 << 20) as (stream, theirs):
        monkeypatch.setattr(os, "writev", torn)
        stream.write(*parts)
        whole = b"".join(parts)
        assert await read_exactly(theirs, len(whole)) == whole
        assert stream.pending_bytes == 0


@pytest.mark.parametrize("sizes", [[16] * 3, [65_000] * 100, [3_000_000], [10, 700_000, 0, 5000]])
async def test_one_send_call_is_bounded_in_bytes(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks run after each full call; small sends don't wait for them."""
    calls: list[int] = []
    turns: list[int] = []
    real = os.writev

    def counted(fd: int, buffers: list[bytes]) -> int:
        assert sum(map(len, buffers)) <= SEND_BYTES_MAX
        calls.append(real(fd, buffers))
        return calls[-1]

    async def others() -> None:
        while True:
            turns.append(len(calls))
            await trio.lowlevel.checkpoint()

    parts = [os.urandom(size) for size in sizes]
    async with (
        stream_pair("socket", write_high_bytes=1 << 24) as (stream, theirs),
        trio.open_nursery() as nursery,
    ):
        monkeypatch.setattr(os, "writev", counted)
        nursery.start_soon(others)
        stream.write(*parts)
        assert await read_exactly(theirs, sum(sizes)) == b"".join(parts)
        nursery.cancel_scope.cancel()
    assert sum(calls) == sum(sizes)
    # One call in each turn of the scheduler, before or after the other tasks.
    assert all(after - before <= 2 for before, after in pairwise([*turns, len(calls)]))
    assert len(calls) >= sum(sizes) // SEND_BYTES_MAX


@given(st.lists(st.integers(0, SEND_BYTES_MAX // 2) | st.just(SEND_BYTES_MAX), max_size=9))
def test_cap_leaves_the_beginning(sizes: list[int]) -> None:
    window = [bytes([n]) * size for n, size in enumerate(sizes)]
    whole = b"".join(window)
    kept: list[bytes | memoryview] = list(window)
    assert cap(kept) == (len(whole) > SEND_BYTES_MAX)
    assert b"".join(kept) == whole[:SEND_BYTES_MAX]


@pytest.mark.parametrize("kind", KINDS)
async def test_write_now_keeps_the_order(kind: str) -> None:
    async with stream_pair(kind) as (stream, theirs):
        stream.write_now(b"a", b"bc")
        if kind == "socket":
            assert not stream.pending_bytes
            assert await theirs.receive_some() == b"abc"
        stream.write(b"d")
        stream.write_now(b"e" * 5000, b"f")
        assert await read_exactly(theirs, 5002) if kind == "socket" else True
        if kind == "memory":
            assert await read_exactly(theirs, 5005) == b"abcd" + b"e" * 5000 + b"f"


async def test_write_now_sends_once_after_each_read() -> None:
    async with stream_pair("socket") as (stream, theirs):
        for _ in range(2):
            stream.write_now(b"a")
            assert not stream.pending_bytes
            stream.write_now(b"b")
            stream.write_now(b"c")
            assert stream.pending_bytes == 2
            assert await read_exactly(theirs, 3) == b"abc"
            await theirs.send_all(b"?")
            assert await stream.receive() == b"?"


async def test_write_now_queues_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def three_bytes(fd: int, buffers: Sequence[bytes]) -> int:
        return write(fd, b"".join(buffers)[:3])

    write = os.write
    async with stream_pair("socket") as (stream, theirs):
        with monkeypatch.context() as patched:
            patched.setattr(os, "writev", three_bytes)
            stream.write_now(b"ab", b"cdef", b"", b"g")
        assert stream.pending_bytes == 4
        assert await read_exactly(theirs, 7) == b"abcdefg"
        await stream.flush()
        await theirs.send_all(b"?")
        await stream.receive()
        with monkeypatch.context() as patched:
            patched.setattr(os, "writev", lambda fd, buffers: os.write(-1, b"x"))
            stream.write_now(b"x")
        assert await read_exactly(theirs, 1) == b"x"
        stream.abort()
        stream.write_now(b"dropped")
        assert not stream.pending_bytes


async def test_repr_tells_state() -> None:
    async with stream_pair("memory") as (stream, _):
        assert repr(stream) == "<FramedStream peer open, 0 bytes pending>"
        stream.abort("bad frame")
        assert repr(stream) == "<FramedStream peer bad frame, 0 bytes pending>"


@given(st.lists(st.integers(0, 6000), max_size=40), st.integers(1, 700))
def test_coalesce_keeps_bytes_and_large_objects(sizes: list[int], factor: int) -> None:
    buffers = [bytes([i % 256]) * size for i, size in enumerate(sizes)] * (1 + factor // 300)
    joined = coalesce(buffers)
    assert b"".join(joined) == b"".join(buffers)
    large = [id(buffer) for buffer in buffers if len(buffer) >= SMALL_BUFFER_BYTES]
    assert [id(b) for b in joined if id(b) in large] == large
    assert len(joined) <= 2 * len(large) + 1 + len(buffers) // 256
