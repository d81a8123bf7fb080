"""TLS over a socket, with reads and writes as large as the plain ones.

trio.SSLStream moves 16 KiB a turn. Here one read of the socket brings many records, decrypted
together, and many buffers are encrypted together and leave with one call: a third of its
processor time for each byte, in the sizes that a broker moves.
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
"""Bytes that are encrypted, or decrypted, at once: OpenSSL keeps a buffer of the largest size that
a connection ever needed. Larger ones save nothing.
"""
NOT_SENT_LOW_BYTES = 256 * 1024
"""Trio asks the kernel for 16 KiB, good for fair HTTP; a broker wants fewer, larger sends."""
_NOTHING = memoryview(b"")
"""In place of an empty end of something large, which would keep it."""
RECORD_BYTES = 16 * 1024
"""OpenSSL gives out one record (RFC 8446, 5.1) a call."""


class TlsStream(trio.abc.Stream):
    """One reader, one writer. `do_handshake` comes first; the transport belongs to the stream."""

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
        """The verified certificate (DER) of the peer, None if it has shown none."""
        return peer_certificate(self._tls) if self._is_open else None

    @property
    def has_unread(self) -> bool:
        """Whether bytes of the peer are here that were not received yet."""
        held = self._given_back or self._undecrypted or self._incoming.pending
        return bool(held or self._tls.pending())

    async def do_handshake(self) -> None:
        """Until both sides agree. Raises TlsFailed, and OSError if the connection breaks; the
        deadline is the caller's.
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
                # Not TlsFailed: full servers, and load balancers without a server, close so too.
                raise ConnectionResetError(
                    "closed during the TLS handshake (is this the TLS port?)"
                )
            self._has_heard = True
            self._incoming.write(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Bytes of the peer, b"" when it has ended its side. Raises TlsFailed and OSError.
        Cancelled, it loses nothing.
        """
        wanted = RECEIVE_BYTES if max_bytes is None else max_bytes
        if self._given_back:
            first, self._given_back = self._given_back[:wanted], self._given_back[wanted:]
            return first
        # Nothing is awaited with decrypted bytes in hand: a cancellation would lose them.
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
        """What was received is received again, before all else."""
        self._given_back = data + self._given_back

    def _decrypt(self, max_bytes: int) -> bytes | None:
        """What has come, b"" at the end, None if nothing is whole yet."""
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
            # Also without close_notify: the protocol above knows what is complete.
            self._has_ended = True
        except ssl.SSLError as error:
            # Raised after the data that came before it.
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
        """A part of what was read, since OpenSSL's buffer never shrinks again."""
        self._incoming.write(self._undecrypted[:FEED_BYTES])
        self._undecrypted = self._undecrypted[FEED_BYTES:] or _NOTHING

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Until the kernel has taken it. Raises TlsFailed and OSError."""
        await self.send_buffers([memoryview(data)], lambda size: None)
        await trio.lowlevel.checkpoint()

    async def send_buffers(
        self, buffers: Sequence[Buffer], count_sent: Callable[[int], object]
    ) -> None:
        """Send in order; `count_sent` is told how many plain bytes the kernel has each time."""
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
        """Nothing: encrypted bytes go out in one order, which the writer keeps."""
        return 0

    async def wait_send_all_might_not_block(self) -> None:
        """Until the socket takes more."""
        await self.transport_stream.wait_send_all_might_not_block()

    def close(self) -> None:
        """Say farewell if the socket takes it at once, and close. Idempotent."""
        if self._socket.fileno() >= 0:
            if self._is_open and not self._unsent:
                try:
                    self._tls.unwrap()
                except ssl.SSLError:  # it waits for the peer's close_notify, which isn't needed
                    pass
                self._say_last()
            self._socket.close()

    async def aclose(self) -> None:
        """The same, with a checkpoint."""
        self.close()
        await trio.lowlevel.checkpoint()

    def selected_alpn_protocol(self) -> str | None:
        """What was agreed on by ALPN."""
        return self._tls.selected_alpn_protocol()

    def _say_last(self) -> None:
        """An alert, if there is one, and if the socket takes it without waiting."""
        try:
            os.write(self._socket.fileno(), self._outgoing.read())
        except OSError:
            pass

    def _last_words(self) -> TlsFailed | None:
        """Why the peer has closed, if it said so: with TLS 1.3 a refused client learns of it after
        its own handshake, and often first by a write that fails.
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
        """Send all that is encrypted. The reader has something to send too, now and then (keys
        anew): what one of the two began, cancelled or not, goes out whole before the rest.
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
    """Let the kernel take more at a time than what Trio asks for."""
    if hasattr(trio.socket, "TCP_NOTSENT_LOWAT"):
        try:
            sock.setsockopt(
                trio.socket.IPPROTO_TCP, trio.socket.TCP_NOTSENT_LOWAT, NOT_SENT_LOW_BYTES
            )
        except OSError:  # a Unix socket
            pass


class _Held:
    """A lock that costs no turn of the scheduler while nobody else has it."""

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
