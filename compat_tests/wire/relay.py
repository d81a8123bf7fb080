"""A TCP relay that keeps the bytes of each direction, cut into frames.

It runs in threads of its own, because the clients that it serves block or are other processes. The
cutting is done here on purpose without the code under test: four bytes of length, then that many.
"""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

Side = Literal["client", "broker"]


@dataclass
class Recording:
    """One connection's frames in the order in which they passed."""

    frames: list[tuple[Side, bytes]] = field(default_factory=list)
    _rest: dict[Side, bytes] = field(default_factory=lambda: {"client": b"", "broker": b""})

    def add(self, side: Side, data: bytes) -> None:
        """Take what came from one side; whole frames go to the list."""
        data = self._rest[side] + data
        while len(data) >= 4:
            (size,) = struct.unpack_from(">I", data)
            if len(data) < 4 + size:
                break
            self.frames.append((side, data[: 4 + size]))
            data = data[4 + size :]
        self._rest[side] = data


class Relay:
    """Listens on a free port and joins each connection to the target; a context manager."""

    def __init__(self, target: tuple[str, int], port: int = 0) -> None:
        self.target = target
        self.recordings: list[Recording] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self._sockets: list[socket.socket] = [self._listener]
        self._lock = threading.Lock()
        self.address: tuple[str, int] = self._listener.getsockname()

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self.target)
            except OSError:
                return
            recording = Recording()
            self.recordings.append(recording)
            self._sockets += [client, broker]
            for side, source, sink in (("client", client, broker), ("broker", broker, client)):
                threading.Thread(
                    target=self._carry, args=(recording, side, source, sink), daemon=True
                ).start()

    def _carry(
        self, recording: Recording, side: Side, source: socket.socket, sink: socket.socket
    ) -> None:
        while True:
            try:
                data = source.recv(65536)
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                with self._lock:
                    recording.add(side, data)
                sink.sendall(data)
            except OSError:
                return
