"""One connection's byte stream: one reader, writes that never block, one writer task.

The rules:
- `receive` costs one read; nothing is copied or parsed here.
- `write` only queues. The writer task runs in the scheduler's next turn, and sends everything that
  was written in this turn in one scatter-gather call. Small buffers are joined, large ones never
  copied.
- Queued bytes are counted. Above `write_high_bytes` the owner must stop producing (and stop reading
  the peer) until `on_writable` calls back; this class neither waits nor drops.
- Writes to a lost connection are ignored; `receive` and `flush` raise the loss.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from geminga_protocol.buffers import Buffer
from geminga_runtime.errors import ConnectionLost, TlsFailed
from geminga_runtime.pace import ends
from geminga_runtime.tls_stream import TlsStream
from geminga_runtime.transports import coalesce, transport_of
from geminga_runtime.waiters import Wakeup

RECEIVE_BYTES = 256 * 1024
"""Bytes of one read: on a busy connection, hundreds of messages at a time."""

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
        self._queue: list[Buffer] = []
        self._pending_bytes = 0
        self.on_pending: Callable[[], object] | None = None
        """Called when `pending_bytes` has changed; short, synchronous, and doesn't raise."""
        self.sent_bytes = 0
        """Queued bytes that the kernel has taken, in total."""
        self._choked = False
        self._writable_callbacks: list[Callable[[], object]] = []
        self._flushed: trio.Event | None = None
        self._wakeup = Wakeup()
        self._receiving = False
        self._writer_runs = False
        self._lost: str | None = None
        self._cause: BaseException | None = None
        self._transport = transport_of(stream)

    def __repr__(self) -> str:
        state = self._lost or "open"
        return f"<FramedStream {self.name} {state}, {self._pending_bytes} bytes pending>"

    @property
    def pending_bytes(self) -> int:
        """Bytes written but not yet taken by the kernel."""
        return self._pending_bytes

    @property
    def writable(self) -> bool:
        """Whether less than the high mark is pending. True for a lost connection."""
        return self._pending_bytes < self._write_high_bytes

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's verified certificate (DER); None without TLS or without one."""
        return self._stream.peer_certificate if isinstance(self._stream, TlsStream) else None

    @property
    def is_secure(self) -> bool:
        """Whether it is by TLS."""
        return isinstance(self._stream, TlsStream)

    @property
    def lost(self) -> bool:
        """Whether the connection broke or was closed on our side."""
        return self._lost is not None

    async def receive(self, max_bytes: int = RECEIVE_BYTES) -> bytes:
        """Bytes from the peer, at most `max_bytes`; b"" when it has ended its side.

        Raises ConnectionLost, and trio.BusyResourceError if another task is receiving. A cancelled
        call loses no bytes.
        """
        if self._receiving:
            raise trio.BusyResourceError(f"another task receives from {self.name}")
        if self._lost is not None:
            await trio.lowlevel.checkpoint()
            raise self._connection_lost() from self._cause
        self._receiving = True
        try:
            data = await self._transport.receive_some(max_bytes)
            if not data:
                await ends().turn()
            return data
        except _FOREIGN as error:
            await ends().turn()  # noqa: ASYNC120 - the next call raises it again
            self._lose(_reason(error), error)
            raise self._connection_lost() from error
        finally:
            self._receiving = False

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
        if self.on_pending is not None:
            self.on_pending()

    def write_now(self, *buffers: Buffer) -> None:
        """As `write`, but if nothing is queued, send now: this saves a turn of the scheduler, and
        costs a system call. Works once after each read; further buffers are queued and joined.
        """
        is_free = not self._pending_bytes and self._lost is None
        sent = self._transport.send_now(buffers) if is_free else 0
        if not sent:
            self.write(*buffers)
            return
        for buffer in buffers:
            size = len(buffer)
            if sent < size:
                self.write(memoryview(buffer)[sent:] if sent else buffer)
                sent = 0
            else:
                sent -= size

    def on_writable(self, callback: Callable[[], object]) -> None:
        """Call `callback` once, when pending has fallen to a quarter of the high mark; at once if
        the high mark was not reached since, or the connection is lost. Callbacks are short,
        synchronous and don't raise.
        """
        if self._choked:
            self._writable_callbacks.append(callback)
        else:
            callback()

    async def flush(self) -> None:
        """Wait until the kernel has all written bytes. Raises ConnectionLost."""
        while self._pending_bytes and self._lost is None:
            if self._flushed is None:
                self._flushed = trio.Event()
            await self._flushed.wait()
        if self._lost is not None:
            raise self._connection_lost() from self._cause
        await trio.lowlevel.checkpoint()

    async def run_writer(self) -> None:
        """Send written buffers until the stream is closed or breaks; the owner starts it once.

        Returns in both cases: the reader gets the error.
        """
        if self._writer_runs:
            raise trio.BusyResourceError(f"{self.name} has a writer already")
        self._writer_runs = True
        while self._lost is None:
            await self._wakeup.wait()
            while self._queue:
                queue, self._queue = self._queue, []
                try:
                    await self._transport.send_buffers(coalesce(queue), self._count_sent)
                except _FOREIGN as error:
                    self._lose(_reason(error), error)

    def _count_sent(self, sent_bytes: int) -> None:
        self._pending_bytes -= sent_bytes
        self.sent_bytes += sent_bytes
        if self.on_pending is not None:
            self.on_pending()
        if self._choked and self._pending_bytes <= self._write_high_bytes // 4:
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
        """Drop the queue, wake all waiting tasks, and close the socket. Idempotent."""
        if self._lost is not None:
            return
        self._lost = reason
        self._cause = cause
        self._queue.clear()
        self._pending_bytes = 0
        self._transport.close()
        self._wakeup.set()
        self._count_sent(0)

    def abort(self, reason: str = "closed on our side") -> None:
        """Abandon the connection now: drop the queue; `receive` raises. Idempotent."""
        self._lose(reason)

    def end_sending(self) -> None:
        """Tell the peer that nothing more comes, after a flush; it may still send. Without TLS
        only: there nothing is told before the close.
        """
        if isinstance(self._stream, trio.SocketStream) and self._lost is None:
            try:
                self._stream.socket.shutdown(trio.socket.SHUT_WR)
            except OSError as error:
                self._lose(_reason(error), error)

    async def detach(self) -> trio.abc.Stream:
        """The underlying stream, after a flush. This object then reads and writes no more and its
        writer task ends; closing it still closes the underlying stream.

        Raises ConnectionLost.
        """
        await self.flush()
        self._lost = "handed on"
        self._wakeup.set()
        return self._stream

    async def aclose(self) -> None:
        """Close, even when cancelled. Drops pending bytes: `flush` first, with a deadline."""
        self._lose("closed on our side")
        if isinstance(self._stream, trio.SocketStream):
            await self._stream.aclose()
        else:
            await trio.aclose_forcefully(self._stream)


def _reason(error: BaseException) -> str:
    """The error's text: the cause of Trio's wrapper is the socket's own error."""
    if isinstance(error, trio.ClosedResourceError):
        return "closed on our side"
    if isinstance(error, TlsFailed):
        return str(error)
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    text = cause.strerror if isinstance(cause, OSError) else None
    return text or str(cause) or type(cause).__name__
