"""Two ends of a connection without a network."""

from __future__ import annotations

from collections.abc import Iterable

from geminga_protocol.buffers import Buffer
from geminga_protocol.frames import Frame, FrameReader


class End:
    """One end: what it writes waits until the other end reads."""

    def __init__(self) -> None:
        self.reader = FrameReader()
        self.sent = bytearray()
        self._other: End | None = None

    def write(self, *buffers: Buffer) -> None:
        """Queue bytes for the other end."""
        for buffer in buffers:
            self.sent += buffer

    def receive(self, chunk_bytes: int = 1 << 18) -> list[Frame]:
        """Frames of all that the other end wrote, read by chunks of that size."""
        assert self._other is not None
        data = bytes(self._other.sent)
        self._other.sent.clear()
        frames: list[Frame] = []
        for at in range(0, len(data), chunk_bytes):
            frames += self.reader.feed(data[at : at + chunk_bytes])
        return frames


class ConnectionPair:
    """A client's and a broker's end, joined."""

    def __init__(self) -> None:
        self.client = End()
        self.broker = End()
        self.client._other = self.broker
        self.broker._other = self.client

    def exchange(self, requests: Iterable[bytes]) -> list[Frame]:
        """Write the client's requests and answer what the broker's end makes of them."""
        self.client.write(*requests)
        return self.broker.receive()
