"""One connection's byte stream: one reader, writes that never block, one writer task.

The rules:
- `receive` costs one read; nothing is copied or parsed here.
- `write` only queues. All that was written in one turn of the scheduler leaves as one scatter-
  gather send, since the writer task runs in the next turn. Small buffers are joined, large ones
  never copied.
- What is queued is counted. Over `write_high_bytes` the owner must stop producing (and stop reading
  the peer) until `on_writable` tells; nothing here waits or drops by itself.
- A connection that broke swallows writes; the loss is told once, by `receive` or `flush`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import trio

from geminga_protocol.buffers import Buffer
from geminga_runtime.errors import ConnectionLost, TlsFailed
from geminga_runtime.gather import IOV_MAX, SEND_BYTES_MAX, cap, coalesce
from geminga_runtime.tls import PeerCertificate
from geminga_runtime.tls_stream import TlsStream, large_sends
from geminga_runtime.waiters import Wakeup

RECEIVE_BYTES = 256 * 1024
"""One read at most: large enough that a busy connection brings hundreds of messages at a time."""

WRITE_HIGH_BYTES = 4 * 1024 * 1024

_FOREIGN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class FramedStream:
    """A byte stream with queued writes over a socket, TLS or memory stream.

    The owner starts `run_writer` in its nursery, reads in one task, and calls `aclose` at the
    end. Buffers handed to `write` belong to the stream and must be bytes or views of bytes.
    """

    def __init__(
        self, stream: trio.abc.Stream, *, name: str, write_high_bytes: int = WRITE_HIGH_BYTES
    ) -> None:
        if write_high_bytes < 1:
            raise ValueError("write_high_bytes must be positive")
        self.name = name
        self._stream = stream
        self._write_high_bytes = write_high_bytes
        self._write_low_bytes = write_high_bytes // 4
        self._queue: list[Buffer] = []
        self._pending_bytes = 0
        self._choked = False
        self._writable_callbacks: list[Callable[[], object]] = []
        self._flushed: trio.Event | None = None
        self._wakeup = Wakeup()
        self._receiving = False
        self._writer_runs = False
        self._lost: str | None = None
        self._cause: BaseException | None = None
        self._scopes: list[trio.CancelScope] = []
        self._socket = _vectored_socket(stream)
        self._may_hurry = self._socket is not None
        self._tls = stream if isinstance(stream, TlsStream) else None
        self._receive_some: Callable[[int], Awaitable[bytes]] = (
            self._receive_any if self._socket is None else self._receive_socket
        )
        if isinstance(stream, TlsStream):
            self._receive_some = stream.receive_some
        self._drained = True

    def __repr__(self) -> str:
        state = self._lost or "open"
        return f"<FramedStream {self.name} {state}, {self._pending_bytes} bytes pending>"

    @property
    def pending_bytes(self) -> int:
        """Bytes written but not yet taken by the kernel."""
        return self._pending_bytes

    @property
    def writable(self) -> bool:
        """Whether less than the high mark is pending. A lost connection is writable: it
        swallows.
        """
        return self._pending_bytes < self._write_high_bytes

    @property
    def peer_certificate(self) -> PeerCertificate | None:
        """What the peer proved to be by TLS; None without TLS or without its certificate."""
        return None if self._tls is None else self._tls.peer_certificate

    @property
    def lost(self) -> bool:
        """Whether the connection broke or was closed on our side."""
        return self._lost is not None

    async def receive(self, max_bytes: int = RECEIVE_BYTES) -> bytes:
        """What the peer sent, at most `max_bytes`; b"" when it has ended its side.

        Raises ConnectionLost, and trio.BusyResourceError if another task is receiving. Cancelled,
        it loses nothing.
        """
        if self._receiving:
            raise trio.BusyResourceError(f"another task receives from {self.name}")
        if self._lost is not None:
            await trio.lowlevel.checkpoint()
            raise self._connection_lost() from self._cause
        self._receiving = True
        try:
            return await self._receive_some(max_bytes)
        except _FOREIGN as error:
            self._lose(_reason(error), error)
            raise self._connection_lost() from error
        finally:
            self._receiving = False

    async def _receive_socket(self, max_bytes: int) -> bytes:
        """One wait and one read; read(2) itself, past the layers that Trio's recv puts above it."""
        assert self._socket is not None
        if self._drained:
            await trio.lowlevel.wait_readable(self._socket.fileno())
        else:
            # The last read was full, so more is there: only let the others have their turn.
            await trio.lowlevel.checkpoint()
        while True:
            try:
                data = os.read(self._socket.fileno(), max_bytes)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket.fileno())
            else:
                self._drained = len(data) < max_bytes
                self._may_hurry = True
                return data

    async def _receive_any(self, max_bytes: int) -> bytes:
        with self._cancelled_by_loss():
            return bytes(await self._stream.receive_some(max_bytes))
        raise trio.ClosedResourceError("closed on our side")

    def write(self, *buffers: Buffer) -> None:
        """Queue buffers, in order, for the next send. Never blocks, never raises for a lost
        peer.
        """
        if self._lost is not None:
            return
        if not self._queue:
            self._wakeup.set()
        self._queue += buffers
        self._pending_bytes += sum(map(len, buffers))
        if self._pending_bytes >= self._write_high_bytes:
            self._choked = True

    def write_now(self, *buffers: Buffer) -> None:
        """The same, but with the kernel at once if nothing waits before them: a turn of the
        scheduler less for what somebody waits for, and a call of its own. Once after each read:
        where many wait, what they wait for is joined.
        """
        if not self._may_hurry or self._pending_bytes or self._lost is not None:
            self.write(*buffers)
            return
        assert self._socket is not None
        self._may_hurry = False
        try:
            sent = os.writev(self._socket.fileno(), buffers)
        except BlockingIOError:
            sent = 0
        except _FOREIGN:
            # The writer task meets the same error, and tells.
            sent = 0
        for buffer in buffers:
            size = len(buffer)
            if sent < size:
                self.write(memoryview(buffer)[sent:] if sent else buffer)
                sent = 0
            else:
                sent -= size

    def on_writable(self, callback: Callable[[], object]) -> None:
        """Call `callback` once when pending has fallen to a quarter of the high mark.

        At once if the high mark has not been reached since it was last there, or if the
        connection is lost. Callbacks are short, synchronous and don't raise.
        """
        if self._choked:
            self._writable_callbacks.append(callback)
        else:
            callback()

    async def flush(self) -> None:
        """Until all that was written is with the kernel. Raises ConnectionLost."""
        while self._pending_bytes and self._lost is None:
            if self._flushed is None:
                self._flushed = trio.Event()
            await self._flushed.wait()
        if self._lost is not None:
            raise self._connection_lost() from self._cause
        await trio.lowlevel.checkpoint()

    async def run_writer(self) -> None:
        """Send what is written until the stream is closed or breaks; started once, by the owner.

        Returns in both cases: whoever reads hears of the loss.
        """
        if self._writer_runs:
            raise trio.BusyResourceError(f"{self.name} has a writer already")
        self._writer_runs = True
        send = self._send_any if self._socket is None else self._send_vectored
        if self._tls is not None:
            send = self._send_tls
        while self._lost is None:
            await self._wakeup.wait()
            while self._queue:
                queue, self._queue = self._queue, []
                try:
                    await send(coalesce(queue))
                except _FOREIGN as error:
                    self._lose(_reason(error), error)

    async def _send_vectored(self, buffers: list[Buffer]) -> None:
        assert self._socket is not None
        first = 0
        while first < len(buffers):
            window = buffers[first : first + IOV_MAX]
            # What is queued meanwhile counts as pending too: then there is only one look more.
            is_capped = self._pending_bytes > SEND_BYTES_MAX and cap(window)
            try:
                # Not trio's sendmsg: it would yield once more for each send although the next
                # step is to park anyway.
                sent = os.writev(self._socket.fileno(), window)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket.fileno())
                continue
            self._count_sent(sent)
            while first < len(buffers):
                size = len(buffers[first])
                if sent < size:
                    if sent:
                        buffers[first] = memoryview(buffers[first])[sent:]
                    break
                sent -= size
                buffers[first] = b""
                first += 1
            if is_capped:
                await trio.lowlevel.checkpoint()

    async def _send_tls(self, buffers: list[Buffer]) -> None:
        assert self._tls is not None
        await self._tls.send_buffers(buffers, self._count_sent)

    async def _send_any(self, buffers: list[Buffer]) -> None:
        for buffer in buffers:
            if self._lost is not None:
                return
            with self._cancelled_by_loss():
                await self._stream.send_all(memoryview(buffer))
                self._count_sent(len(buffer))

    def _cancelled_by_loss(self) -> _LossScope:
        return _LossScope(self._scopes)

    def _count_sent(self, sent_bytes: int) -> None:
        self._pending_bytes -= sent_bytes
        if self._choked and self._pending_bytes <= self._write_low_bytes:
            self._unchoke()
        if self._flushed is not None and not self._pending_bytes:
            self._flushed.set()
            self._flushed = None

    def _unchoke(self) -> None:
        self._choked = False
        callbacks, self._writable_callbacks = self._writable_callbacks, []
        for callback in callbacks:
            callback()

    def _connection_lost(self) -> ConnectionLost:
        return ConnectionLost(f"{self.name}: {self._lost}")

    def _lose(self, reason: str, cause: BaseException | None = None) -> None:
        """Forget all that is queued, wake everybody, and let go of the socket; once."""
        if self._lost is not None:
            return
        self._lost = reason
        self._cause = cause
        self._queue.clear()
        self._pending_bytes = 0
        if self._tls is not None:
            self._tls.close()
        elif self._socket is not None:
            self._socket.close()
        for scope in self._scopes:
            scope.cancel()
        self._wakeup.set()
        self._count_sent(0)

    def abort(self, reason: str = "closed on our side") -> None:
        """Give the connection up now: whatever is queued is dropped, `receive` raises.
        Idempotent.
        """
        self._lose(reason)

    async def detach(self) -> trio.abc.Stream:
        """The stream itself, once all that was written is with the kernel: this one reads and
        writes no more, its writer task ends, and closing it closes what was handed out.

        Raises ConnectionLost.
        """
        await self.flush()
        self._lost = "handed on"
        self._wakeup.set()
        return self._stream

    async def aclose(self) -> None:
        """Close, even when cancelled. Drops what is pending: `flush` before, under your own
        deadline.
        """
        self._lose("closed on our side")
        if self._socket is None:
            await trio.aclose_forcefully(self._stream)
        else:
            await self._stream.aclose()


class _LossScope:
    """A cancel scope that the stream's loss cancels; swallows that cancellation."""

    __slots__ = ("_scope", "_scopes")

    def __init__(self, scopes: list[trio.CancelScope]) -> None:
        self._scope = trio.CancelScope()
        self._scopes = scopes

    def __enter__(self) -> None:
        self._scopes.append(self._scope)
        self._scope.__enter__()

    def __exit__(self, *details: object) -> bool | None:
        self._scopes.remove(self._scope)
        return self._scope.__exit__(*details)  # type: ignore[arg-type]


def _vectored_socket(stream: trio.abc.Stream) -> trio.socket.SocketType | None:
    """The socket to send through directly, or None where only the stream itself may be used."""
    if not isinstance(stream, trio.SocketStream) or not hasattr(os, "writev"):
        return None
    large_sends(stream.socket)
    return stream.socket


def _reason(error: BaseException) -> str:
    """What happened, in words: Trio's wrapper has the socket's own error as its cause."""
    if isinstance(error, trio.ClosedResourceError):
        return "closed on our side"
    if isinstance(error, TlsFailed):
        return str(error)
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    text = cause.strerror if isinstance(cause, OSError) else None
    return text or str(cause) or type(cause).__name__
