"""TLS over a socket, with reads and writes as large as the plain ones.

trio.SSLStream moves 16 KiB a turn. Here one read of the socket brings many records, decrypted
together, and many buffers are encrypted together and sent with one call. In a broker's sizes, a
byte costs a third of SSLStream's processor time.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence

import trio

from geminga_protocol.buffers import Buffer
from geminga_runtime.errors import TlsFailed
from geminga_runtime.tls import peer_certificate, tls_reason

RECEIVE_BYTES = 256 * 1024
ENCRYPT_BYTES = 64 * 1024
FEED_BYTES = 64 * 1024
"""Bytes to encrypt, or decrypt, at once: OpenSSL never shrinks a connection's buffer, and larger
pieces save nothing.
"""
NOT_SENT_LOW_BYTES = 256 * 1024
"""Trio asks the kernel for 16 KiB, good for fair HTTP; a broker wants fewer, larger sends."""
_NOTHING = memoryview(b"")
"""Replaces an empty slice of a large buffer, which would keep the buffer alive."""
RECORD_BYTES = 16 * 1024
"""OpenSSL returns at most one record (RFC 8446, 5.1) a call."""


class TlsStream(trio.abc.Stream):
    """One reader, one writer. Call `do_handshake` first. The stream owns the transport."""

    def __init__(
        self,
        transport_stream: trio.SocketStream,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> None:
        self.transport_stream = transport_stream
        self._socket = transport_stream.socket
        large_sends(self._socket)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=server_hostname,
        )
        self._unsent = _NOTHING
        self._send_lock = trio.Lock()
        self._is_open = False
        self._has_heard = False
        self._undecrypted = _NOTHING
        self._given_back = b""
        self._is_drained = False
        self._has_ended = False
        self._broken: TlsFailed | None = None

    @property
    def has_heard(self) -> bool:
        """Whether the peer has sent anything in the handshake."""
        return self._has_heard

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's verified certificate (DER), or None."""
        return peer_certificate(self._tls) if self._is_open else None

    @property
    def has_unread(self) -> bool:
        """Whether bytes were read from the socket but not received yet."""
        held = self._given_back or self._undecrypted or self._incoming.pending
        return bool(held or self._tls.pending())

    async def do_handshake(self) -> None:
        """Run the handshake. Raises TlsFailed, and OSError if the connection breaks; deadlines are
        the caller's.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._drain()
            except ssl.SSLError as error:
                self._say_last()
                raise TlsFailed(tls_reason(error)) from error
            else:
                await self._drain()
                self._is_open = True
                return
            data = await self._read_socket(RECORD_BYTES)
            if not data:
                # Not TlsFailed: a full server, or a load balancer without one, does this too.
                raise ConnectionResetError(
                    "closed during the TLS handshake (is this the TLS port?)"
                )
            self._has_heard = True
            self._incoming.write(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Bytes from the peer, b"" when it has ended its side. Raises TlsFailed and OSError. A
        cancelled call loses no bytes.
        """
        wanted = RECEIVE_BYTES if max_bytes is None else max_bytes
        if self._given_back:
            first, self._given_back = self._given_back[:wanted], self._given_back[wanted:]
            return first
        # No await after the decryption: a cancellation would lose the bytes.
        if not self._is_drained:
            await trio.lowlevel.checkpoint()
        while True:
            if self._outgoing.pending and not self._has_ended:
                await self._drain()
            data = self._decrypt(wanted)
            if data is not None:
                return data
            if self._outgoing.pending:
                continue
            self._undecrypted = memoryview(await self._read_socket(wanted))
            if not self._undecrypted:
                self._incoming.write_eof()

    def give_back(self, data: bytes) -> None:
        """Put received bytes back; the next call receives them first."""
        self._given_back = data + self._given_back

    def _decrypt(self, max_bytes: int) -> bytes | None:
        """Decrypted bytes, b"" at the end, None if no record is complete."""
        if self._broken is not None:
            raise self._broken
        parts: list[bytes] = []
        size = 0
        try:
            while size < max_bytes and not self._has_ended and self._has_input():
                try:
                    part = self._tls.read(min(RECORD_BYTES, max_bytes - size))
                except ssl.SSLWantReadError:
                    if not self._undecrypted:
                        break
                    self._feed()
                    continue
                self._has_ended = not part
                parts.append(part)
                size += len(part)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            # An end without close_notify is no error: the protocol above knows what is complete.
            self._has_ended = True
        except ssl.SSLError as error:
            # Return the data before the error first; the next call raises it.
            self._broken = TlsFailed(tls_reason(error))
            if not parts:
                raise self._broken from error
        self._is_drained = size < max_bytes
        return b"".join(parts) if parts or self._has_ended else None

    def _has_input(self) -> bool:
        """Whether there is something to decrypt."""
        if self._incoming.pending or self._incoming.eof or self._tls.pending():
            return True
        if not self._undecrypted:
            return False
        self._feed()
        return True

    def _feed(self) -> None:
        """Pass on FEED_BYTES only: OpenSSL's buffer never shrinks."""
        self._incoming.write(self._undecrypted[:FEED_BYTES])
        self._undecrypted = self._undecrypted[FEED_BYTES:] or _NOTHING

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send until the kernel has all bytes. Raises TlsFailed and OSError."""
        await self.send_buffers([memoryview(data)], lambda size: None)
        await trio.lowlevel.checkpoint()

    async def send_buffers(
        self, buffers: Sequence[Buffer], count_sent: Callable[[int], object]
    ) -> None:
        """Send in order; calls `count_sent` with the number of plain bytes that were sent."""
        for piece in _pieces(buffers):
            at, size = 0, len(piece)
            while at < size:
                try:
                    at += self._tls.write(memoryview(piece)[at:] if at else piece)
                except ssl.SSLError as error:
                    raise TlsFailed(tls_reason(error)) from error
            await self._drain()
            count_sent(size)

    def send_now(self, buffers: Sequence[Buffer]) -> int:
        """Sends nothing: encrypted bytes must keep the order, which is up to the writer task."""
        return 0

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket takes more."""
        await self.transport_stream.wait_send_all_might_not_block()

    def close(self) -> None:
        """Send close_notify if the socket takes it at once, and close. Idempotent."""
        if self._socket.fileno() >= 0:
            if self._is_open and not self._unsent:
                try:
                    self._tls.unwrap()
                except ssl.SSLError:  # SSLWantRead: the peer's close_notify isn't needed
                    pass
                self._say_last()
            self._socket.close()

    async def aclose(self) -> None:
        """As `close`, with a checkpoint."""
        self.close()
        await trio.lowlevel.checkpoint()

    def selected_alpn_protocol(self) -> str | None:
        """The protocol agreed on by ALPN."""
        return self._tls.selected_alpn_protocol()

    def _say_last(self) -> None:
        """Send a pending alert, if the socket takes it at once."""
        try:
            os.write(self._socket.fileno(), self._outgoing.read())
        except OSError:
            pass

    def _last_words(self) -> TlsFailed | None:
        """The peer's alert, if it sent one: with TLS 1.3 a client is refused after it has completed
        the handshake, and often notices it first by a failed write.
        """
        if self._incoming.eof:
            return None
        try:
            self._incoming.write(self._undecrypted)
            self._incoming.write(os.read(self._socket.fileno(), RECEIVE_BYTES))
            while self._tls.read(RECORD_BYTES):
                pass
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            return TlsFailed(tls_reason(error))
        except OSError:
            pass
        return None

    async def _read_socket(self, max_bytes: int) -> bytes:
        await trio.lowlevel.wait_readable(self._socket.fileno())
        while True:
            try:
                return os.read(self._socket.fileno(), max_bytes)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket.fileno())

    async def _drain(self) -> None:
        """Send all encrypted bytes. The reader sends too, now and then (a key update); bytes that a
        cancelled task left unsent go first.
        """
        async with _Held(self._send_lock):
            while self._unsent or self._outgoing.pending:
                if not self._unsent:
                    self._unsent = memoryview(self._outgoing.read())
                try:
                    sent = os.write(self._socket.fileno(), self._unsent)
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket.fileno())
                except OSError as error:
                    raise self._last_words() or error from error
                else:
                    self._unsent = self._unsent[sent:] or _NOTHING


def large_sends(sock: trio.socket.SocketType) -> None:
    """Raise Trio's limit of unsent bytes in the kernel, for larger sends."""
    if hasattr(trio.socket, "TCP_NOTSENT_LOWAT"):
        try:
            sock.setsockopt(
                trio.socket.IPPROTO_TCP, trio.socket.TCP_NOTSENT_LOWAT, NOT_SENT_LOW_BYTES
            )
        except OSError:  # a Unix socket
            pass


class _Held:
    """Takes a lock without a turn of the scheduler if it is free."""

    __slots__ = ("_lock",)

    def __init__(self, lock: trio.Lock) -> None:
        self._lock = lock

    async def __aenter__(self) -> None:
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()

    async def __aexit__(self, *details: object) -> None:
        self._lock.release()


def _pieces(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in pieces of about ENCRYPT_BYTES: small ones joined, large ones cut."""
    pieces: list[Buffer] = []
    run: list[Buffer] = []
    run_bytes = 0
    for buffer in buffers:
        size = len(buffer)
        if run and run_bytes + size > ENCRYPT_BYTES:
            pieces.append(run[0] if len(run) == 1 else b"".join(run))
            run, run_bytes = [], 0
        if size <= ENCRYPT_BYTES:
            run.append(buffer)
            run_bytes += size
        else:
            view = memoryview(buffer)
            pieces += [view[at : at + ENCRYPT_BYTES] for at in range(0, size, ENCRYPT_BYTES)]
    if run:
        pieces.append(run[0] if len(run) == 1 else b"".join(run))
    return pieces
